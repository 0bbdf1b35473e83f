"""The trajectories of runs, for scripts that count over them. Needs the program `zstd`."""

import argparse
import collections
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "real"))
from run_files import lines


def runs_and_steps(description, first, last):
    """The command line RUN.. [--first N] [--last N] of a script, with these steps by default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--first", type=int, default=first)
    parser.add_argument("--last", type=int, default=last)
    return parser.parse_args()


def groups(run, first, last):
    """The groups of the steps from `first` to `last`, each a list of trajectories; ends the script where there are none."""
    found = collections.defaultdict(list)
    for step, trajectory in trajectories(run, first, last):
        found[step, trajectory["group"]].append(trajectory)
    if not found:
        raise SystemExit(f"{run}: no trajectories of steps {first} to {last}")
    return list(found.values())


def ending(group):
    """How the trajectories of a group ended: `all failed`, `all succeeded` or `mixed`."""
    successes = sum(trajectory["success"] for trajectory in group)
    return "all failed" if successes == 0 else "all succeeded" if successes == len(group) else "mixed"


def trajectories(run, first=1, last=None):
    """Yields (step, trajectory) of the steps from `first` to `last` that the run was trained on and has kept, in order."""
    for path in sorted(pathlib.Path(run).glob("trajectories/step-*.jsonl.zst")):
        step = int(path.name.removeprefix("step-").removesuffix(".jsonl.zst"))
        if step < first or (last is not None and step > last):
            continue
        for trajectory in lines(path):
            # Those that failed in the world or the sampler were not trained on and have none.
            if trajectory.get("advantages") is not None:
                yield step, trajectory
