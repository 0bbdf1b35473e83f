#!/usr/bin/env bash
# What a method's own work costs in an iteration: credit assignment of every preset as a share of the whole, on the household and in
# the shop, and STAPO's extra passes over masked prompts. A policy is warm-started once a world and then frozen (learning rate 0), so
# that all methods see the same trajectories and only their own work differs. `has-judge` waits for a judge and is left out.
#
#   benches/method-cost.sh [FOLDER]       needs a quiet machine; TURNWISE names another program
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
runs="${1:-runs/method-cost}"
turnwise="${TURNWISE:-}"
if [[ -z "$turnwise" ]]; then
    cargo build --release -p turnwise-cli
    turnwise=target/release/turnwise
fi
mkdir -p "$runs"
declare -A configs=([household]=configs/quickstart.toml [shop]=configs/webshop/small.toml)
for world in household shop; do
    warm="$runs/$world-warm"
    # One that was cut off is made again.
    grep -q '"state": *"finished"' "$warm/status.json" 2>/dev/null && continue
    rm -rf "${warm:?}"
    "$turnwise" train "${configs[$world]}" "name=$world-warm" train.steps=0 --runs "$runs" >"$warm.log" 2>&1
done
run() {
    local world="$1" name="$1-$2" preset="$3"
    shift 3
    rm -rf "${runs:?}/$name"
    "$turnwise" train --preset "$preset" "${configs[$world]}" "name=$name" sft.steps=0 "policy.model=$runs/$world-warm" \
        train.learning_rate=0 eval.tasks=8 --runs "$runs" "$@" >"$runs/$name.log" 2>&1
    grep -q "^preset = \"$preset\"$" "$runs/$name/config.toml"
}
presets=$("$turnwise" config presets | grep -vx -e quickstart -e has-judge)
for world in household shop; do
    for preset in $presets; do run "$world" "$preset" "$preset" train.steps=5; done
done
for round in 1 2 3; do
    run household "plain-$round" gigpo train.steps=12 objective.kl.coef=0.01
    run household "stapo-$round" stapo train.steps=12
done
python3 - "$runs" $presets <<'PYTHON'
import pathlib, statistics, sys

sys.path.append("benches/real")
from run_files import steps

runs, presets = pathlib.Path(sys.argv[1]), sys.argv[2:]
PARTS = ("credit_s", "credit_inputs_s", "decomposer_s")


def lines(name):
    # The first step warms caches up.
    return steps(runs / name)[1:]


def total(measured, tag="step_s"):
    return sum(line.get(f"perf/{tag}", 0.0) for line in measured)


print("share of an iteration, %: credit, its inputs (values of a critic, hidden states of TurnRD), training of a decomposer")
for world in ("household", "shop"):
    for preset in presets:
        found = lines(f"{world}-{preset}")
        shares = "  ".join(f"{100 * total(found, part) / total(found):6.3f}" for part in PARTS)
        print(f"{world:<9}  {preset:<15}  {statistics.median(map(lambda line: line['perf/step_s'], found)):6.2f} s  {shares}")
plain = [total(lines(f"household-plain-{round}")) for round in (1, 2, 3)]
stapo = [total(lines(f"household-stapo-{round}")) for round in (1, 2, 3)]
print(f"STAPO's passes: {100 * (min(stapo) / min(plain) - 1):+.1f} % of an iteration (best of three runs each)")
outliers = [line for round in (1, 2, 3) for line in lines(f"household-stapo-{round}")]
print("outliers:", {key: round(statistics.mean(line[key] for line in outliers), 4) for key in outliers[0] if "outlier" in key})
PYTHON
