#!/usr/bin/env python3
"""Kills runs, sweeps, environments' programs and servers at random moments and checks that nothing is lost.

    tools/kills.py PROGRAM [--kills 200] [--seed 0] [--only run,sweep,worker,server]

PROGRAM is a built `turnwise`. A killed run or sweep is resumed until it finishes. Its weights, optimizer, trajectories, evaluations
and metrics must then equal those of an uninterrupted one bit for bit, except times and speeds. If an environment's program was
killed, only the names of the files must be equal. A killed server must give the same answers after a restart. Exits with 1 at the
first difference.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
TINY = str(ROOT / "crates/train/tests/tiny.toml")
SETTINGS = ["sft.steps=30", "sft.checkpoint_every=3", "train.steps=12", "train.checkpoint_every=1", "eval.every=4"]
SWEEP = f"""
name = "sweep"
base = ["{TINY}"]
preset = "grpo"
seeds = [0, 1]
set = ["env.generator.size=tiny", "sft.steps=12", "sft.checkpoint_every=2", "train.steps=6", "train.checkpoint_every=1",
    'eval.splits=["valid_unseen"]', "eval.every=2"]
[[run]]
name = "grpo"
[[run]]
name = "gigpo"
preset = "gigpo"
"""


def timeless(value):
    """Removes times and speeds, which differ in every run."""
    if isinstance(value, dict):
        return {
            key: timeless(inner)
            for key, inner in value.items()
            if key not in ("time", "seconds") and not key.startswith("perf/")
        }
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


def outcome(runs):
    """Returns everything below a folder of runs that must be the same, by name."""
    found = {}
    for path in sorted(runs.rglob("*")):
        name = str(path.relative_to(runs))
        parts = pathlib.Path(name).parts
        if not path.is_file() or any(part.startswith((".", "abandoned")) for part in parts):
            continue
        if "checkpoints" in parts and not name.endswith((".safetensors", "state.json")):
            continue
        if parts[-1] == "metrics.jsonl":
            found[name] = [timeless(json.loads(line)) for line in path.read_text().splitlines()]
        elif "eval" in parts and name.endswith(".json"):
            found[name] = timeless(json.loads(path.read_text()))
        elif name.endswith((".safetensors", "state.json", ".jsonl.zst")):
            found[name] = path.read_bytes()
    return found


class Training:
    """Commands that write `runs` in a new folder."""

    def __init__(self, program, start, again, begun, files=(), victims=None):
        self.program, self.start, self.again, self.begun = program, start, again, begun
        self.files, self.victims = files, victims

    def folder(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="turnwise-kills-"))
        for name, text in self.files:
            (folder / name).write_text(text)
        return folder

    def spawn(self, folder, arguments):
        return subprocess.Popen(
            [self.program, *arguments], cwd=folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )

    def straight(self):
        folder = self.folder()
        begun = time.monotonic()
        _, errors = (process := self.spawn(folder, self.start)).communicate()
        assert process.returncode == 0, errors
        found = outcome(folder / "runs")
        shutil.rmtree(folder)
        return found, time.monotonic() - begun

    def killed_until_done(self, draws, length, most):
        """Returns the outcome of a run that was killed repeatedly, the number of kills, and whether an environment's program was
        killed. Its episodes then end with an error, and the run continues with other numbers."""
        folder, kills, foreign = self.folder(), 0, False
        for number in range(1000):
            resumes = (folder / self.begun).exists()
            if not resumes:
                shutil.rmtree(folder / "runs", ignore_errors=True)
            process = self.spawn(folder, self.again if resumes else self.start)
            if kills < most:
                time.sleep(0.02 + draws.random() * length * (4 + number) / 12)
            if kills < most and process.poll() is None:
                victim = self.victim(process.pid, draws)
                try:
                    os.kill(victim, draws.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
                    kills += 1
                    foreign |= victim != process.pid
                except ProcessLookupError:
                    pass
                if victim != process.pid and draws.random() < 0.5:
                    process.kill()
            _, errors = process.communicate()
            assert "panicked" not in errors, errors
            if process.returncode == 0 and (kills >= most or self.finished(folder)):
                break
            assert kills > 0 or process.returncode == 0, errors
        found = outcome(folder / "runs")
        shutil.rmtree(folder)
        return found, kills, foreign

    def finished(self, folder):
        states = [json.loads(path.read_text())["state"] for path in (folder / "runs").rglob("status.json")]
        return bool(states) and all(state == "finished" for state in states)

    def victim(self, process, draws):
        if not self.victims:
            return process
        children = pathlib.Path(f"/proc/{process}/task/{process}/children")
        found = [int(child) for child in children.read_text().split()] if children.exists() else []
        return draws.choice([process, *found])


def trainings(program):
    common = ["--preset", "quickstart", TINY, "name=run", *SETTINGS]
    resume = ["train", "--resume", "runs/run"]
    guess = [
        "train", str(ROOT / "examples/python_environment/guess.toml"), "name=run", "sft.steps=10",
        "train.steps=10", "train.checkpoint_every=1", "rollout.tasks_per_step=8", "eval.every=5",
        f'env.command=["python3", "{ROOT}/examples/python_environment/guess.py"]',
    ]
    sweep = ["sweep", "sweep.toml", "--jobs", "2"]
    return {
        "run": Training(program, ["train", *common], resume, "runs/run/config.toml"),
        "worker": Training(program, guess, resume, "runs/run/config.toml", victims=True),
        "sweep": Training(program, sweep, sweep, "runs", files=[("sweep.toml", SWEEP)]),
    }


def serve(program, arguments):
    process = subprocess.Popen(
        [program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    for line in process.stdout:
        if "http://" in line:
            return process, "http://" + line.split("http://")[1].split()[0].split("/")[0]
    raise SystemExit(f"{arguments[0]} did not start")


def servers(program, draws, kills):
    """Kills the server of pages while it answers; the next one must give the same page."""
    file = str(ROOT / "examples/credit/two-trajectories.jsonl")
    arguments = ["view", file, "--address", "127.0.0.1:0"]
    page = None
    for _ in range(kills):
        process, address = serve(program, arguments)
        text = urllib.request.urlopen(address + "/", timeout=10).read()
        assert page in (None, text), "the page differs"
        page = text
        clients = [
            subprocess.Popen([sys.executable, "-c", f"import urllib.request as u\nwhile 1: u.urlopen('{address}/').read()"],
                             stderr=subprocess.DEVNULL)
            for _ in range(2)
        ]
        time.sleep(draws.random() * 0.3)
        process.send_signal(draws.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
        process.wait(timeout=20)
        for client in clients:
            client.kill()
            client.wait()
    return kills


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=lambda text: str(pathlib.Path(text).resolve()))
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="run,sweep,worker,server")
    options = parser.parse_args()
    draws = random.Random(options.seed)
    kinds = options.only.split(",")
    share = -(-options.kills // len(kinds))
    for kind in kinds:
        if kind == "server":
            print(f"server: {servers(options.program, draws, share)} kills, 0 differences", flush=True)
            continue
        training = trainings(options.program)[kind]
        expected, length = training.straight()
        done = runs = 0
        while done < share:
            found, kills, foreign = training.killed_until_done(draws, length, min(8, share - done))
            # SIGINT and SIGTERM write an extra checkpoint, which displaces an older one of those that are kept. The last one of a
            # phase is always kept.
            others = {name for name in found.keys() ^ expected.keys() if "/checkpoints/" in name}
            names = (expected.keys() | found.keys()) - others
            if foreign:
                names = {name for name in names if (name in expected) != (name in found)}
            differ = sorted(name for name in names if expected.get(name) != found.get(name))
            if differ:
                raise SystemExit(f"{kind}: after {kills} kills these differ: {differ}")
            done, runs = done + kills, runs + 1
        print(f"{kind}: {done} kills in {runs} runs, 0 differences", flush=True)


main()
