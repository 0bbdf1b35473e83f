#!/usr/bin/env python3
"""Advantages of a shop run's turns by kind of action and by how its group ended, and what a clicked option changes on the page.

    python benches/shop-advantages.py runs/evidence-shop/gigpo-seed-* [--first 1 --last 20]

Prints, for the groups in which all rollouts failed, in which all succeeded, and the others (mixed): their share, their share of
the sum of absolute advantages, and the mean advantage of purchases, clicked options and invalid turns, in mixed groups of
rollouts that succeeded and of those that failed. Where all end alike, an advantage other than 0 is no news of the outcome. First
how many option clicks left the observation as it was (GiGPO takes the turns before and after such a click for one state), and how
many of the invalid turns are clicks on what the page does not have. Reads the trajectories of the steps with the program `zstd`.
"""

import collections
import re
import statistics

from trajectory_files import ending, groups, runs_and_steps

PAGES = {"back to search", "next >", "< prev", "description", "features", "reviews", "attributes", "buy now"}
PRODUCT = re.compile(r"[bt][a-z0-9]{9}")  # generated identifiers begin with t, real ones with b
KINDS = ("purchase", "option", "invalid")


def kind(turn):
    if not turn["valid"]:
        return "invalid"
    action = turn["action"]
    if not action.startswith("click["):
        return "other"
    name = action.removeprefix("click[").removesuffix("]")
    if name == "buy now":
        return "purchase"
    return "other" if name in PAGES or PRODUCT.fullmatch(name) else "option"


def main():
    arguments = runs_and_steps(__doc__, 1, 20)
    for run in arguments.runs:
        clicks, unchanged, options, invalid = 0, 0, [], []
        counts, sizes, advantages = collections.Counter(), collections.Counter(), collections.defaultdict(list)
        for group in groups(run, arguments.first, arguments.last):
            end = ending(group)
            counts[end] += 1
            for trajectory in group:
                turns = trajectory["turns"]
                invalid += [turn["action"].startswith("click[") for turn in turns if not turn["valid"]]
                options.append(sum(kind(turn) == "option" for turn in turns))
                for turn, later in zip(turns, turns[1:]):
                    if kind(turn) == "option":
                        clicks += 1
                        unchanged += turn["observation"] == later["observation"]
                for turn, advantage in zip(turns, trajectory["advantages"]):
                    sizes[end] += abs(advantage)
                    advantages[end, trajectory["success"], kind(turn)].append(advantage)
        print(
            f"{run}: {statistics.mean(options):.2f} options a rollout, {unchanged} of {clicks} left the page as it was; "
            f"{sum(invalid)} of {len(invalid)} invalid turns click what the page does not have"
        )
        for end, success in (("all failed", False), ("all succeeded", True), ("mixed", False), ("mixed", True)):
            means = (
                f"{name} {statistics.mean(values):+.2f}" for name in KINDS if (values := advantages.get((end, success, name)))
            )
            share = f"{counts[end] / counts.total():5.0%} of groups, {sizes[end] / sizes.total():4.0%} of the advantages"
            label = end if end != "mixed" else "mixed, succeeded" if success else "mixed, failed"
            print(f"  {label:17} {share}: {', '.join(means)}")


if __name__ == "__main__":
    main()
