//! Tests of shops from files: official, built, and opened by several processes.

use turnwise_core::{EnvError, Environment as _, Purpose, Seed, Task, TaskSet as _};
use turnwise_env::panel::{Choice, Panel, PinnedSplit};
use turnwise_env::webshop::generator::GeneratorConfig;
use turnwise_env::webshop::official::{self, Size};
use turnwise_env::webshop::{Product, WebshopKind, WebshopOptions, WebshopSet, WebshopSettings};
use turnwise_env::world::{OpenOptions, WorldKind as _};

use super::{option, play};

fn read(folder: &std::path::Path) -> Result<Vec<Product>, EnvError> {
    let mut products = Vec::new();
    official::read(folder, Size::Small, None, |product| {
        products.push(product);
        Ok(())
    })?;
    Ok(products)
}

#[test]
fn a_catalogue_without_its_folder_is_refused() {
    let settings = WebshopSettings { size: Some(Size::Full), ..WebshopSettings::default() };
    let mut options = OpenOptions { splits: &[], max_turns: 4, note: &mut |_| {} };
    let error = WebshopKind.open(&settings, &mut options).err().unwrap().to_string();
    assert!(error.contains("env.size chooses one of the official catalogues"), "{error}");
}

#[test]
fn official_files_are_prepared_as_the_original_prepares_them() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let error = |expected: &str| {
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    error("there is no `items_shuffle_1000.json` and no `products_1000_documents.jsonl` (or `.zst` of it)");
    let product = |asin: &str, pricing: &str| {
        format!(
            r#"{{"asin": "{asin}", "name": "Mug", "full_description": "d", "small_description": "one", "pricing": "{pricing}",
            "customization_options": {{"Size": [{{"value": " 6/8 OZ "}}, {{"value": "L"}}], "none": null}}, "images": ["x"],
            "product_category": "A", "category": "c", "query": " Mugs ", "brand": null}}"#
        )
    };
    let all = format!(
        "[{}, {}, {}, {}]",
        product("A", "$1,009.50$12"),
        product("nan", ""),
        product("A", "$1"),
        product("B", "")
    );
    write("items_shuffle_1000.json", &all);
    error("there is no `items_ins_v2_1000.json`");
    write(
        "items_ins_v2_1000.json",
        r#"{"A": {"attributes": ["safe"], "instruction": "Find me", "instruction_attributes": ["safe"]}}"#,
    );
    let products = read(folder.path()).unwrap();
    let [a, b] = products.as_slice() else { panic!("{products:?}") };
    assert_eq!(
        (a.asin.as_str(), a.pricing.as_slice(), a.query.as_str()),
        ("A", [1009.5, 12.0].as_slice(), "mugs")
    );
    assert_eq!(a.options, [option("size", &["6 | 8 oz", "l"])]);
    assert_eq!(
        (a.bullet_points.as_slice(), a.instruction.as_deref()),
        (["one".to_owned()].as_slice(), Some("Find me"))
    );
    assert_eq!(
        (b.pricing.as_slice(), b.attributes.as_slice()),
        ([100.0].as_slice(), ["DUMMY_ATTR".to_owned()].as_slice())
    );

    write("items_shuffle_1000.json", &all[..all.len() - 200]);
    error("the file ends too early: fetch it again");
    write("items_shuffle_1000.json", &format!("[{}]", product("A", "free")));
    error("product number 1 (`A`): `pricing` is \"free\", without a dollar sign");
    // An invalid product is skipped and counted.
    let odd = format!("[{}, {{\"asin\": \"B\"}}, {}]", product("A", "free"), product("C", "$5"));
    write("items_shuffle_1000.json", &odd);
    let mut asins = Vec::new();
    let report = official::read(folder.path(), Size::Small, None, |product| {
        asins.push(product.asin);
        Ok(())
    });
    let warning = report.unwrap().warning().unwrap();
    assert_eq!(asins, ["C"]);
    assert!(warning.starts_with("2 of 3 products are left out as unreadable: "), "{warning}");
    assert!(warning.contains("product number 1 (`A`): `pricing` is \"free\""), "{warning}");
    assert!(warning.contains("items_shuffle_1000.json, product number 2: missing field `name`"), "{warning}");
    write("items_shuffle_1000.json", "[]");
    error("there is no product in it");
    write("items_shuffle_1000.json", r#"[{"asin": "A"}]"#);
    error("missing field `name`");
}

