#!/usr/bin/env python3
"""The ceiling of credit: final success, area under the curve and rollouts of a sweep's methods.

    python3 benches/ceiling.py runs/evidence-ceiling-sokoban [more sweeps] [--baseline grpo]
    python3 benches/ceiling.py runs/evidence-ceiling-sokoban --predicted gradient.md [--by ascent]

For each method: success on the panel at the end, the area under the curve of the evaluations (its mean over the steps, by the
trapezoid rule, in percent), and the paired difference to the baseline on the seeds that both have, each with Student's 95 %
interval over seeds. Then what a run sampled: trajectories that are trained on, continuations (from states in the middle of an
episode) and response tokens of both, and the seconds of sampling and of continuations. Only finished runs count.

With --predicted, a file of `turnwise benchmark gradient --all --markdown` on the policy that the runs start from, each method's
area less the baseline's stands beside the predicted number, and their rank correlation below. `monte-carlo` is predicted by `a-star`.
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


def predictions(file, column):
    """Returns the numbers of a column of the first table by method."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in file.read_text().splitlines() if line.startswith("|")]
    index = rows[0].index(column)
    end = next((number for number, row in enumerate(rows) if row[0].startswith("less ")), len(rows))
    found = {row[0]: row[index].split(" ")[0] for row in rows[2:end]}
    return {name: float(value) for name, value in found.items() if value not in ("-", "")}


def ranks(values):
    """Returns ranks from 1; equal values share the mean of theirs."""
    return [1 + sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2 for value in values]


def correlation(first, second):
    mean_first, mean_second = sum(first) / len(first), sum(second) / len(second)
    product = sum((a - mean_first) * (b - mean_second) for a, b in zip(first, second))
    squares = sum((a - mean_first) ** 2 for a in first) * sum((b - mean_second) ** 2 for b in second)
    return product / math.sqrt(squares) if squares > 0 else math.nan


def compare_with_predictions(methods, base, predicted, column):
    """Prints predicted numbers beside the areas that were found."""
    rows = []
    for name, runs in methods.items():
        shared = sorted(set(runs) & set(base))
        value = predicted.get("a-star" if name == "monte-carlo" else name)
        if value is not None and shared:
            rows.append((value, name, [runs[seed]["area"] - base[seed]["area"] for seed in shared]))
    rows.sort(reverse=True)
    print(f"\n| method | {column} | area - baseline |\n|---|---|---|")
    for value, name, found in rows:
        print(f"| {name} | {value:.3f} | {interval(found)} |")
    values, means = [row[0] for row in rows], [sum(row[2]) / len(row[2]) for row in rows]
    print(f"\nRank correlation over {len(rows)} methods: {correlation(ranks(values), ranks(means)):.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sweeps", nargs="+", type=pathlib.Path)
    parser.add_argument("--baseline", default="grpo")
    parser.add_argument("--predicted", type=pathlib.Path)
    parser.add_argument("--by", default="ascent", choices=["ascent", "cosine", "corrected", "signal"])
    args = parser.parse_args()
    if args.predicted and len(args.sweeps) != 1:
        parser.error("--predicted is of one sweep")
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
        if args.predicted:
            compare_with_predictions(methods, base, predictions(args.predicted, args.by), args.by)


if __name__ == "__main__":
    main()
