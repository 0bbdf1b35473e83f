#!/usr/bin/env python3
"""Peak memory of real training steps beside the plan that `turnwise train --dry-run` prints.

    cargo build --release && python3 benches/memory.py target/release/turnwise

Each row is one run of two steps of a model from scratch on the quickstart's world. `plan` is what the dry run calls "at
most at a time"; `peak` is the largest resident size that the system reports of the run, less that of the first row,
whose model has next to no weights: the program, the world and the trajectories. `plan, kept` and `peak, kept` are the
same for a run that keeps what it frees, as one does by itself where the machine has room; in the first columns
MIMALLOC_PURGE_DELAY has it given back.
"""

import os
import re
import subprocess
import sys
import tempfile

UNITS = {"MiB": 2**20, "GiB": 2**30}
BASE = [
    "env.generator.size=tiny", "env.generator.train=64", "env.generator.valid_unseen=8", "eval.tasks=8", "env.max_turns=6",
    "sft.steps=0", "sft.demonstrations=64", "rollout.tasks_per_step=4", "rollout.group_size=8", "rollout.max_num_seqs=16",
    "train.steps=2", "train.num_minibatches=1", "train.save_trajectories=false", "train.skip_zero_advantage=false",
    "train.micro_batch_tokens=2048", "prompt.validity=admissible",
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
    ("one lane", [*LARGE, "train.num_workers=1"]),
    ("reference, full KL", [*LARGE, "objective.kl.coef=0.01", "objective.kl.estimator=full"]),
    ("critic", [*LARGE, 'credit.estimator={kind="ppo"}']),
]


def run(command, folder, **environment):
    """Standard output of a command."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def peak(command, delay):
    """Peak resident bytes of one command, in a process of its own; freed memory goes back after `delay` ms, never with -1."""
    code = ("import resource, subprocess, sys; "
            "done = subprocess.run(sys.argv[1:], capture_output=True); "
            "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    with tempfile.TemporaryDirectory() as folder:
        measured = run([sys.executable, "-c", code, *command], folder, MIMALLOC_PURGE_DELAY=str(delay))
    status, kilobytes = measured.split()
    if status != "0":
        sys.exit(f"{' '.join(command)} failed")
    return int(kilobytes) * 1024


def planned(text, before):
    """Bytes that the dry run names after a text; it names none for keeping where the machine has no room."""
    found = re.search(before + r"([\d.]+) (\w+)", text)
    if not found:
        sys.exit(f"the dry run does not say \"{before}\", perhaps for want of memory:\n{text}")
    return float(found[1]) * UNITS[found[2]]


def mib(size):
    """Bytes as a cell of the table."""
    return f"{size / 2**20:.0f} MiB"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    binary = subprocess.run(["realpath", sys.argv[1]], capture_output=True, text=True, check=True).stdout.strip()
    print(f"{'run':<18}{'plan':>11}{'peak':>11}{'ratio':>7}{'plan, kept':>12}{'peak, kept':>12}{'ratio':>7}")
    floors = []
    for name, overrides in RUNS:
        command = [binary, "train", "--preset", "quickstart", *BASE, *overrides]
        with tempfile.TemporaryDirectory() as folder:
            text = run([*command, "--dry-run"], folder)
        found = [peak(command, 1000), peak(command, -1)]
        if not floors:
            floors = found
            print(f"{name:<18}{'':>11}{mib(found[0]):>11}{'':>19}{mib(found[1]):>12}")
            continue
        plans = [planned(text, r"at most at a time\s+"), planned(text, "to keep freed memory for the next phase: at most ")]
        given_back, kept = [peak - floor for peak, floor in zip(found, floors)]
        print(f"{name:<18}{mib(plans[0]):>11}{mib(given_back):>11}{given_back / plans[0]:>7.2f}"
              f"{mib(plans[1]):>12}{mib(kept):>12}{kept / plans[1]:>7.2f}")


if __name__ == "__main__":
    main()
