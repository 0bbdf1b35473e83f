#!/usr/bin/env python3
"""Training on a real OpenEnv server: every action and every reward is the server's own.

    cargo build --release --features remote
    python3 -m venv V && V/bin/pip install openenv==0.10.0 uvicorn
    V/bin/python benches/real/openenv_worlds.py [--turnwise target/release/turnwise] [--sessions 4] [key=value ...]

Serves an environment that asks for one of eight words (`say WORD`) over OpenEnv's WebSocket on 127.0.0.1, with room for few sessions,
and trains configs/remote/openenv.toml on it: a model from scratch imitates some demonstrations and goes on by GRPO. Checks:

1. the server played exactly the episodes of the run's trajectory files: the same actions and rewards, word for word;
2. no trajectory ended in an error of the environment, though many more wanted to begin than the server has room for;
3. success on the test tasks rises above what guessing gives, and the second run with the same seed has the same numbers;
4. a server that raises an exception in a step ends those trajectories as errors, and no reward of theirs counts.

Prints the numbers and exits 1 if a check fails.
"""

import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

from run_files import free_port, lines, steps, successes, trajectories
import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS = ["red", "green", "blue", "black", "white", "brown", "grey", "pink"]
LOG = []
FAILING = threading.Event()


class Say(Action):
    message: str


class Seen(Observation):
    text: str
    words: list[str]


class SayWord(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self.turns, self.task, self.word = 0, None, None

    def reset(self, seed=None, episode_id=None, **_):
        self.turns, self.task, self.word = 0, episode_id, random.Random(seed).choice(WORDS)
        return Seen(text=f"say {self.word}", words=WORDS, done=False, reward=None)

    def step(self, action, timeout_s=None, **_):
        if FAILING.is_set():
            raise RuntimeError("the environment is out of order")
        self.turns += 1
        right = action.message == self.word
        reward, done = (1.0, True) if right else (0.0, self.turns == 2)
        LOG.append((self.task, action.message, reward))
        return Seen(text=f"say {self.word}", words=WORDS, done=done, reward=reward)

    @property
    def state(self):
        return State(episode_id=self.task, step_count=self.turns)


def serve(sessions):
    port = free_port()
    app = create_fastapi_app(SayWord, Say, Seen, max_concurrent_envs=sessions, env_name="say")
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    return f"http://127.0.0.1:{port}"


def task_files(folder):
    """Training tasks with demonstrations, test tasks without; a seed chooses the word here as it does in the environment."""
    files = {}
    for split, seeds in {"train": range(200), "test": range(1000, 1040)}.items():
        path = folder / f"{split}.jsonl"
        with path.open("w") as out:
            for seed in seeds:
                word = random.Random(seed).choice(WORDS)
                line = {"id": f"{split}/{seed}", "seed": seed, "goal": "say the word"}
                line |= {"demonstration": [word]} if split == "train" else {}
                out.write(json.dumps(line) + "\n")
        files[split] = path
    return files


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--turnwise", default=ROOT / "target/release/turnwise", type=pathlib.Path)
    arguments.add_argument("--sessions", default=4, type=int)
    arguments.add_argument("overrides", nargs="*")
    options = arguments.parse_intermixed_args()
    url, failed = serve(options.sessions), []
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        files = task_files(folder)
        settings = [f'env.urls=["{url}"]', f"env.sessions_per_server={options.sessions}"]
        settings += [f'env.tasks={{train="{files["train"]}", test="{files["test"]}"}}', *options.overrides]

        def train(name, *more):
            LOG.clear()
            command = [options.turnwise, "train", ROOT / "configs/remote/openenv.toml", "--runs", folder]
            subprocess.run([*command, f"name={name}", *settings, *more], check=True, stdout=subprocess.DEVNULL)
            return folder / name

        started = time.monotonic()
        run = train("first")
        seconds, log = time.monotonic() - started, collections.Counter(LOG)
        played = trajectories(run)
        turns = collections.Counter((t["task"]["id"], turn["action"], turn["reward"]) for t in played for turn in t["turns"])
        missing = turns - log
        print(f"{len(played)} trajectories, {sum(turns.values())} turns in the files, {sum(log.values())} steps on the server, {seconds:.0f} s")
        failed += [f"{sum(missing.values())} turns that the server never played: {list(missing)[:3]}"] * bool(missing)
        stops = collections.Counter(json.dumps(t["stop"]) for t in played)
        print(f"how trajectories ended: {dict(stops)}")
        failed += ["errors of the environment"] * any("error" in stop for stop in stops)
        first, *_, last = successes(run)
        print(f"test tasks solved: {first[0]} of {first[1]} after the warm start, {last[0]} of {last[1]} at the end")
        # Two guesses among eight words solve a fourth.
        failed += ["nothing was learnt"] * (not last[0] / last[1] > 0.5)

        again = train("second")
        same = [line["train/success_rate"] for line in steps(run)] == [line["train/success_rate"] for line in steps(again)]
        print(f"success by step: {[round(line['train/success_rate'], 3) for line in steps(run)]}")
        print(f"the second run has the same numbers: {same}")
        failed += ["the second run differs"] * (not same)

        FAILING.set()
        command = [options.turnwise, "rollout", run, "--split", "test", "--tasks", "4", "--output", folder / "failing.jsonl", *settings]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        broken = lines(folder / "failing.jsonl")
        print(f"with a step that raises: {collections.Counter(json.dumps(t['stop']) for t in broken)}")
        failed += ["a failing server gave a reward"] * any(turn["reward"] for t in broken for turn in t["turns"])
        failed += ["a failing server went unnoticed"] * (not all("error" in json.dumps(t["stop"]) for t in broken))
    print("all checks passed" if not failed else "FAILED: " + "; ".join(failed))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
