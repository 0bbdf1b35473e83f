#!/usr/bin/env bash
# Checks the unsafe code: counts it by crate, runs parts of it in Miri, and runs kernels and worker pools under ASan and TSan.
#
#   tools/sanitize.sh [count] [miri] [address] [thread]      (default: all four)
#
# It needs a nightly toolchain: `rustup toolchain install nightly --component miri --component rust-src`. The builds go to
# target/sanitize and take minutes each. Not checked: CUDA (code of a C++ compiler and of the driver) and the AMX kernels on CPUs
# without AMX.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$(rustc -vV | sed -n 's/^host: //p')
parts=("$@")
[[ ${#parts[@]} -gt 0 ]] || parts=(count miri address thread)
export CARGO_INCREMENTAL=0 CARGO_PROFILE_RELEASE_DEBUG=line-tables-only

# Unsafe blocks, functions, implementations and foreign blocks in the sources of each crate, tests and comments included.
count() {
    for crate in crates/*/ bindings/python/; do
        found=$(grep -rhE '\bunsafe (\{|fn|impl|extern)' "$crate"src --include=*.rs | grep -cvE '^\s*//' || true)
        [[ "$found" == 0 ]] || printf '%-12s %s\n' "$(basename "$crate")" "$found"
    done
}

# Memory maps, and the parts of the kernels that are not vector instructions of one CPU. Miri reads no files through `mmap`.
miri() {
    MIRIFLAGS="-Zmiri-disable-isolation" cargo +nightly miri test --target-dir target/sanitize/miri \
        -p turnwise-model --lib -- ops::real ops::linear ops::norm ops::rope engine::pages --skip exp_is_accurate
}

# Out of bounds and use after free: kernels, sampling engine, learner, files of weights.
address() {
    RUSTFLAGS="-Zsanitizer=address" cargo +nightly test --release --target "$target" --target-dir target/sanitize/address \
        -p turnwise-model --lib -- ops:: engine:: learner:: packing:: files:: hf:: optimizer::
}

# Data races: the pools of the kernels, and of sampling. The standard library is built with TSan, too: without it every
# channel looks like a race.
thread() {
    RUSTFLAGS="-Zsanitizer=thread" cargo +nightly test --release -Zbuild-std --target "$target" \
        --target-dir target/sanitize/thread -p turnwise-model --lib -- ops::linear ops::attention ops::bf16 engine:: learner::
}

for part in "${parts[@]}"; do
    echo "== $part"
    "$part"
done
