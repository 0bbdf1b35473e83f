#!/usr/bin/env bash
# Fuzzes the parsers of untrusted bytes, one target after another, and prints the executions and crashes of each.
#
#   tools/fuzz.sh [SECONDS] [TARGET..]
#
# SECONDS is the time of each target (default 15: all targets take about five minutes). Without targets all are run.
# It needs `cargo install cargo-fuzz` and a nightly toolchain. TURNWISE_SANITIZER=address builds with ASan (default: none,
# which runs more inputs a second; a panic is a crash in both). Inputs that reach new code go to fuzz/found/TARGET, which git
# ignores, and inputs that crash to fuzz/artifacts/TARGET. A crash that is fixed becomes a seed in fuzz/corpus/TARGET.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../fuzz"
seconds=${1:-15}
shift || true
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || for file in fuzz_targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
sanitizer=(--sanitizer "${TURNWISE_SANITIZER:-none}")
# The versions of the workspace.
[[ -f Cargo.lock ]] || cp ../Cargo.lock .

cargo +nightly fuzz build --release "${sanitizer[@]}"
total=0 crashed=()
printf '%-20s %14s %10s  %s\n' target executions seconds result
for target in "${targets[@]}"; do
    mkdir -p "found/$target" "corpus/$target"
    started=$SECONDS result=ok
    # 64 KiB is several times the largest seed. Rendering a template may use all its fuel, so an input may take 30 seconds.
    cargo +nightly fuzz run --release "${sanitizer[@]}" "$target" "found/$target" "corpus/$target" -- \
        -max_total_time="$seconds" -max_len=65536 -timeout=30 -rss_limit_mb=4096 -print_final_stats=1 \
        >"found/$target.log" 2>&1 || { result=CRASH crashed+=("$target"); }
    done_=$(sed -n 's/^stat::number_of_executed_units: *//p' "found/$target.log")
    total=$((total + ${done_:-0}))
    printf '%-20s %14s %10s  %s\n' "$target" "${done_:-?}" $((SECONDS - started)) "$result"
done
echo "$total executions"
if [[ ${#crashed[@]} -gt 0 ]]; then
    echo "crashes in: ${crashed[*]}; see fuzz/found/TARGET.log and fuzz/artifacts/TARGET" >&2
    exit 1
fi
