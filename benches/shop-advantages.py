#!/usr/bin/env python3
"""Advantages of a shop run's turns by kind of action and outcome, and what a clicked option changes on the page.

    python benches/shop-advantages.py runs/evidence-shop/gigpo-seed-* [--first 1 --last 20]

Prints the mean advantage of purchases and of clicked options in rollouts that succeeded and in those that failed, and how many
option clicks left the observation as it was: GiGPO takes the turns before and after such a click for one state. Reads the
trajectories of the steps with the program `zstd`.
"""

import argparse
import collections
import re
import statistics

from trajectory_files import trajectories

PAGES = {"back to search", "next >", "< prev", "description", "features", "reviews", "attributes", "buy now"}
PRODUCT = re.compile(r"[bt][a-z0-9]{9}")  # generated identifiers begin with t, real ones with b


def kind(turn):
    action = turn["action"]
    if not turn["valid"] or not action.startswith("click["):
        return "other"
    name = action.removeprefix("click[").removesuffix("]")
    if name == "buy now":
        return "purchase"
    return "other" if name in PAGES or PRODUCT.fullmatch(name) else "option"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--last", type=int, default=20)
    arguments = parser.parse_args()
    for run in arguments.runs:
        advantages, clicks, unchanged = collections.defaultdict(list), 0, 0
        for _, trajectory in trajectories(run, arguments.first, arguments.last):
            turns = trajectory["turns"]
            for turn, advantage in zip(turns, trajectory["advantages"]):
                advantages[kind(turn), trajectory["success"]].append(advantage)
            for turn, later in zip(turns, turns[1:]):
                if kind(turn) == "option":
                    clicks += 1
                    unchanged += turn["observation"] == later["observation"]
        means = {key: statistics.mean(values) for key, values in advantages.items()}
        line = ", ".join(
            f"{action} {means[action, True]:+.2f} {means[action, False]:+.2f}" for action in ("purchase", "option")
        )
        print(f"{run}: mean advantage where it succeeded and where it failed: {line}; {unchanged} of {clicks} options left the page as it was")


if __name__ == "__main__":
    main()
