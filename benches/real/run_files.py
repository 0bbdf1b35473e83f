"""Files of runs, and ports, as the scripts of this folder and of `benches` need them."""

import json
import socket
import subprocess


def lines(path):
    """The objects of a file of JSON lines, compressed where its name says so."""
    data = path.read_bytes()
    if path.suffix == ".zst":
        data = subprocess.run(["zstd", "-dcq", path], check=True, stdout=subprocess.PIPE).stdout
    return [json.loads(line) for line in data.decode().splitlines()]


def trajectories(run):
    """All trajectories of a run's directory, step by step."""
    return [line for path in sorted((run / "trajectories").iterdir()) for line in lines(path)]


def steps(run):
    """The metrics of a run's steps of reinforcement learning."""
    return [line for line in lines(run / "metrics.jsonl") if line["phase"] == "rl"]


def successes(run):
    """Solved and played test tasks of every evaluation of a run, the first split's."""
    found = [json.loads(path.read_text())[0]["success"] for path in sorted((run / "eval").glob("*.json"))]
    return [(one["successes"], one["trials"]) for one in found]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
