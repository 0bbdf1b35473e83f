#!/usr/bin/env bash
# The TurnRD study: HAS with TurnRD against GRPO at equal budget from one warm start, five seeds, on the generated
# household world with reward at the end only. Prints final success with 95 % intervals, then for every HAS run how
# well each round's network knew the trajectories it had not seen.
#
#   benches/turnrd-study.sh [FOLDER]      needs about 25 minutes on two cores; TURNWISE names another program
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
runs="${1:-runs/turnrd-study}"
turnwise="${TURNWISE:-}"
if [[ -z "$turnwise" ]]; then
    cargo build --release -p turnwise-cli
    turnwise=target/release/turnwise
fi
mkdir -p "$runs"
# A run that was cut off is made again: its last evaluation is of a step in between.
finished() { grep -q '"state": *"finished"' "$1/status.json" 2>/dev/null; }
finished "$runs/warm" || rm -rf "${runs:?}/warm"
[[ -d "$runs/warm" ]] || "$turnwise" train preset=quickstart name=warm train.steps=0 --runs "$runs" >"$runs/warm.log" 2>&1
for seed in ${SEEDS:-0 1 2 3 4}; do
    for method in grpo has-turnrd; do
        name="$method-$seed"
        finished "$runs/$name" && continue
        rm -rf "${runs:?}/$name"
        # Checkpoints hold the same policy for all; only the draws of reinforcement learning differ.
        "$turnwise" train "configs/studies/$method.toml" "name=$name" "seed=$seed" \
            "policy.model=$runs/warm" --runs "$runs" >"$runs/$name.log" 2>&1
    done
done
python3 - "$runs" <<'PYTHON'
import json, pathlib, sys

runs = pathlib.Path(sys.argv[1])
last = {}
for method in ("grpo", "has-turnrd"):
    for run in sorted(runs.glob(f"{method}-[0-9]*")):
        if not run.is_dir():
            continue
        found = sorted(run.glob("eval/step-*.json"))
        first, end = (json.loads(path.read_text())[0]["success"] for path in (found[0], found[-1]))
        seed = int(run.name.rsplit("-", 1)[1])
        last.setdefault(method, {})[seed] = end["rate"]
        print(
            f"{method:<11} seed {seed}: {100 * first['rate']:.1f} -> {100 * end['rate']:.1f} % "
            f"[{100 * end['low']:.1f}, {100 * end['high']:.1f}] of {end['trials']}"
        )
for method, rates in last.items():
    print(f"{method:<11} mean {100 * sum(rates.values()) / len(rates):.1f} % over {len(rates)} seeds")
both = [seed for seed in last.get("grpo", {}) if seed in last.get("has-turnrd", {})]
differences = [100 * (last["has-turnrd"][seed] - last["grpo"][seed]) for seed in both]
if len(differences) > 1:
    mean = sum(differences) / len(differences)
    spread = (sum((x - mean) ** 2 for x in differences) / (len(differences) - 1)) ** 0.5
    # Student's t, two-sided 95 %, for 2 to 10 pairs; the last for more, which is a little wide.
    t = [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262][min(len(differences), 10) - 2]
    half = t * spread / len(differences) ** 0.5
    print(f"difference by seed: {mean:+.1f} points [{mean - half:+.1f}, {mean + half:+.1f}]")
PYTHON
for run in "$runs"/has-turnrd-*/; do
    echo "$run"
    "$turnwise" analyze turnrd "$run" -o "${run}analysis.json"
done
