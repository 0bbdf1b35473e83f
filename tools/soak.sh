#!/usr/bin/env bash
# Trains a small run for hours and records its memory, open files and folder size.
#
#   tools/soak.sh PROGRAM [HOURS] [FOLDER]
#
# PROGRAM is a built `turnwise`; HOURS may be a fraction (default 10). Every minute a line goes to FOLDER/record.tsv: seconds,
# resident memory in KiB, descriptors, threads, the run folder in KiB, steps of the run. At the end it prints the slope of each
# by least squares within the run (its first tenth left out), so that a leak shows. TURNWISE_SOAK_EVERY sets another interval in
# seconds. TURNWISE_SOAK_PERCENT (default 100) lets the run go on for that share of each second only and stops it (SIGSTOP) for
# the rest, on a machine that has other work. One run lasts the whole time, because a leak in a process needs a long process;
# SIGINT ends it.
set -euo pipefail
program=$(realpath "$1") hours=${2:-10} folder=${3:-runs/soak}
every=${TURNWISE_SOAK_EVERY:-60} percent=${TURNWISE_SOAK_PERCENT:-100}
tiny=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../crates/train/tests/tiny.toml")
mkdir -p "$folder" && cd "$folder"
rm -rf runs record.tsv
"$program" train --preset quickstart "$tiny" name=soak sft.steps=30 train.steps=100000000 train.checkpoint_every=20 eval.every=50 \
    >output.txt 2>&1 &
run=$!
trap 'kill -INT "$run" 2>/dev/null; kill -CONT "$run" 2>/dev/null || true' EXIT
if ((percent < 100)); then
    on=$(printf '0.%02d' "$percent") off=$(printf '0.%02d' $((100 - percent)))
    # It ends with the run.
    while kill -CONT "$run" 2>/dev/null && sleep "$on" && kill -STOP "$run" 2>/dev/null && sleep "$off"; do :; done &
fi
end=$(awk -v hours="$hours" -v now="$SECONDS" 'BEGIN { print int(now + hours * 3600) }')
printf 'seconds\trss_kib\tdescriptors\tthreads\tfolder_kib\tsteps\n' >record.tsv
while kill -0 "$run" 2>/dev/null && ((SECONDS < end)); do
    sleep "$every"
    [[ -r /proc/$run/status ]] || break
    printf '%d\t%d\t%d\t%d\t%d\t%d\n' "$SECONDS" \
        "$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$run/status")" "$(find "/proc/$run/fd" -mindepth 1 | wc -l)" \
        "$(sed -n 's/^Threads:[^0-9]*//p' "/proc/$run/status")" "$(du -sk runs 2>/dev/null | cut -f1)" \
        "$(wc -l <runs/soak/metrics.jsonl)" >>record.tsv
done
if ! kill -0 "$run" 2>/dev/null; then
    echo "failed: the run ended by itself; see $folder/output.txt" >&2
    tail -n 5 output.txt >&2
    exit 1
fi
awk -F '\t' '
    NR == 1 { for (i = 2; i <= NF; i++) name[i] = $i; next }
    { rows++; for (i = 1; i <= NF; i++) value[rows, i] = $i }
    END {
        first = int(rows / 10) + 1
        if (rows - first < 2) { print "too few lines for a slope: " rows; exit }
        printf "%d lines over %.2f hours, %d steps\n", rows, value[rows, 1] / 3600, value[rows, 6]
        for (i = 2; i <= 6; i++) {
            n = sx = sy = sxx = sxy = 0
            for (row = first; row <= rows; row++) {
                x = value[row, 1] / 3600; y = value[row, i]
                n++; sx += x; sy += y; sxx += x * x; sxy += x * y
            }
            slope = (n * sxy - sx * sy) / (n * sxx - sx * sx)
            printf "%-12s from %d to %d, slope %.1f an hour\n", name[i], value[first, i], value[rows, i], slope
        }
    }' record.tsv
