#!/usr/bin/env python3
"""Survival of runs: the share of a method's seeds that have not collapsed, by step.

    python benches/survival.py runs/evidence-sorl-mechanism/*-seed-* --start 0.266

A run has collapsed at the first step at which the mean success of the last `--window` steps of rollouts is below half of `--start`, the
success of its warm start. Runs whose names differ in `-seed-N` alone are seeds of one method. Prints the share that survived each fifth
of the steps, the step at which each seed collapsed (`-`: never), and how often and when the norm of the clipping bias was above delta.
"""

import argparse
import pathlib
import re
import statistics
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "real"))
from run_files import steps

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("runs", nargs="+", type=pathlib.Path)
parser.add_argument("--start", type=float, required=True, help="success of the warm start, from 0 to 1")
parser.add_argument("--window", type=int, default=10)
parser.add_argument("--delta", type=float, default=1.0)


def collapsed(success: list[float], start: float, window: int) -> int | None:
    """Returns the first step, from 1, at which the window's mean is below half of the start."""
    ends = range(window, len(success) + 1)
    return next((end for end in ends if statistics.fmean(success[end - window : end]) < start / 2), None)


def main() -> None:
    options = parser.parse_args()
    methods: dict[str, list[pathlib.Path]] = {}
    for run in options.runs:
        methods.setdefault(re.sub(r"-seed-\d+$", "", run.name), []).append(run)
    for method, runs in methods.items():
        lines = [steps(run) for run in runs]
        last = min(map(len, lines))
        ends = [collapsed([line["train/success_rate"] for line in one], options.start, options.window) for one in lines]
        marks = [round(last * part / 5) for part in range(1, 6)]
        alive = [sum(end is None or end > mark for end in ends) for mark in marks]
        print(f"{method}: {len(runs)} seeds, {last} steps")
        print("  survived " + ", ".join(f"step {mark}: {count}/{len(runs)}" for mark, count in zip(marks, alive)))
        print("  collapsed at step " + ", ".join("-" if end is None else str(end) for end in ends))
        half = last // 2
        norms = [[line["normalization/bias_norm"] for line in one[:last]] for one in lines]
        above = lambda part: 100 * statistics.fmean(norm > options.delta for one in norms for norm in part(one))
        factors = [line["normalization/factor"] for one in lines for line in one[:last] if line["normalization/bias_norm"] > options.delta]
        print(
            f"  bias above {options.delta}: {above(lambda one: one[:half]):.1f} % of the first half's steps,"
            f" {above(lambda one: one[half:]):.1f} % of the second's, in {sum(max(one) > options.delta for one in norms)} runs;"
            f" largest {', '.join(f'{max(one):.2f}' for one in norms)}"
        )
        if factors:
            print(f"  mean factor of these steps {statistics.fmean(factors):.2f}")


if __name__ == "__main__":
    main()
