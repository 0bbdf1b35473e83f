#!/bin/sh
# A cargo that keeps the list of all crates in what it builds, for programs that take a cargo of another name (`CARGO` of
# maturin): `cargo-auditable rustc` itself would be taken for a compiler.
exec cargo auditable "$@"
