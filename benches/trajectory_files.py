"""The trajectories of a run, for scripts that count over them. Needs the program `zstd`."""

import json
import pathlib
import subprocess


def trajectories(run, first=1, last=None):
    """Yields (step, trajectory) of the steps from `first` to `last` that the run has kept, in order."""
    for path in sorted(pathlib.Path(run).glob("trajectories/step-*.jsonl.zst")):
        step = int(path.name.removeprefix("step-").removesuffix(".jsonl.zst"))
        if step < first or (last is not None and step > last):
            continue
        for line in subprocess.run(["zstd", "-dc", path], capture_output=True, check=True).stdout.splitlines():
            yield step, json.loads(line)
