#!/usr/bin/env python3
"""Signs and mean of the advantages of a trajectory's turns. The mean is all that a gradient through one ratio for the whole
trajectory (`objective.ratio = "sequence"`) has of them.

    python benches/advantage-signs.py runs/evidence-shop/salt-gspo-seed-* [--first 1 --last 20]

Of the trajectories with any advantage: the share that has both signs; the mean over tokens, averaged over successes and over
failures; and the share of each whose mean has the wrong sign. Runs are counted together. Reads the trajectories of the steps with
the program `zstd`.
"""

import statistics

from trajectory_files import runs_and_steps, trajectories


def main():
    arguments = runs_and_steps(__doc__, 1, 20)
    both, means = [], {True: [], False: []}
    for run in arguments.runs:
        for _, trajectory in trajectories(run, arguments.first, arguments.last):
            pairs = [(advantage, len(turn["response_ids"])) for advantage, turn in zip(trajectory["advantages"], trajectory["turns"])]
            signs = {advantage > 0 for advantage, _ in pairs if advantage}
            if not signs:
                continue
            both.append(len(signs) == 2)
            tokens = sum(count for _, count in pairs)
            means[trajectory["success"]].append(sum(advantage * count for advantage, count in pairs) / tokens)
    if not both:
        raise SystemExit("no trajectory has an advantage")
    print(f"both signs: {100 * statistics.mean(both):.1f} % of {len(both)} trajectories")
    for success, values in means.items():
        if values:
            wrong = sum((value < 0) if success else (value > 0) for value in values) / len(values)
            name = "successes" if success else "failures"
            print(f"{name}: mean advantage {statistics.mean(values):+.2f}, of the wrong sign in {100 * wrong:.1f} % of {len(values)}")


if __name__ == "__main__":
    main()
