//! The committed seeds of `fuzz/`, given to the functions of the fuzz targets. An input that once made a parser panic is
//! among them.

use std::path::Path;

#[path = "../../../../fuzz/src/parsers.rs"]
#[expect(
    clippy::expect_used,
    unreachable_pub,
    reason = "the module is part of the crate of the fuzz targets, too"
)]
mod parsers;

#[test]
fn no_parser_panics_on_a_seed() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in parsers::TARGETS {
        let mut seeds = 0;
        for entry in std::fs::read_dir(corpus.join(name)).unwrap_or_else(|error| panic!("{name}: {error}")) {
            let path = entry.unwrap().path();
            // The output of a failed test ends with the seed that failed it.
            println!("{}", path.display());
            let seed = std::fs::read(&path).unwrap();
            target(&seed);
            // A file that was cut short.
            for eighth in 0..8 {
                target(&seed[..seed.len() * eighth / 8]);
            }
            seeds += 1;
        }
        assert!(seeds > 0, "{name} has no seeds");
    }
    std::fs::remove_dir_all(parsers::folder()).unwrap();
}

#[test]
fn every_target_has_its_program() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for (name, _) in parsers::TARGETS {
        assert!(fuzz.join(format!("fuzz_targets/{name}.rs")).is_file(), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{name}");
    }
}
