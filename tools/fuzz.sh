#!/usr/bin/env bash
# Fuzzes the parsers of untrusted bytes, one target after another, and records the executions and crashes of each.
#
#   tools/fuzz.sh [SECONDS] [TARGET..]     one round; SECONDS is the time of each target (default 15: five minutes in all)
#   tools/fuzz.sh table                    what all rounds have done, by target
#   tools/fuzz.sh minimize                 adds to fuzz/corpus the inputs that were found and reach the most new code
#
# Without targets all are run. It needs a nightly toolchain. Inputs that reach new code go to FOUND/TARGET, a line of each round to
# FOUND/record.tsv, and inputs that crash to FOUND/crashes. A crash that is fixed becomes a seed in fuzz/corpus/TARGET.
#
# TURNWISE_SANITIZER=none         builds without AddressSanitizer (default: address); a panic is a crash in both
# TURNWISE_FUZZ_FOUND=FOLDER      FOUND (default: fuzz/found, which git ignores)
# TURNWISE_FUZZ_PROGRAMS=FOLDER   runs the programs in this folder and builds none
# TURNWISE_FUZZ_RUNS=N            ends a target after so many executions, if they come before SECONDS
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../fuzz"
found=${TURNWISE_FUZZ_FOUND:-$PWD/found} sanitizer=${TURNWISE_SANITIZER:-address}
mkdir -p "$found/crashes"
record=$found/record.tsv
[[ -f $record ]] || printf 'target\tseconds\texecutions\tcoverage\tcorpus\tbuild\tresult\n' >"$record"

table() {
    awk -F '\t' '
        NR == 1 { next }
        { runs[$1] += $3; time[$1] += $2; if ($4 > cov[$1]) cov[$1] = $4; corpus[$1] = $5; bad[$1] += $7 != "ok" }
        END {
            print "| target | executions | seconds | a second | edges covered | corpus | crashes |\n|---|---|---|---|---|---|---|"
            sort = "sort -t \"|\" -k3,3nr"
            for (name in runs) {
                printf "| `%s` | %d | %d | %d | %d | %d | %d |\n", name, runs[name], time[name], \
                    runs[name] / (time[name] ? time[name] : 1), cov[name], corpus[name], bad[name] | sort
                all += runs[name]; seconds += time[name]; crashes += bad[name]
            }
            close(sort)
            printf "| all | %d | %d | %d | | | %d |\n", all, seconds, all / (seconds ? seconds : 1), crashes
        }' "$record"
}

if [[ ${1:-} == table ]]; then
    table
    exit
fi

if [[ -n "${TURNWISE_FUZZ_PROGRAMS:-}" ]]; then
    programs=$TURNWISE_FUZZ_PROGRAMS
else
    # The versions of the workspace.
    [[ -f Cargo.lock ]] || cp ../Cargo.lock .
    host=$(rustc -vV | sed -n 's/^host: //p')
    # The flags of `cargo fuzz build --release --debug-assertions`. With --target, build scripts are built without them.
    flags="--cfg fuzzing -Cdebug-assertions -Ccodegen-units=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
    for part in inline-8bit-counters pc-table trace-compares stack-depth; do
        flags+=" -Cllvm-args=-sanitizer-coverage-$part"
    done
    [[ $sanitizer == none ]] || flags+=" -Zsanitizer=$sanitizer"
    RUSTFLAGS=$flags cargo +nightly build --release --bins --target "$host"
    programs=${CARGO_TARGET_DIR:-target}/$host/release
fi
# Leaks are no errors: parsers keep tables that are made once.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}
# 64 KiB is several times the largest seed. Rendering a template may use all its fuel, so an input may take 30 seconds.
options=(-max_len=65536 -timeout=30 -rss_limit_mb=4096)

if [[ ${1:-} == minimize ]]; then
    for file in fuzz_targets/*.rs; do
        target=$(basename "$file" .rs)
        [[ -d $found/$target ]] || continue
        # Of the fewest short inputs that reach the same code, those that add most: libFuzzer finds them first, and in the
        # repository they are few. Seeds that a person named stay.
        rm -rf "$found/minimal" && mkdir "$found/minimal"
        "$programs/$target" "${options[@]}" -max_len="${TURNWISE_FUZZ_LONGEST:-160}" -use_counters=0 -set_cover_merge=1 \
            "$found/minimal" "corpus/$target" "$found/$target" >"$found/$target.merge.log" 2>&1
        find "corpus/$target" -regextype posix-extended -regex '.*/[0-9a-f]{40}' -delete
        find "$found/minimal" -type f -printf '%T@ %p\n' | sort -n | sed -n "1,${TURNWISE_FUZZ_SEEDS:-12}p" | cut -d ' ' -f 2 >"$found/chosen"
        while read -r input; do
            [[ -n $(find "corpus/$target" -type f -size "$(stat -c %s "$input")c" -exec cmp -s "$input" {} \; -print -quit) ]] \
                || cp "$input" "corpus/$target/"
        done <"$found/chosen"
        printf '%-20s %5d seeds, %7d bytes\n' "$target" "$(find "corpus/$target" -type f | wc -l)" \
            "$(find "corpus/$target" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum + 0 }')"
    done
    rm -rf "$found/minimal"
    exit
fi

seconds=${1:-15}
shift || true
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || for file in fuzz_targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
total=0 crashed=()
printf '%-20s %14s %10s  %s\n' target executions seconds result
for target in "${targets[@]}"; do
    mkdir -p "$found/$target" "corpus/$target"
    started=$SECONDS result=ok log=$found/$target.log
    "$programs/$target" "${options[@]}" -max_total_time="$seconds" -runs="${TURNWISE_FUZZ_RUNS:--1}" -print_final_stats=1 \
        -artifact_prefix="$found/crashes/$target-" "$found/$target" "corpus/$target" >"$log" 2>&1 \
        || { result=CRASH crashed+=("$target"); }
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    corpus=$(sed -n 's/.* corp: \([0-9]*\)\/.*/\1/p' "$log" | tail -n 1)
    total=$((total + ${executions:-0}))
    printf '%s\t%d\t%d\t%d\t%d\t%s\t%s\n' "$target" $((SECONDS - started)) "${executions:-0}" "${coverage:-0}" "${corpus:-0}" \
        "$sanitizer" "$result" >>"$record"
    printf '%-20s %14s %10s  %s\n' "$target" "${executions:-?}" $((SECONDS - started)) "$result"
done
echo "$total executions"
if [[ ${#crashed[@]} -gt 0 ]]; then
    echo "crashes in: ${crashed[*]}; see $found/TARGET.log and $found/crashes" >&2
    exit 1
fi
