#!/usr/bin/env python3
"""Why do two-object tasks fail? Counts over the trajectories of a run's last steps.

Usage: benches/two-object-failures.py RUN [FIRST_STEP]        (needs the zstd program)
"""
import collections
import sys

from trajectory_files import trajectories

run, first = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
kinds = collections.defaultdict(lambda: collections.Counter())
why = collections.Counter()
for _, trajectory in trajectories(run, first):
    turns = trajectory["turns"]
    understood = [turn["action"] for turn in turns if turn["action"] in turn["admissible"]]
    kind = kinds[trajectory["task"]["kind"]]
    kind["played"] += 1
    kind["solved"] += trajectory["success"]
    kind["turns"] += len(turns)
    kind["wasted"] += len(turns) - len(understood)
    if trajectory["task"]["kind"] != "pick_two_obj_and_place" or trajectory["success"]:
        continue
    placed = sum(action.startswith("move ") for action in understood)
    taken = sum(action.startswith("take ") for action in understood)
    if taken == 0:
        why["found neither object"] += 1
    elif placed == 0:
        why["took one, placed none"] += 1
    elif placed == 1 and taken == 1:
        why["placed one, never took the second"] += 1
    elif placed == 1:
        why["held the second when the turns ran out"] += 1
    else:
        why["placed both, in different receptacles"] += 1
for name, kind in sorted(kinds.items()):
    print(f"{name:34} played {kind['played']:5}  solved {100 * kind['solved'] / kind['played']:5.1f} %  "
          f"turns {kind['turns'] / kind['played']:5.1f}  not understood {100 * kind['wasted'] / kind['turns']:5.1f} %")
failures = sum(why.values())
print(f"\n{failures} failed two-object episodes")
for reason, count in why.most_common():
    print(f"  {100 * count / failures:5.1f} %  {reason}")
