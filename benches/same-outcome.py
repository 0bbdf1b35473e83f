#!/usr/bin/env python3
"""Share of the advantages in groups whose rollouts all ended alike, for runs made before `credit/same_outcome_frac`.

    python benches/same-outcome.py runs/evidence-methods/hgpo-seed-* [--first 51 --last 60]

Prints the share of groups in which all rollouts failed, all succeeded, or some did (mixed), and the share of the sum of absolute
advantages that lies in each. Reads the trajectories of the steps with the program `zstd`.
"""

import collections

from trajectory_files import ending, groups, runs_and_steps


def main():
    arguments = runs_and_steps(__doc__, 1, 20)
    for run in arguments.runs:
        counts, sizes = collections.Counter(), collections.Counter()
        for group in groups(run, arguments.first, arguments.last):
            end = ending(group)
            counts[end] += 1
            sizes[end] += sum(abs(advantage) for trajectory in group for advantage in trajectory["advantages"])
        shares = (
            f"{end} {counts[end] / counts.total():.0%} of groups, {sizes[end] / max(sizes.total(), 1e-12):.0%} of the advantages"
            for end in ("all failed", "all succeeded", "mixed")
        )
        print(f"{run}: {'; '.join(shares)}")


if __name__ == "__main__":
    main()
