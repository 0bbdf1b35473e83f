#!/usr/bin/env python3
"""Peak memory of real training steps beside the plan that `turnwise train --dry-run` prints.

    cargo build --release && python3 benches/memory.py target/release/turnwise

Each row is one run of two steps of a model from scratch on the quickstart's world. `plan` is what the dry run calls "at
most at a time"; `peak` is the largest resident size that the system reports of the run, less that of the first row,
whose model has next to no weights: the program, the world and the trajectories.
"""

import re
import subprocess
import sys
import tempfile

UNITS = {"MiB": 2**20, "GiB": 2**30}
BASE = [
    "env.generator.size=tiny", "env.generator.train=64", "env.generator.valid_unseen=8", "eval.tasks=8", "env.max_turns=6",
    "sft.steps=0", "sft.demonstrations=64", "rollout.tasks_per_step=4", "rollout.group_size=8", "rollout.max_num_seqs=16",
    "train.steps=2", "train.num_minibatches=1", "train.save_trajectories=false", "train.skip_zero_advantage=false",
    "train.micro_batch_tokens=2048", "prompt.valid=admissible",
]
LARGE = [
    "policy.scratch.hidden_size=512", "policy.scratch.layers=8", "policy.scratch.heads=8",
    "policy.scratch.key_value_heads=4", "policy.scratch.intermediate_size=1536",
]
RUNS = [
    ("next to nothing", ["policy.scratch.hidden_size=16", "policy.scratch.layers=1", "policy.scratch.heads=2",
                         "policy.scratch.key_value_heads=1", "policy.scratch.intermediate_size=32"]),
    ("25 M weights", LARGE),
    ("recompute_layers", [*LARGE, "train.recompute_layers=true"]),
    ("one lane", [*LARGE, "train.lanes=1"]),
    ("reference, full KL", [*LARGE, "objective.kl.coef=0.01", "objective.kl.estimator=full"]),
    ("critic", [*LARGE, 'credit.estimator={kind="ppo"}']),
]


def run(command, folder):
    """Standard output of a command, and the largest resident size of it and those before it."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def peak(command, folder):
    """Peak resident bytes of one command, measured in a process of its own."""
    code = ("import resource, subprocess, sys; "
            "done = subprocess.run(sys.argv[1:], capture_output=True); "
            "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    status, kilobytes = run([sys.executable, "-c", code, *command], folder).split()
    if status != "0":
        sys.exit(f"{' '.join(command)} failed")
    return int(kilobytes) * 1024


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    binary = subprocess.run(["realpath", sys.argv[1]], capture_output=True, text=True, check=True).stdout.strip()
    print(f"{'run':<22}{'plan':>12}{'peak':>12}{'ratio':>8}")
    floor = 0
    for index, (name, overrides) in enumerate(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            command = [binary, "train", "--preset", "quickstart", *BASE, *overrides]
            text = run([*command, "--dry-run"], folder)
            number, unit = re.search(r"at most at a time\s+([\d.]+) (\w+)", text).groups()
            plan = float(number) * UNITS[unit]
            found = peak(command, folder)
        if index == 0:
            floor = found
            print(f"{name:<22}{plan / 2**20:>8.0f} MiB{found / 2**20:>8.0f} MiB{'':>8}")
            continue
        found -= floor
        print(f"{name:<22}{plan / 2**20:>8.0f} MiB{found / 2**20:>8.0f} MiB{found / plan:>8.2f}")


if __name__ == "__main__":
    main()
