#!/usr/bin/env bash
# The quickstart over several seeds: success before and after reinforcement learning, time and peak memory of each.
# Usage: benches/quickstart-seeds.sh [SEED ...]     (default: 0 1 2 3 4)
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --quiet
program=${CARGO_TARGET_DIR:-target}/release/turnwise
runs=$(mktemp -d)
seeds=("$@")
[ ${#seeds[@]} -gt 0 ] || seeds=(0 1 2 3 4)
for seed in "${seeds[@]}"; do
    python3 - "$seed" "$runs" "$program" <<'PY'
import glob, json, resource, subprocess, sys, time
seed, runs, program = sys.argv[1:]
start = time.time()
with open(f"{runs}/seed{seed}.log", "w") as log:
    subprocess.run([program, "quickstart", "--seed", seed, "--runs", runs], check=True, stdout=log, stderr=log)
seconds = time.time() - start
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
found = sorted(glob.glob(f"{runs}/quickstart-seed{seed}/eval/step-*.json"))
before, after = (json.load(open(path))[0]["success"] for path in (found[0], found[-1]))
show = lambda r: f"{100 * r['rate']:5.1f} % [{100 * r['low']:4.1f}, {100 * r['high']:4.1f}]"
gain = 100 * (after["rate"] - before["rate"])
apart = "apart" if after["low"] > before["high"] else "overlap"
print(f"seed {seed}  before {show(before)}  after {show(after)}  gain {gain:+5.1f}  {apart}  "
      f"{seconds:.0f} s  {peak:.0f} MB", flush=True)
PY
done
echo "run directories and logs: $runs"
