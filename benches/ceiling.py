#!/usr/bin/env python3
"""The ceiling of credit: final success, area under the curve and rollouts of a sweep's methods.

    python3 benches/ceiling.py runs/evidence-ceiling-sokoban [more sweeps] [--baseline grpo]

For every method: success on the panel at the end, the area under the curve of the evaluations (its mean over the steps, by the
trapezoid rule, in percent), and the paired difference to the baseline on the seeds that both have, each with Student's 95 %
interval over seeds. Then what a run sampled: trajectories that are trained on, continuations (from states in the middle of an
episode) and response tokens of both, and the seconds of sampling and of continuations. Only finished runs count.
"""

import argparse
import json
import math
import pathlib
import re

# Student's t, 97.5 %, by degrees of freedom.
T = [math.nan, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]


def interval(values):
    n = len(values)
    mean = sum(values) / n
    if n < 2 or n > len(T):
        return f"{mean:.1f}"
    half = T[n - 1] * math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)
    return f"{mean:.1f} [{mean - half:.1f}, {mean + half:.1f}]"


def read(run):
    """Success by step, and what was sampled; None of a run that is not finished."""
    status = json.loads((run / "status.json").read_text())
    if "finished" not in json.dumps(status).lower():
        return None
    curve = []
    for file in sorted((run / "eval").glob("step-*.json")):
        rates = [entry["success"]["rate"] for entry in json.loads(file.read_text())]
        curve.append((int(file.stem.split("-")[1]), 100 * sum(rates) / len(rates)))
    area = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in zip(curve, curve[1:])) / (curve[-1][0] - curve[0][0])
    sums = dict.fromkeys(("trajectories", "continuations", "tokens", "more_tokens", "seconds", "more_seconds"), 0.0)
    for line in (run / "metrics.jsonl").read_text().splitlines():
        line = json.loads(line)
        if line["phase"] != "rl":
            continue
        trajectories = line.get("rollout/trajectories", 0)
        sums["trajectories"] += trajectories
        sums["tokens"] += trajectories * line.get("rollout/tokens/mean", 0)
        sums["continuations"] += line.get("continuations/sampled", 0)
        sums["more_tokens"] += line.get("continuations/tokens", 0)
        more = line.get("perf/continuations_s", 0)
        sums["seconds"] += line.get("perf/rollout_s", 0) - more
        sums["more_seconds"] += more
    return {"start": curve[0][1], "final": curve[-1][1], "area": area, **sums}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sweeps", nargs="+", type=pathlib.Path)
    parser.add_argument("--baseline", default="grpo")
    args = parser.parse_args()
    print("| sweep | method | seeds | start | final | area | final - baseline | area - baseline | trajectories | continuations | tokens of each | seconds of each |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for sweep in args.sweeps:
        methods = {}
        for run in sorted(sweep.glob("*-seed-*")):
            name, seed = re.fullmatch(r"(.*)-seed-(\d+)", run.name).groups()
            if (run / "status.json").is_file() and (found := read(run)):
                methods.setdefault(name, {})[int(seed)] = found
        base = methods.get(args.baseline, {})
        for name, runs in sorted(methods.items(), key=lambda item: item[0] != args.baseline):
            column = lambda key: [run[key] for run in runs.values()]
            shared = sorted(set(runs) & set(base))
            cells = [sweep.name.removeprefix("evidence-ceiling-"), name, str(len(runs)), f"{sum(column('start')) / len(runs):.1f}"]
            cells += [interval(column("final")), interval(column("area"))]
            for key in ("final", "area"):
                cells.append("" if name == args.baseline or not shared else interval([runs[s][key] - base[s][key] for s in shared]))
            mean = lambda key: sum(column(key)) / len(runs)
            cells += [f"{mean('trajectories'):,.0f}", f"{mean('continuations'):,.0f}"]
            cells.append(f"{mean('tokens') / 1000:,.0f}k + {mean('more_tokens') / 1000:,.0f}k")
            cells.append(f"{mean('seconds'):.0f} + {mean('more_seconds'):.0f}")
            print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
