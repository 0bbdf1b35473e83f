//! The committed seeds of the fuzz target for bodies of requests, given to its function.

use std::path::Path;

#[path = "../../../../fuzz/src/requests.rs"]
#[expect(unreachable_pub, reason = "the module is part of the crate of the fuzz targets, too")]
mod requests;

#[test]
fn no_body_of_a_request_makes_a_parser_panic() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in requests::TARGETS {
        let entries: Vec<_> = std::fs::read_dir(corpus.join(name)).unwrap().collect();
        assert!(!entries.is_empty(), "{name} has no seeds");
        for entry in entries {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            let seed = std::fs::read(&path).unwrap();
            for eighth in 0..=8 {
                target(&seed[..seed.len() * eighth / 8]);
            }
        }
    }
}
