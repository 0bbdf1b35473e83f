//! Replays the committed seeds on stable Rust. The tests of the crates `cli` and `agent` include this file.

use std::path::Path;

/// A parser and the name of its target, which is that of its file in `fuzz_targets/` and of its folder in `corpus/`.
pub type Target = (&'static str, fn(&[u8]));

/// Gives every target its seeds in a folder, whole and cut short.
///
/// # Panics
/// Panics if a parser does, or if a target has no seeds.
pub fn replay(targets: &[Target], corpus: &Path) {
    for (name, target) in targets {
        let mut seeds = 0;
        for entry in std::fs::read_dir(corpus.join(name)).unwrap_or_else(|error| panic!("{name}: {error}")) {
            let path = entry.expect("an entry of a folder").path();
            // The output of a failed test ends with the seed that failed it.
            println!("{}", path.display());
            let seed = std::fs::read(&path).expect("a seed");
            for eighth in 0..=8 {
                target(&seed[..seed.len() * eighth / 8]);
            }
            seeds += 1;
        }
        assert!(seeds > 0, "{name} has no seeds");
    }
}