#[test]
fn the_full_shop_is_built_once_and_read_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let product = |asin: &str, name: &str, pricing: &str| {
        format!(
            r#"{{"asin": "{asin}", "name": "{name}", "full_description": "d", "small_description": ["one"],
            "pricing": "{pricing}", "customization_options": "", "images": ["x"], "product_category": "A \u203a B",
            "category": "c", "query": "mugs"}}"#
        )
    };
    write(
        "items_shuffle.json",
        &format!("[{},{}]", product("B1", "red mug", "$9$12"), product("A1", "tea pot", "")),
    );
    write(
        "items_ins_v2.json",
        r#"{"B1": {"attributes": ["x"], "instruction": "Find me x", "instruction_attributes": ["x"]}}"#,
    );
    let open = || WebshopSet::open(folder.path(), None, &WebshopOptions::default());
    let set = open().unwrap();
    write("items_shuffle.json", "[");
    let again = open().unwrap();
    for set in [&set, &again] {
        let catalogue = set.shop().catalogue();
        assert_eq!((set.len(), catalogue.len(), catalogue.find("A1")), (1, 2, Some(1)));
        assert_eq!(set.shop().search("tea").unwrap(), [1]);
        // The first draw of Python's `random` with seed 42, between 9 and 12.
        assert_eq!(catalogue.price(0), 9.0 + 3.0 * 0.639_426_798_457_883_7);
    }
    let task = set.task(0).unwrap();
    let mut shop = set.webshop();
    shop.reset(&task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
    let step = play(&mut shop, &["search[red mug]", "click[b1]", "click[buy now]"]);
    assert!(step.success);

    let built = folder.path().join("turnwise-shop/catalogue.bin");
    let bytes = std::fs::read(&built).unwrap();
    drop((set, again, shop));
    std::fs::write(&built, &bytes[..bytes.len() / 2]).unwrap();
    assert!(open().unwrap_err().to_string().contains("not a whole catalogue file"));
    // An interrupted build starts again, here from broken official files.
    std::fs::remove_file(&built).unwrap();
    assert!(open().unwrap_err().to_string().contains("the file ends too early"));
    assert!(!built.exists());
}

#[test]
fn odd_lines_are_counted_and_broken_ones_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "items_ins_v2_1000.json",
        r#"{"A": {"instruction": "Find me", "instruction_attributes": ["safe"]}}"#,
    );
    let document = |asin: &str, name: &str| {
        format!(
            r#"{{"product": {{"asin": "{asin}", "name": {name}, "full_description": "d", "small_description": [],
            "pricing": [5.0], "customization_options": "", "product_category": "A", "category": "c", "query": "q"}}}}"#
        )
        .replace('\n', " ")
    };
    let lines = [document("A", "\"Mug\""), document("B", "null"), document("C", "\"Pot\"")].join("\n");
    write("products_1000_documents.jsonl", &lines);
    let set = WebshopSet::open(folder.path(), None, &WebshopOptions::default()).unwrap();
    assert_eq!((set.shop().catalogue().len(), set.len()), (2, 1));
    let [left_out, nouns] = set.notes().try_into().unwrap();
    assert!(
        left_out.starts_with("1 of 3 products") && left_out.contains("documents.jsonl, line 2: "),
        "{left_out}"
    );
    assert!(nouns.contains("no `nouns.jsonl`") && nouns.contains("type_stand_in"), "{nouns}");

    // With nouns the type factor is exact, so there is no note.
    write(
        "nouns.jsonl",
        "{\"title\": \"Mug\", \"nouns\": [\"mug\"]}\n{\"title\": \"Pot\", \"nouns\": [\"pot\"]}\n",
    );
    let set = WebshopSet::open(folder.path(), None, &WebshopOptions::default()).unwrap();
    assert_eq!(set.notes().len(), 1);
    let pot = set.shop().catalogue().product(1).unwrap();
    let kind = set.judge(&set.task(0).unwrap().id).unwrap().type_score(&pot);
    assert_eq!((kind.title_score, kind.type_stand_in), (0.0, false));

    write("products_1000_documents.jsonl", &lines[..lines.len() - 9]);
    let error = WebshopSet::open(folder.path(), None, &WebshopOptions::default()).unwrap_err().to_string();
    assert!(error.contains("line 3: ") && error.contains("the file ends too early"), "{error}");
}

