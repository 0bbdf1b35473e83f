#!/usr/bin/env python3
"""Does bf16 leave the quickstart's learning curve as it is? Runs it in both numbers over several seeds.

    benches/compute-curve.py [KEY=VALUE ...] [--seeds 0 1 2] [--runs FOLDER]

Prints success on the unseen panel before and after reinforcement learning and the time of every run, then the two
curves of training success in windows of ten steps: mean over seeds, spread over seeds (standard deviation), and how far
the means are apart in standard errors of their difference. `KEY=VALUE` changes the quickstart for both. Runs that
are in the folder already are read, not run again; one that was interrupted there is removed and begins anew.
"""

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NUMBERS = ("f32", "bf16")
WINDOW = 10


def quickstart(program, folder, seed, overrides):
    """Runs one quickstart, where it is not done yet, and returns its folder and seconds.

    What an interrupted one left is removed: the program would take another name beside it.
    """
    run = folder / f"quickstart-seed{seed}"
    seconds = folder / f"seed{seed}.seconds"
    if not seconds.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if run.exists():
            shutil.rmtree(run)
        start = time.time()
        with open(folder / f"seed{seed}.log", "w") as log:
            command = [program, "quickstart", "--seed", str(seed), "--runs", folder, *overrides]
            done = subprocess.run(command, stdout=log, stderr=log, cwd=ROOT)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}; see {log.name}")
        seconds.write_text(f"{time.time() - start:.1f}\n")
    return run, float(seconds.read_text())


def read(run):
    """Success before and after, the training success of every step, the last loss of the warm start."""
    panels = sorted((run / "eval").glob("step-*.json"))
    before, after = (json.loads(path.read_text())[0]["success"]["rate"] for path in (panels[0], panels[-1]))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rl = [line for line in lines if line["phase"] == "rl"]
    return {
        "before": 100 * before,
        "after": 100 * after,
        "curve": [100 * line["train/success_rate"] for line in rl],
        "mismatch": statistics.mean(line.get("rollout/mismatch_kl", math.nan) for line in rl) if rl else math.nan,
    }


def spread(values):
    return statistics.stdev(values) if len(values) > 1 else math.nan


def apart(first, second):
    """Difference of two means in standard errors (Welch)."""
    if min(len(first), len(second)) < 2:
        return math.nan
    error = math.sqrt(statistics.variance(first) / len(first) + statistics.variance(second) / len(second))
    return (statistics.mean(second) - statistics.mean(first)) / error if error > 0 else math.nan


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="behind the KEY=VALUE arguments")
    parser.add_argument("--runs", type=Path, help="folder of the runs (default: a new one)")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    arguments, rest = parser.parse_known_args()
    overrides = arguments.overrides + rest

    subprocess.run(["cargo", "build", "--release", "--quiet", "--bin", "turnwise"], cwd=ROOT, check=True)
    metadata = subprocess.check_output(["cargo", "metadata", "--format-version=1", "--no-deps"], cwd=ROOT)
    program = Path(json.loads(metadata)["target_directory"]) / "release" / "turnwise"
    runs = arguments.runs or Path(tempfile.mkdtemp(prefix="turnwise-compute-"))
    found = {numbers: [] for numbers in NUMBERS}
    for seed in arguments.seeds:
        for numbers in NUMBERS:
            options = [f"policy.compute={numbers}", *overrides]
            run, seconds = quickstart(program, (runs / numbers).absolute(), seed, options)
            result = read(run)
            found[numbers].append(result)
            print(
                f"seed {seed}  {numbers:<4}  before {result['before']:5.1f} %  after {result['after']:5.1f} %  "
                f"mismatch KL {result['mismatch']:.1e}  {seconds:.0f} s",
                flush=True,
            )

    def line(name, pick):
        first, second = ([pick(result) for result in found[numbers]] for numbers in NUMBERS)
        print(
            f"{name:<18}{statistics.mean(first):8.1f} +- {spread(first):4.1f}{statistics.mean(second):10.1f} +- "
            f"{spread(second):4.1f}{apart(first, second):10.1f}"
        )

    print(f"\n{'success in %':<18}{'f32':>8}{'bf16':>18}{'apart (s.e.)':>17}")
    line("before", lambda result: result["before"])
    steps = min(len(result["curve"]) for results in found.values() for result in results)
    for start in range(0, steps, WINDOW):
        end = min(start + WINDOW, steps)
        line(f"steps {start + 1}-{end}", lambda result: statistics.mean(result["curve"][start:end]))
    line("after", lambda result: result["after"])
    print(f"runs: {runs}")


if __name__ == "__main__":
    main()
