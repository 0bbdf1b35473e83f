//! Replays the seeds of the fuzz targets, which include every input that once made a parser panic.

use std::path::Path;

#[path = "../../../../fuzz/src/parsers.rs"]
#[expect(
    clippy::expect_used,
    unreachable_pub,
    reason = "the module is part of the crate of the fuzz targets, too"
)]
mod parsers;
#[path = "../../../../fuzz/src/seeds.rs"]
#[expect(
    clippy::expect_used,
    clippy::print_stdout,
    unreachable_pub,
    reason = "the module is part of the crate of the fuzz targets, too"
)]
mod seeds;

#[test]
fn no_parser_panics_on_a_seed() {
    seeds::replay(parsers::TARGETS, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus"));
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