#[test]
fn many_processes_build_one_shop_and_keep_its_goals() {
    let folder = tempfile::tempdir().unwrap();
    let built = folder.path().join("shop");
    let config = GeneratorConfig { seed: 0, products: 300 };
    let options = WebshopOptions { goals_per_product: Some(3), ..WebshopOptions::default() };
    // Locks belong to open files, so threads compete for them like processes.
    let goals = |set: &WebshopSet| (0..set.len()).map(|index| set.goal(index).unwrap()).collect::<Vec<_>>();
    let all: Vec<_> = std::thread::scope(|scope| {
        let open = || goals(&WebshopSet::generated_in(&built, config, &options).unwrap());
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let memory = WebshopSet::generated(config, &options).unwrap();
    assert!(all.iter().all(|found| *found == goals(&memory)));

    // The next start reads the goals from their file, unless it is truncated.
    let file = |built: &std::path::Path| {
        let mut files = std::fs::read_dir(built).unwrap().map(|entry| entry.unwrap().path());
        files.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("goals-")).unwrap()
    };
    let inside = {
        let mut folders = std::fs::read_dir(&built).unwrap().map(|entry| entry.unwrap().path());
        let only = folders.next().unwrap();
        assert_eq!(folders.next(), None);
        only
    };
    let path = file(&inside);
    let whole = std::fs::read(&path).unwrap();
    let open = || WebshopSet::generated_in(&built, config, &options).unwrap();
    assert_eq!(open().split("test").unwrap(), memory.split("test").unwrap());
    let mut changed = whole.clone();
    let start = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    changed[start + 8..start + 12].copy_from_slice(&7u32.to_le_bytes());
    std::fs::write(&path, &changed).unwrap();
    assert_eq!(open().goal(0).unwrap().price_upper, 70.0);
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert_eq!(goals(&open()), goals(&memory));
    // Other options have their own file of goals.
    let other = WebshopOptions { seed: 7, ..options.clone() };
    let (mapped, memory) = (
        WebshopSet::generated_in(&built, config, &other).unwrap(),
        WebshopSet::generated(config, &other).unwrap(),
    );
    assert_eq!(goals(&mapped), goals(&memory));
    let names = std::fs::read_dir(&inside).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_str().unwrap().starts_with(".building")));
    // Other products are built in another folder.
    let other = WebshopSet::generated_in(&built, GeneratorConfig { seed: 1, ..config }, &options).unwrap();
    assert_eq!(
        goals(&other),
        goals(&WebshopSet::generated(GeneratorConfig { seed: 1, ..config }, &options).unwrap())
    );
}

