#!/usr/bin/env python3
"""Success of runs by seed, and the differences between methods that follow from it.

    python benches/seed-table.py write docs/results/seeds/household-full.csv runs/evidence-household-full/*-seed-*
    python benches/seed-table.py differences docs/results/seeds/household-full.csv gspo:grpo aem-gspo:gspo

`write` adds one line a run to the table (or replaces it): success in percent of every evaluation (`greedy_STEP`, of the first split;
`sampled_STEP`, the mean over the run's folders `sampled-*`), success of the training rollouts as a mean over each 20 steps
(`rollouts_FIRST_LAST`), and the trajectories made. `differences` prints a method minus its baseline, as the mean of the pairs with one
seed and Student's 95 % interval over them, for every column that both have; a name that is several joined with `+` is the mean of their
differences to their own baselines (`aem-grpo+aem-dapo:grpo+dapo`).
"""

import argparse
import csv
import json
import pathlib
import re
import statistics
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "real"))
from run_files import steps

# Student's 97.5 % quantile by degrees of freedom, from 1 on.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131]
STUDENT += [2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]
SPAN = 20


def success(path):
    """Percent of the first split's tasks that an evaluation solved."""
    return 100 * json.loads(path.read_text())[0]["success"]["rate"]


def of_run(run):
    """The line of a run's directory."""
    method, seed = re.fullmatch(r"(.*)-seed-(\d+)", run.name).groups()
    line = {"method": method, "seed": seed}
    for path in sorted((run / "eval").glob("step-*.json")):
        line[f"greedy_{int(path.stem[5:])}"] = f"{success(path):.4f}"
    draws = {}
    for path in run.glob("sampled-*/step-*.json"):
        draws.setdefault(int(path.stem[5:]), []).append(success(path))
    for step, rates in sorted(draws.items()):
        line[f"sampled_{step}"] = f"{statistics.fmean(rates):.4f}"
    trained = steps(run)
    for first in range(0, len(trained) - SPAN + 1, SPAN):
        rates = [step["train/success_rate"] for step in trained[first : first + SPAN]]
        line[f"rollouts_{first + 1}_{first + SPAN}"] = f"{100 * statistics.fmean(rates):.4f}"
    line["trajectories"] = str(round(sum(step["rollout/trajectories"] for step in trained)))
    return line


def read(table):
    """The lines of a table by method and seed."""
    if not table.exists():
        return {}
    with table.open() as file:
        return {(line["method"], line["seed"]): line for line in csv.DictReader(file)}


def in_order(column):
    """Sorting key of a column: names first, then by kind and step."""
    kinds = ["method", "seed", "greedy", "sampled", "rollouts", "trajectories"]
    kind, *numbers = column.split("_")
    return kinds.index(kind), [int(number) for number in numbers]


def write(table, runs):
    lines = read(table)
    for run in runs:
        line = of_run(run)
        lines[line["method"], line["seed"]] = line
    columns = sorted({column for line in lines.values() for column in line}, key=in_order)
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines[key] for key in sorted(lines))


def paired(lines, method, baseline, column):
    """The differences by seed of two methods."""
    of = {name: {} for name in (method, baseline)}
    for (name, seed), line in lines.items():
        if name in of and line.get(column):
            of[name][seed] = float(line[column])
    return {seed: of[method][seed] - of[baseline][seed] for seed in of[method] if seed in of[baseline]}


def differences(table, pairs):
    lines = read(table)
    columns = next(iter(lines.values())).keys() - {"method", "seed", "trajectories"}
    for pair in pairs:
        methods, baselines = (side.split("+") for side in pair.split(":"))
        for name in methods + baselines:
            if all(name != known for known, _ in lines):
                sys.exit(f"{pair}: {table} has no line of {name}")
        cells = []
        for column in sorted(columns, key=in_order):
            each = [paired(lines, one, two, column) for one, two in zip(methods, baselines, strict=True)]
            seeds = set.intersection(*(set(one) for one in each))
            found = [statistics.fmean(one[seed] for one in each) for seed in sorted(seeds)]
            if len(found) < 2:
                continue
            if len(found) - 1 > len(STUDENT):
                sys.exit(f"{pair}: {len(found)} seeds, and the quantiles go up to {len(STUDENT) + 1}")
            mean = statistics.fmean(found)
            half = STUDENT[len(found) - 2] * statistics.stdev(found) / len(found) ** 0.5
            cells.append(f"{column} {mean:+.1f} [{mean - half:.1f}, {mean + half:.1f}]")
        print(f"{pair}: {'; '.join(cells)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["write", "differences"])
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("rest", nargs="+", metavar="RUN|METHOD:BASELINE")
    arguments = parser.parse_args()
    if arguments.what == "write":
        write(arguments.table, [pathlib.Path(run) for run in arguments.rest])
    else:
        differences(arguments.table, arguments.rest)


if __name__ == "__main__":
    main()
