#!/usr/bin/env python3
"""Training with the tools of a real MCP server, as a program and over HTTP: every call and every reward is the server's own.

    cargo build --release --features remote
    python3 -m venv V && V/bin/pip install mcp==2.3.0
    V/bin/python benches/real/mcp_servers.py [--turnwise target/release/turnwise] [--episodes 8] [key=value ...]

A server of the Python SDK has a tool `say` that keeps a word and a tool `judge` that compares it. The tasks of configs/remote/mcp.toml ask for one of
eight words; a model from scratch imitates some demonstrations and goes on by GRPO, on a server at 127.0.0.1 with a session for every
episode. The trained policy then plays the test tasks over HTTP and with a program that is started for every episode. Checks:

1. the server was called exactly as the run's trajectory files say: the same words, and the reward that the tool gave;
2. no trajectory ended in an error of the environment;
3. success on the test tasks is above what guessing gives;
4. both ways give the same trajectories, action by action and reward by reward.

Prints the numbers and exits 1 if a check fails.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time

from run_files import free_port, lines, steps, successes, trajectories

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS = ["red", "green", "blue", "black", "white", "brown", "grey", "pink"]


def serve(port):
    """The server: over stdin and stdout where there is no port."""
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context

    server = MCPServer("words")
    said = {}

    def log(**line):
        with open(os.environ["MCP_LOG"], "a") as out:
            out.write(json.dumps(line) + "\n")

    def session(context):
        return 0 if port is None else context.request_context.request.headers["mcp-session-id"]

    @server.tool()
    def say(word: str, context: Context) -> str:
        """Says a word."""
        said[session(context)] = word
        log(tool="say", word=word)
        return "said"

    @server.tool()
    def judge(word: str, context: Context) -> float:
        """1 if the word was said last, else 0."""
        reward = 1.0 if said.get(session(context)) == word else 0.0
        log(tool="judge", word=word, reward=reward)
        return reward

    if port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=port)


def task_files(folder):
    files = {}
    for split, count in {"train": 160, "test": 24}.items():
        path = folder / f"{split}.jsonl"
        with path.open("w") as out:
            for number in range(count):
                word = random.Random(f"{split} {number}").choice(WORDS)
                line = {"id": f"{split}/{number}", "instruction": f"say {word}"}
                line["verify"] = {"tool": "judge", "arguments": {"word": word}}
                if split == "train":
                    line["demonstration"] = [f'say({json.dumps({"word": word}, separators=(",", ":"))})', 'answer({"answer":""})']
                out.write(json.dumps(line) + "\n")
        files[split] = path
    return files


def start(log):
    port = free_port()
    program = subprocess.Popen([sys.executable, __file__, "--serve", str(port)], env={**os.environ, "MCP_LOG": str(log)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return program, f"http://127.0.0.1:{port}/mcp"
        except OSError:
            time.sleep(0.1)


def said_in(trajectory):
    """Words of the calls of `say` that are well-formed, which the server carried out."""
    for turn in trajectory["turns"]:
        if turn["action"].startswith("say(") and turn["action"].endswith(")"):
            try:
                arguments = json.loads(turn["action"][4:-1])
            except ValueError:
                continue
            if isinstance(arguments, dict) and isinstance(arguments.get("word"), str):
                yield arguments["word"]


def check(run, log):
    """Prints the numbers of a run; what is wrong with them."""
    failed = []
    played = trajectories(run)
    called = [json.loads(line) for line in log.read_text().splitlines()]
    said = collections.Counter(call["word"] for call in called if call["tool"] == "say")
    rewards = collections.Counter(call["reward"] for call in called if call["tool"] == "judge")
    missing = collections.Counter(word for trajectory in played for word in said_in(trajectory)) - said
    failed += [f"words that the server never heard: {missing}"] * bool(missing)
    returns = collections.Counter(sum(turn["reward"] for turn in trajectory["turns"]) for trajectory in played)
    failed += [f"rewards that the server never gave: {returns - rewards}"] * bool(returns - rewards)
    stops = collections.Counter(json.dumps(trajectory["stop"]) for trajectory in played)
    failed += ["errors of the environment"] * any("error" in stop for stop in stops)
    solved = successes(run)
    failed += ["nothing was learnt"] * (not solved[-1][0] / solved[-1][1] > 0.3)
    print(f"{len(played)} trajectories, {len(called)} calls on the server, ends {dict(stops)}")
    print(f"test tasks solved, of {solved[0][1]}: {solved[0][0]} after the warm start, {solved[-1][0]} at the end")
    return failed


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--turnwise", default=ROOT / "target/release/turnwise", type=pathlib.Path)
    arguments.add_argument("--episodes", default=8, type=int, help="episodes at once")
    arguments.add_argument("--serve", help=argparse.SUPPRESS)
    arguments.add_argument("overrides", nargs="*")
    options = arguments.parse_intermixed_args()
    if options.serve:
        return serve(None if options.serve == "stdio" else int(options.serve))
    failed, rolled = [], {}
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        files, log, run = task_files(folder), folder / "calls.jsonl", folder / "run"
        log.touch()
        environment = {**os.environ, "MCP_LOG": str(log)}
        tasks = f'env.tasks={{train="{files["train"]}", test="{files["test"]}"}}'
        server, url = start(log)
        ways = {
            "http": [f'env.urls=["{url}"]', "env.command=[]"],
            "stdio": [f'env.command=["{sys.executable}", "{pathlib.Path(__file__).resolve()}", "--serve", "stdio"]', 'env.environment=["MCP_LOG"]', "env.urls=[]"],
        }
        common = [tasks, f"env.sessions={options.episodes}"]
        try:
            started = time.monotonic()
            command = [options.turnwise, "train", ROOT / "configs/remote/mcp.toml", "--runs", folder, "name=run"]
            subprocess.run([*command, *common, *ways["http"], *options.overrides], check=True, stderr=subprocess.DEVNULL)
            failed += check(run, log)
            print(f"success by step: {[round(line['train/success_rate'], 3) for line in steps(run)]}, {time.monotonic() - started:.0f} s in all")
            for way, settings in ways.items():
                started, out = time.monotonic(), folder / f"{way}.jsonl"
                command = [options.turnwise, "rollout", run, "--split", "test", "--tasks", "0", "--output", out]
                subprocess.run([*command, *common, *settings], check=True, env=environment, stderr=subprocess.DEVNULL)
                played = lines(out)
                rolled[way] = [[(turn["action"], turn["reward"]) for turn in t["turns"]] for t in played]
                ends = collections.Counter(t["stop"]["kind"] for t in played)
                print(f"{way}: {len(played)} trajectories of the trained policy, {dict(ends)}, {time.monotonic() - started:.0f} s")
        finally:
            server.terminate()
    failed += ["the two ways differ"] * (rolled["http"] != rolled["stdio"])
    print("all checks passed" if not failed else "FAILED: " + "; ".join(failed))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