#[test]
fn a_large_shop_is_pinned_without_making_its_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let config = GeneratorConfig { seed: 0, products: 300 };
    let options = WebshopOptions { goals_per_product: Some(3), ..WebshopOptions::default() };
    let memory = WebshopSet::generated(config, &options).unwrap();
    let open = || WebshopSet::generated_in(folder.path(), config, &options).unwrap();
    let panel = |set: &WebshopSet, split: &str, count| {
        Panel::pin(set, split, Choice { count, ..Choice::default() }).unwrap()
    };
    // The first start creates the lists, the second reads them.
    for _ in 0..2 {
        let set = open();
        for split in ["train", "valid", "test"] {
            let (made, list) = (memory.tasks(split).unwrap(), set.list(split).unwrap().unwrap());
            assert_eq!(list.len(), made.len());
            for (place, task) in made.iter().enumerate().step_by(7) {
                assert_eq!(list.task(place).unwrap(), *task);
                assert_eq!(list.find(&task.id).unwrap().as_ref(), Some(task));
                assert!(list.places_of(&task.content_digest()).contains(&place));
            }
            for count in [Some(5), None] {
                let pinned = panel(&memory, split, count);
                assert_eq!(panel(&set, split, count), pinned);
                pinned.verify(&set).unwrap();
            }
            let pinned = PinnedSplit::pin(&set, split).unwrap();
            assert_eq!((pinned.hash(), pinned.len()), (&*panel(&memory, split, None).hash, made.len()));
        }
        let train = PinnedSplit::pin(&set, "train").unwrap();
        assert_eq!(
            set.list("train").unwrap().unwrap().find(&set.tasks("test").unwrap()[0].id).unwrap(),
            None
        );
        train.check_disjoint(&panel(&memory, "test", None)).unwrap();
        // A training task under another name, and one with the same name and other content.
        let task = memory.tasks("train").unwrap().swap_remove(3);
        let twin = Task { id: "renamed".into(), ..task.clone() };
        let error = train.check_disjoint(&Panel::of("webshop", "test", vec![twin])).unwrap_err().to_string();
        assert!(error.contains(&format!("`renamed` (which `train` has as `{}`)", task.id)), "{error}");
        let other = Task { digest: "0".repeat(64), ..task };
        let error = train.check_disjoint(&Panel::of("webshop", "test", vec![other])).unwrap_err().to_string();
        assert!(error.contains("share 1 tasks"), "{error}");
    }
    let names = |inside: &std::path::Path, start: &str| -> Vec<std::path::PathBuf> {
        let files = std::fs::read_dir(inside).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(start)).collect()
    };
    let inside = names(folder.path(), "generated-").remove(0);
    let hash = || PinnedSplit::pin(&open(), "train").unwrap().hash().to_owned();
    let (files, before) = (names(&inside, "tasks-train-"), hash());
    assert_eq!((files.len(), names(&inside, "tasks-").len()), (1, 3));
    let whole = std::fs::read(&files[0]).unwrap();
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&files[0], &damaged).unwrap();
    assert_eq!(hash(), before);
    assert_eq!(std::fs::read(&files[0]).unwrap(), whole);
    // A changed product has another digest, and the old index file is not used.
    let catalogue = inside.join("catalogue.bin");
    let first = memory.task(memory.split("train").unwrap()[0] as usize).unwrap();
    let product = memory.judge(&first.id).unwrap().goal().product;
    let title = memory.shop().catalogue().product(product).unwrap().title.clone();
    let mut bytes = std::fs::read(&catalogue).unwrap();
    let at = bytes.windows(title.len()).position(|window| window == title.as_bytes()).unwrap();
    bytes[at] = b'#';
    std::fs::remove_file(&catalogue).unwrap();
    std::fs::write(&catalogue, bytes).unwrap();
    assert_ne!(hash(), before, "the content of a training task has changed");
}

#[test]
fn nouns_of_a_mapped_catalogue_follow_their_side_file() {
    let built = tempfile::tempdir().unwrap();
    let config = GeneratorConfig { seed: 0, products: 20 };
    let open = || WebshopSet::generated_in(built.path(), config, &WebshopOptions::default()).unwrap();
    let set = open();
    let title = set.shop().catalogue().product(3).unwrap().title.clone();
    assert!(
        set.notes()[0].contains("nouns.jsonl") && set.shop().catalogue().product(3).unwrap().nouns.is_none()
    );
    for nouns in [vec!["a", "b", "a"], vec!["c"]] {
        let line = serde_json::json!({"title": title, "nouns": nouns});
        std::fs::write(built.path().join("nouns.jsonl"), line.to_string()).unwrap();
        let set = open();
        assert!(set.notes().is_empty());
        let of = |index| set.shop().catalogue().product(index).unwrap().nouns.clone();
        assert_eq!((of(2), of(3)), (None, Some(nouns.iter().map(|noun| (*noun).to_owned()).collect())));
    }
}
