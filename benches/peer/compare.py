#!/usr/bin/env python3
"""Turnwise beside what a user would pick instead, in one run: PyTorch, `transformers` and TextWorld.

    benches/peer/setup.sh target/peer-venv
    target/peer-venv/bin/python benches/peer/compare.py

The two sides take turns, each measurement in a process of its own, and the median of each side counts.
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Callable

from shapes import NEW_TOKENS, NUMBERS, PROMPT_LENGTH, PROMPTS, SHAPES

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGES = ("torch", "transformers", "textworld", "fast-downward-textworld", "alfworld", "numpy")

# PyTorch on a CPU gives every large block back to the system and asks for it again; with glibc set to keep
# them it trains faster, so the peer gets that setting.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184", "MALLOC_TOP_PAD_": "67108864"}

# Spinning threads are quicker on an idle machine and ruinous on a busy one.
WAIT = {"spin": {"OMP_WAIT_POLICY": "active"}, "sleep": {"OMP_WAIT_POLICY": "passive"}}


@dataclass
class Line:
    """Measurements of both sides. Each returns a dictionary with some of the keys of `rows`."""

    rows: dict  # what the table calls a number -> its key on the Python side, and on ours
    unit: str
    higher_is_better: bool
    pairs: list[tuple[Callable[[], dict], Callable[[], dict]]]  # the Python side's and ours


def run(command, environment):
    """Runs a command and returns what it printed; ends the program if it fails."""
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, env=os.environ | environment, text=True, capture_output=True
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class Comparison:
    def __init__(self, arguments, scratch):
        self.arguments = arguments
        self.scratch = scratch
        self.runs = 0
        self.paths = {}
        self.threads = str(arguments.threads)
        self.wait = None
        metadata = subprocess.check_output(["cargo", "metadata", "--format-version=1", "--no-deps"], cwd=ROOT)
        self.release = Path(json.loads(metadata)["target_directory"]) / "release"

    def build(self, chosen):
        for line, what in (
            ("training", ["-p", "turnwise-model", "--example", "train_speed"]),
            ("sampling", ["-p", "turnwise-model", "--example", "sample_speed"]),
            ("iteration", ["--bin", "turnwise"]),
        ):
            if line in chosen:
                subprocess.run(["cargo", "build", "--release", "--locked", *what], cwd=ROOT, check=True)

    def python(self, script, *options):
        """Runs a script of the Python side and returns what it reported, the last of its lines."""
        output = run(
            [sys.executable, HERE / script, "--threads", self.threads, *options],
            KEEP_MEMORY | WAIT[self.wait] | {"OMP_NUM_THREADS": self.threads, "MKL_NUM_THREADS": self.threads},
        )
        return json.loads(output.splitlines()[-1])

    def choose_wait(self):
        """Lets PyTorch's threads spin or sleep between operations, whichever trains faster here and now."""
        rates = {}
        for self.wait in WAIT:
            rates[self.wait] = self.python("peer_train.py", "--shape", "quickstart", "--steps", 5)["tokens_per_s"]
        self.wait = max(rates, key=rates.get)
        return self.wait

    def example(self, name, *options):
        return run([self.release / "examples" / name, *options], {"RAYON_NUM_THREADS": self.threads})

    def turnwise(self, *options):
        return run([self.release / "turnwise", *options], {"RAYON_NUM_THREADS": self.threads})

    # The lines of the table.

    def training(self, shape):
        steps = 3 if self.arguments.quick else 10
        rows = {f"training, {shape.name}, {numbers}": (numbers, numbers) for numbers in NUMBERS}
        rows[f"training, {shape.name}, bf16 against f32"] = ("f32", "bf16")
        return Line(
            rows,
            "tokens/s",
            True,
            [
                (partial(self.peer_training, shape, steps, numbers), partial(self.our_training, shape, steps, numbers))
                for numbers in NUMBERS
            ],
        )

    def peer_training(self, shape, steps, numbers):
        options = ["--shape", shape.name, "--steps", steps, "--compute", numbers]
        return {numbers: self.python("peer_train.py", *options)["tokens_per_s"]}

    def our_training(self, shape, steps, numbers):
        output = self.example(
            "train_speed",
            *model_options(shape),
            f"kv={shape.kv_heads}",
            f"sequences={shape.sequences}",
            f"length={shape.length}",
            f"steps={steps}",
            f"lanes={self.threads}",
            f"compute={numbers}",
        )
        self.paths[numbers] = re.search(r"^computed (.*)$", output, re.MULTILINE)[1]
        return {numbers: float(re.search(r"median ([\d.]+)", output)[1])}

    def sampling(self, shape):
        steps = 1 if self.arguments.quick else 3
        rows = {f"sampling, {shape.name}, {numbers}": (numbers, numbers) for numbers in NUMBERS}
        rows[f"sampling, {shape.name}, bf16 against f32"] = ("f32", "bf16")
        return Line(
            rows,
            "tokens/s",
            True,
            [
                (partial(self.peer_sampling, shape, steps, numbers), partial(self.our_sampling, shape, steps, numbers))
                for numbers in NUMBERS
            ],
        )

    def peer_sampling(self, shape, steps, numbers):
        options = ["--shape", shape.name, "--steps", steps, "--compute", numbers]
        return {numbers: self.python("peer_sample.py", *options)["tokens_per_s"]}

    def our_sampling(self, shape, steps, numbers):
        output = self.example(
            "sample_speed",
            *model_options(shape),
            f"key_value_heads={shape.kv_heads}",
            f"prompts={PROMPTS}",
            f"prompt_len={PROMPT_LENGTH}",
            f"new={NEW_TOKENS}",
            f"rounds={steps}",
            f"lanes={self.threads}",
            f"bf16={int(numbers == 'bf16')}",
        )
        return {numbers: json.loads(output)["new_tokens_per_s"]}

    def iteration(self):
        files = self.games()
        model = self.arguments.model or self.starting_model()
        size = len(files)
        turns = 3 if self.arguments.quick else 20
        options = ["--model", model, "--group-size", size, "--max-turns", turns, "--games", *files]
        return Line(
            {
                f"RL iteration, {size} x {size}": ("iteration_s", "iteration_s"),
                "  without loading games": ("loaded_s", "loaded_s"),
            },
            "s",
            False,
            [(lambda: self.python("peer_iteration.py", *options), lambda: self.our_iteration(model, size, turns))],
        )

    def our_iteration(self, model, size, turns):
        """One step of `turnwise train` with the settings of `peer_iteration.py`, from its own metrics."""
        self.runs += 1
        name = f"iteration-{self.runs}"
        context = json.loads((model / "config.json").read_text())["max_position_embeddings"]
        start = time.perf_counter()
        self.turnwise(
            "train",
            f"--runs={self.scratch}",
            f"name={name}",
            f"policy.model={model}",
            f"env.data={self.scratch / 'games'}",
            f"env.max_turns={turns}",
            "prompt.template=alfworld-compact",
            "prompt.layout=concatenated",
            f"rollout.tasks_per_step={size}",
            f"rollout.group_size={size}",
            "rollout.max_response_tokens=12",
            f"rollout.max_model_len={context}",
            "credit.estimator.kind=grpo",
            "objective.clip={low=0.2, high=0.28}",
            "train.steps=1",
            "train.learning_rate=4e-4",
            "train.num_minibatches=4",
            # The same work as the peer: a scoring pass, and every trajectory in the update.
            "train.recompute_old_logprobs=true",
            "train.skip_zero_advantage=false",
            "eval.splits=[]",
        )
        process_s = time.perf_counter() - start
        lines = (self.scratch / name / "metrics.jsonl").read_text().splitlines()
        metrics = next(line for line in map(json.loads, lines) if line["phase"] == "rl")
        trajectories, turns_mean = metrics["rollout/trajectories"], metrics["rollout/turns/mean"]
        rollout_s, update_s = metrics["perf/rollout_s"], metrics["perf/update_s"] + metrics["perf/credit_s"]
        return {
            # All stages, the scoring pass of the training set included.
            "iteration_s": metrics["perf/step_s"],
            "loaded_s": metrics["perf/step_s"],
            "rollout_s": rollout_s,
            "update_s": update_s,
            "process_s": process_s,
            "steps": round(trajectories * turns_mean),
            "sampled_tokens": round(trajectories * metrics["rollout/tokens/mean"]),
            "success": metrics["train/success_rate"],
        }

    # What both sides play with.

    def games(self):
        """The first official training games, in a folder of their own that both sides read."""
        count = 2 if self.arguments.quick else 8
        found = sorted(self.arguments.data.glob("alfworld/samples/*/*/*/game.tw-pddl"))[:count]
        if len(found) < count:
            sys.exit(f"{self.arguments.data}/alfworld/samples: found {len(found)} game files, need {count}")
        copies = []
        for file in found:
            copy = self.scratch / "games" / "train" / file.parent.parent.name / file.parent.name / file.name
            copy.parent.mkdir(parents=True)
            shutil.copyfile(file, copy)
            copies.append(copy)
        return copies

    def starting_model(self):
        """A short warm start, so that the policy writes actions and the episodes are worth playing."""
        steps = 20 if self.arguments.quick else 200
        self.turnwise(
            "sft",
            "--preset=quickstart",
            f"--runs={self.scratch}",
            "name=start",
            "env.generator.train=2000",
            "env.generator.valid_unseen=1",
            "sft.demonstrations=2000",
            f"sft.steps={steps}",
            # Long enough for twenty turns in the official scenes, which are larger than the generated ones.
            "rollout.max_model_len=2048",
            "eval.splits=[]",
        )
        folders = sorted((self.scratch / "start" / "checkpoints").glob("*/policy"))
        return folders[-1]


