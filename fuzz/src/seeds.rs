//! Replays the committed seeds on stable Rust. Tests of the crates `cli` and `agent` include this
//! file.

use std::path::Path;

/// Name and parser of a target. The name is that of its file in `fuzz_targets/` and of its folder
/// in `corpus/`.
pub type Target = (&'static str, fn(&[u8]));

/// Runs every target on the seeds in its folder, whole and truncated.
///
/// # Panics
/// Panics if a parser does, or if a target has no seeds.
pub fn replay(targets: &[Target], corpus: &Path) {
    for (name, target) in targets {
        let mut seeds = 0;
        for entry in std::fs::read_dir(corpus.join(name)).unwrap_or_else(|error| panic!("{name}: {error}")) {
            let path = entry.expect("an entry of a folder").path();
            // The output of a failed test ends with the failing seed.
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
