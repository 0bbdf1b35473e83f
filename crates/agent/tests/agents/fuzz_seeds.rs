//! Replays the seeds of the fuzz target for request bodies.

use std::path::Path;

#[path = "../../../../fuzz/src/requests.rs"]
#[expect(unreachable_pub, reason = "the module is part of the crate of the fuzz targets, too")]
mod requests;
#[path = "../../../../fuzz/src/seeds.rs"]
#[expect(
    clippy::expect_used,
    unreachable_pub,
    reason = "the module is part of the crate of the fuzz targets, too"
)]
mod seeds;

#[test]
fn no_body_of_a_request_makes_a_parser_panic() {
    seeds::replay(requests::TARGETS, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus"));
}