def model_options(shape):
    """A model's shape as options of the Rust examples."""
    return [
        f"hidden={shape.hidden}",
        f"layers={shape.layers}",
        f"heads={shape.heads}",
        f"ffn={shape.ffn}",
        f"vocab={shape.vocab}",
    ]


def measure(line, repeats):
    """Lets the two sides take turns and returns the rows of the table."""
    peer, ours = [], []
    for number in range(repeats):
        peer.append({})
        ours.append({})
        for there, here in line.pairs:
            # Who goes first alternates too, so that neither side always finds the machine warmer.
            sides = [(peer, there), (ours, here)]
            for results, side in sides if number % 2 == 0 else reversed(sides):
                results[-1] |= side()
                print(".", end="", flush=True, file=sys.stderr)
    rows = []
    for name, keys in line.rows.items():
        middle = [statistics.median(result[key] for result in side) for side, key in zip((peer, ours), keys)]
        rows.append(
            {
                "name": name,
                "unit": line.unit,
                "peer": middle[0],
                "turnwise": middle[1],
                "ratio": middle[1] / middle[0] if line.higher_is_better else middle[0] / middle[1],
                "peer_runs": peer,
                "turnwise_runs": ours,
            }
        )
    return rows


def installed(name):
    """The version of a package; only the iteration needs all of them."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def machine(arguments):
    """Everything a number depends on."""

    def output(*command):
        return subprocess.run(command, cwd=ROOT, text=True, capture_output=True).stdout.strip()

    cpu = {}
    for entry in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = entry.partition(":")
        cpu.setdefault(key.strip(), value.strip())
    return {
        "cpu": " ".join([cpu.get("model name", platform.processor()), f"family {cpu.get('cpu family')} model {cpu.get('model')}"]),
        "avx512": "avx512f" in cpu.get("flags", ""),
        "amx_bf16": "amx_bf16" in cpu.get("flags", ""),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_before": os.getloadavg()[0],
        "threads": arguments.threads,
        "commit": output("git", "describe", "--always", "--dirty", "--abbrev=12"),
        "rustc": output("rustc", "--version"),
        "python": platform.python_version(),
        "packages": {name: installed(name) for name in PACKAGES},
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def table(rows):
    yield f"{'':<36}{'Python':>12}{'Turnwise':>12}  {'':<9}{'ratio':>8}"
    for row in rows:
        digits = 1 if row["peer"] < 1000 else 0
        yield (
            f"{row['name']:<36}{row['peer']:>12,.{digits}f}{row['turnwise']:>12,.{digits}f}  "
            f"{row['unit']:<9}{row['ratio']:>7.2f}x"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("training", "sampling", "iteration"), action="append")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="models of training and sampling; default: all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", type=Path, help="policy of the RL iteration; without it a short warm start makes one")
    parser.add_argument("--data", type=Path, default=os.environ.get("TURNWISE_DATA"), help="default: $TURNWISE_DATA")
    parser.add_argument("--output", type=Path, default=ROOT / "target" / "peer.json")
    parser.add_argument("--quick", action="store_true", help="each side once and briefly: shows that it runs, not how fast")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.repeats = 1
    chosen = arguments.only or ["training", "sampling", "iteration"]
    if "iteration" in chosen and not arguments.data:
        print("RL iteration skipped: TURNWISE_DATA not set")
        chosen.remove("iteration")

    facts = machine(arguments)
    print(f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB, {facts['threads']} threads; "
          f"commit {facts['commit']}; torch {facts['packages']['torch']}, "
          f"transformers {facts['packages']['transformers']}, textworld {facts['packages']['textworld']}")
    if facts["load_before"] > 0.5:
        print(f"warning: the machine is busy (load {facts['load_before']:.1f}); ratios will be noisy")

    with tempfile.TemporaryDirectory(prefix="turnwise-peer-") as scratch:
        comparison = Comparison(arguments, Path(scratch))
        comparison.build(chosen)
        facts["peer_threads_wait_by"] = comparison.choose_wait()
        lines = []
        if "training" in chosen:
            lines += [comparison.training(SHAPES[name]) for name in arguments.shape or SHAPES]
        if "sampling" in chosen:
            lines += [comparison.sampling(SHAPES[name]) for name in arguments.shape or SHAPES]
        if "iteration" in chosen:
            lines.append(comparison.iteration())
        rows = [row for line in lines for row in measure(line, arguments.repeats)]

    print(file=sys.stderr)
    print("\n".join(table(rows)))
    if comparison.paths:
        facts["turnwise_computed"] = comparison.paths
        print("Turnwise computed " + ", ".join(f"{path} for {numbers}" for numbers, path in comparison.paths.items()))
    shapes = {shape.name: shape.describe() for shape in SHAPES.values()}
    shapes["sampling"] = f"{PROMPTS} prompts of {PROMPT_LENGTH} tokens, {NEW_TOKENS} new"
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps({"machine": facts, "shapes": shapes, "rows": rows}, indent=2) + "\n")
    print(f"all measurements: {arguments.output}")


if __name__ == "__main__":
    main()
