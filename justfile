# `just` lists what there is. Everything here is plain cargo; just is a convenience, never needed.

_default:
    @just --list

# What CI runs, but for the slow parts: format, lints, crate boundaries, documentation
check:
    cargo fmt --all --check
    cargo clippy --release --workspace --all-targets -- -D warnings
    cargo test --release -p turnwise-cli --test it crate_boundaries
    RUSTDOCFLAGS="-D warnings" cargo doc --release --workspace --no-deps

# All tests; TURNWISE_DATA names the folder with the original benchmarks' files
test *ARGS:
    cargo test --release --workspace {{ARGS}}

# What can be known of the CUDA build here; it says what could not be run
cuda-check:
    benches/cuda-check.sh

# Licences, sources and banned crates (cargo install --locked cargo-deny)
deny:
    cargo deny check licenses bans sources

# Known vulnerabilities; fetches the advisory database
advisories:
    cargo deny check advisories

# Bills of materials of the program and of the wheel, in dist (cargo install --locked cargo-cyclonedx)
sbom *ARGS:
    tools/sbom.sh {{ARGS}}

# The wheel with the list of its crates inside its library, in dist (pip install maturin; cargo install --locked cargo-auditable)
wheel *ARGS:
    CARGO="$PWD/tools/cargo-auditable.sh" maturin build --release --manifest-path bindings/python/Cargo.toml --out dist {{ARGS}}

# Train a small agent from nothing and show what it learnt
quickstart *ARGS:
    cargo run --release -- quickstart {{ARGS}}

# Write the guide's command reference again from the program's own help
reference:
    TURNWISE_WRITE_DOCS=1 cargo test --release -p turnwise-cli --test it docs

# The guide as pages, in target/guide (cargo install --locked mdbook)
book:
    mdbook build docs

# Benchmarks
bench *ARGS:
    cargo bench --workspace {{ARGS}}

# Exactly what CI runs
ci:
    bash .ci/run
