#!/usr/bin/env python3
"""Metrics of runs over their steps, one line a method: the mean over its seeds of a number of each run.

    python benches/metric-summary.py runs/evidence-sorl-search/*-seed-* --metrics \\
        train/success_rate:mean:21-30 loss/grad_norm:max loss/clip_frac:mean rollout/entropy:last

A metric is TAG:HOW[:FIRST-LAST] with HOW one of mean, median, min, max, first and last, over the steps of reinforcement learning
from FIRST to LAST or all. Runs whose names differ in `-seed-N` alone are seeds of one method. `--each` prints every seed's number.
"""

import argparse
import math
import pathlib
import re
import statistics
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "real"))
from run_files import steps

HOW = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
    "first": lambda numbers: numbers[0],
    "last": lambda numbers: numbers[-1],
}


def parsed(text):
    """(tag, how, first step, last step) of a metric as the command line has it."""
    tag, how, *span = text.split(":")
    if how not in HOW:
        sys.exit(f"{text}: {how} is none of {', '.join(HOW)}")
    first, last = (int(number) for number in span[0].split("-")) if span else (1, None)
    return tag, how, first, last


def number(lines, metric):
    """A metric of one run, or None where the run does not have it."""
    tag, how, first, last = metric
    of_steps = [line for line in lines if first <= line["step"] and (last is None or line["step"] <= last)]
    # A number that is not finite is null in the file, and so is what is made of it: a run that diverged must not look as if it had not.
    found = [math.nan if line[tag] is None else line[tag] for line in of_steps if tag in line]
    if not found:
        return None
    return math.nan if any(math.isnan(value) for value in found) else HOW[how](found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--metrics", nargs="+", required=True, metavar="TAG:HOW[:FIRST-LAST]")
    parser.add_argument("--each", action="store_true", help="every seed's number instead of their mean")
    arguments = parser.parse_args()
    metrics = [parsed(text) for text in arguments.metrics]
    methods = {}
    for run in arguments.runs:
        method = re.sub(r"-seed-\d+$", "", pathlib.Path(run).name)
        methods.setdefault(method, []).append(steps(pathlib.Path(run)))
    print("| method | seeds | " + " | ".join(arguments.metrics) + " |")
    print("|---" * (2 + len(metrics)) + "|")
    for method, runs in methods.items():
        cells = []
        for metric in metrics:
            found = [value for lines in runs if (value := number(lines, metric)) is not None]
            shown = found if arguments.each else [statistics.fmean(found)] if found else []
            of = "" if len(found) in (0, len(runs)) else f" ({len(found)} of {len(runs)})"
            cells.append(", ".join(f"{value:.3g}" for value in shown) + of)
        print(f"| {method} | {len(runs)} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
