//! Passages in memory and in files.

use tempfile::TempDir;

use super::*;

fn passages() -> Vec<Passage> {
    let contents = ["\"A\"\nfirst", "", "\"C\"\nwith é and 食\nand a third line"];
    let ids = ["0", "", "a longer identifier"];
    ids.iter()
        .zip(contents)
        .map(|(id, contents)| Passage { id: (*id).to_owned(), contents: contents.to_owned() })
        .collect()
}

fn write(folder: &Path) {
    let mut writer = StoreWriter::create(folder).unwrap();
    for passage in passages() {
        writer.add(&passage.id, &passage.contents).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), 3);
}

#[test]
fn what_was_written_is_read() {
    let folder = TempDir::new().unwrap();
    write(folder.path());
    let (files, memory) = (PassageStore::open(folder.path()).unwrap(), PassageStore::in_memory(passages()));
    assert_eq!((files.len(), files.fingerprint()), (3, memory.fingerprint()));
    for store in [&files, &memory] {
        let found: Vec<Passage> = store.iter().map(|passage| (*passage.unwrap()).clone()).collect();
        assert_eq!(found, passages());
        assert!(store.get(3).unwrap_err().to_string().contains("there are 3"));
    }
    let mut other = passages();
    other.swap(0, 1);
    assert_ne!(PassageStore::in_memory(other).fingerprint(), memory.fingerprint());
}

#[test]
fn broken_files_are_errors_that_name_them() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let refused = || PassageStore::open(path).unwrap_err().to_string();
    assert!(refused().contains("no finished passages"), "{}", refused());
    write(path);
    assert!(StoreWriter::create(path).unwrap_err().to_string().contains(TEXTS));

    let whole = std::fs::read(path.join(TEXTS)).unwrap();
    std::fs::write(path.join(TEXTS), &whole[1..]).unwrap();
    assert!(refused().contains(TEXTS) && refused().contains("damaged"), "{}", refused());
    // Damaged files give an error or another text, never a panic.
    let ends = std::fs::read(path.join(ENDS)).unwrap();
    for (name, bytes) in [(TEXTS, &whole), (ENDS, &ends)] {
        std::fs::write(path.join(TEXTS), &whole).unwrap();
        std::fs::write(path.join(ENDS), &ends).unwrap();
        let mut errors = 0;
        for index in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[index] = 0xff;
            std::fs::write(path.join(name), wrong).unwrap();
            let store = PassageStore::open(path).unwrap();
            errors += (0..3).filter(|&position| store.get(position).is_err()).count();
        }
        assert!(errors > 10, "{name}: {errors}");
    }
}
