#!/usr/bin/env python3
"""Share of the advantages in groups whose rollouts all ended alike, for runs made before `credit/same_outcome_frac`.

    python benches/same-outcome.py runs/evidence-methods/hgpo-seed-* [--first 51 --last 60]

Prints the share of groups in which all rollouts failed, all succeeded, or some did (mixed), and the share of the sum of absolute
advantages that lies in each. Reads the trajectories of the steps with the program `zstd`.
"""

import argparse
import collections

from trajectory_files import trajectories


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--last", type=int, default=20)
    arguments = parser.parse_args()
    for run in arguments.runs:
        groups = collections.defaultdict(list)
        for step, trajectory in trajectories(run, arguments.first, arguments.last):
            size = sum(abs(advantage) for advantage in trajectory["advantages"])
            groups[step, trajectory["group"]].append((trajectory["success"], size))
        if not groups:
            raise SystemExit(f"{run}: no trajectories of steps {arguments.first} to {arguments.last}")
        counts, sizes = collections.Counter(), collections.Counter()
        for group in groups.values():
            successes = sum(success for success, _ in group)
            end = "all failed" if successes == 0 else "all succeeded" if successes == len(group) else "mixed"
            counts[end] += 1
            sizes[end] += sum(size for _, size in group)
        shares = (
            f"{end} {counts[end] / len(groups):.0%} of groups, {sizes[end] / max(sizes.total(), 1e-12):.0%} of the advantages"
            for end in ("all failed", "all succeeded", "mixed")
        )
        print(f"{run}: {'; '.join(shares)}")


if __name__ == "__main__":
    main()
