#!/usr/bin/env python3
"""Why rollouts of a search run fail, and what differs within its groups.

    python benches/search-failures.py runs/evidence-search/grpo-seed-* [--first 55 --last 60]

A rollout that failed answered `early` (fewer searches than the question has hops), or had `found` the passage with the answer and
gave another one, or had `not found` it. Of the groups with both outcomes, those in which every rollout made the same searches
are counted: there the answer alone differs. Reads the trajectories of the steps with the program `zstd`.
"""

import collections

from trajectory_files import ending, groups, runs_and_steps


def outcome(trajectory):
    hops = 1 if trajectory["task"]["kind"] == "single-hop" else 2
    searches = sum(turn["action"].startswith("<search>") for turn in trajectory["turns"])
    if trajectory["success"]:
        return "success"
    if searches < hops:
        return "early"
    return "found" if trajectory["metrics"].get("answer_found") else "not found"


def main():
    arguments = runs_and_steps(__doc__, 55, 60)
    for run in arguments.runs:
        found = groups(run, arguments.first, arguments.last)
        outcomes = collections.Counter(outcome(trajectory) for group in found for trajectory in group)
        mixed = [group for group in found if ending(group) == "mixed"]
        searches = [{tuple(turn["action"] for turn in member["turns"][:-1]) for member in group} for group in mixed]
        shares = ", ".join(f"{name} {100 * count / outcomes.total():.1f} %" for name, count in outcomes.most_common())
        same = sum(len(different) == 1 for different in searches)
        print(f"{run}: {shares}; both outcomes in {len(mixed)} of {len(found)} groups, the same searches in {same} of these")


if __name__ == "__main__":
    main()
