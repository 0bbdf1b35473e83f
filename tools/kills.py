#!/usr/bin/env python3
"""Kills runs, sweeps, programs of environments and servers at random moments and checks that nothing is lost.

    tools/kills.py PROGRAM [--kills 200] [--seed 0] [--only run,sweep,worker,retriever,view]

PROGRAM is a built `turnwise`; `serve` and `agent` need its feature `serve`, and `mcp`, `mcp-http` and `openenv` its feature `remote`.
They run only if named.

| kind | killed |
|---|---|
| run | the run |
| sweep | the sweep |
| worker | the run, or its environment's program (JSON lines) |
| retriever | the run, or the `turnwise index serve` that its searches go to |
| view | `turnwise view` of a run in progress, which must not notice |
| serve | `turnwise serve` while clients stream: what they got must be a part of the text that a new server gives |
| agent | the run, or a program of `env.kind = "agent"` |
| mcp | the run, or an MCP program |
| mcp-http, openenv | the run, or the environment's server |

A killed run or sweep is resumed until it finishes, and a killed server is started again. Weights, optimizer, trajectories,
evaluations and metrics must then equal those of an uninterrupted run bit for bit, except times and speeds. If the metrics or
the output say that episodes were lost with a program or server, only the names of the files must be equal. A run that stops by itself gives one
error. No program outlives its run by more than ten seconds. Exits with 1 at the first difference.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from kills_scenes import SCENES

ROOT = pathlib.Path(__file__).resolve().parent.parent


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
        elif name.endswith("state.json"):
            # The base is named by its absolute path, and the folders have random names.
            found[name] = path.read_text().replace(str(runs.parent), "")
        elif name.endswith((".safetensors", ".jsonl.zst")):
            found[name] = path.read_bytes()
    return found


def lost_episodes(value):
    """Returns true if a number in the metrics or evaluations says that an episode failed."""
    if isinstance(value, dict):
        return any(
            key.rsplit("/")[-1] in ("error_rate", "errors", "failed", "masked", "resampled") and bool(inner)
            or lost_episodes(inner)
            for key, inner in value.items()
        )
    return isinstance(value, list) and any(map(lost_episodes, value))


def descendants(pid):
    """Returns the processes that a process has started and theirs, each with its start time, because ids are used again."""
    found = set()
    with contextlib.suppress(OSError):
        for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
            for child in path.read_text().split():
                found |= {(child, started(child))} | descendants(child)
    return found


def started(pid):
    """Returns when a process was started, or None if it has ended."""
    with contextlib.suppress(OSError):
        state, *others = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else others[18]
    return None


class Server:
    """A server of a scene, on a free port, which is started again after a kill."""

    def __init__(self, arguments, folder, port, errors=subprocess.DEVNULL):
        self.arguments, self.folder, self.port, self.errors, self.process = arguments, folder, port, errors, None

    def start(self):
        self.process = subprocess.Popen(
            self.arguments, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors
        )
        for _ in range(400):
            with contextlib.suppress(OSError):
                return socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            time.sleep(0.05)
        raise SystemExit(f"{self.arguments} does not listen on {self.port}")

    def stop(self):
        self.process.kill()
        self.process.wait()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Training:
    """A scene's command, in new folders."""

    def __init__(self, program, scene):
        self.program, self.scene = program, scene
        # The same in every folder, because it is in the config.
        self.port = free_port()
        self.prepared = None

    def filled(self, text):
        return text.replace("PORT", str(self.port)).replace("PROGRAM", self.program).replace("ROOT", str(ROOT))

    @contextlib.contextmanager
    def folder(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="turnwise-kills-"))
        self.prepared = self.prepared or self.prepare()
        shutil.copytree(self.prepared.name, folder, dirs_exist_ok=True)
        server = None
        if "server" in self.scene:
            server = Server([self.filled(part) for part in self.scene["server"]], folder, self.port)
            server.start()
        try:
            yield folder, server
        finally:
            if server:
                server.stop()
            shutil.rmtree(folder)

    def prepare(self):
        """Fills a folder once, and returns it."""
        folder = tempfile.TemporaryDirectory(prefix="turnwise-kills-")
        for name, text in self.scene.get("files", {}).items():
            pathlib.Path(folder.name, name).write_text(self.filled(text))
        for command in self.scene.get("prepare", []):
            done = subprocess.run([self.filled(part) for part in command], cwd=folder.name, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        return folder

    def spawn(self, folder, arguments):
        return subprocess.Popen(
            [self.program, *(self.filled(argument) for argument in arguments)], cwd=folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )

    def straight(self):
        with self.folder() as (folder, _):
            begun = time.monotonic()
            _, errors = (process := self.spawn(folder, self.scene["start"])).communicate()
            assert process.returncode == 0, errors
            return outcome(folder / "runs"), time.monotonic() - begun

    def killed_until_done(self, draws, length, most):
        """Returns the outcome of a run that was killed repeatedly, the number of kills, whether something else than the run was
        killed, and whether demonstrations were lost. Episodes may end with an error if something else was killed, and the run
        continues with other numbers."""
        kills, foreign, missing = 0, False, False
        with self.folder() as (folder, server):
            for number in range(1000):
                resumes = (folder / self.scene["begun"]).exists()
                if not resumes:
                    shutil.rmtree(folder / "runs", ignore_errors=True)
                process = self.spawn(folder, self.scene["again" if resumes else "start"])
                if kills < most:
                    time.sleep(0.02 + draws.random() * length * (4 + number) / 12)
                programs = set()
                if kills < most and process.poll() is None:
                    programs = descendants(process.pid)
                    done, other = self.kill(process, server, draws)
                    kills += done
                    foreign |= other
                _, errors = process.communicate()
                assert "panicked" not in errors, errors
                # The line about demonstrations counts those that ended with their server.
                missing |= "failed in the environment" in errors
                self.ended(programs)
                if process.returncode == 0 and (kills >= most or self.finished(folder)):
                    break
                assert kills > 0 or process.returncode == 0, errors
                # By itself it stops with one error and no more.
                stopped = process.returncode > 0 and sum(line.startswith("error:") for line in errors.splitlines())
                assert stopped in (False, 1), errors
            else:
                raise SystemExit("it does not finish")
            return outcome(folder / "runs"), kills, foreign, missing

    def ended(self, programs):
        """Waits for programs to end."""
        until = time.monotonic() + 10
        while left := [pid for pid, begun in programs if begun is not None and started(pid) == begun]:
            if time.monotonic() > until:
                lines = [pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left if started(pid)]
                raise SystemExit(f"these outlive their run: {lines}")
            time.sleep(0.05)

    def kill(self, process, server, draws):
        """Kills the run, or with the same chance one of the programs that it uses."""
        victims = [process.pid]
        if self.scene.get("children"):
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
            victims += [int(child) for child in children.read_text().split()] if children.exists() else []
        if server:
            victims.append(server.process.pid)
        victim = draws.choice(victims)
        if server and victim == server.process.pid:
            server.stop()
            time.sleep(draws.random())
            server.start()
            return 1, True
        try:
            os.kill(victim, draws.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
        except ProcessLookupError:
            return 0, False
        if victim != process.pid and draws.random() < 0.5:
            process.kill()
        return 1, victim != process.pid

    def finished(self, folder):
        states = [json.loads(path.read_text())["state"] for path in (folder / "runs").rglob("status.json")]
        return bool(states) and all(state == "finished" for state in states)


def clients(code):
    return [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) for _ in range(2)]


def viewer(program, draws, most):
    """Kills viewers of a run in progress; the run must be the same as without."""
    training, kills = Training(program, SCENES["run"]), 0
    expected, _ = training.straight()
    with training.folder() as (folder, _):
        while kills < most:
            shutil.rmtree(folder / "runs", ignore_errors=True)
            process = training.spawn(folder, training.scene["start"])
            while not (folder / training.scene["begun"]).exists():
                time.sleep(0.01)
            while process.poll() is None and kills < most:
                port = free_port()
                server = Server([program, "view", "runs/run", "--address", f"127.0.0.1:{port}"], folder, port)
                server.start()
                readers = clients(f"import urllib.request as u\nwhile 1: u.urlopen('http://127.0.0.1:{port}/').read()")
                time.sleep(draws.random() * 0.3)
                server.process.send_signal(draws.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
                server.process.wait(timeout=20)
                for reader in readers:
                    reader.kill()
                    reader.wait()
                kills += 1
            _, errors = process.communicate()
            assert process.returncode == 0, errors
            assert outcome(folder / "runs") == expected, "the run differs"
    return kills


class Streams:
    """Clients that ask a server for the same greedy text and read it in pieces."""

    def __init__(self, port, prompts):
        self.port, self.prompts, self.got, self.stopped, self.wrong = port, prompts, [], False, []
        self.threads = [threading.Thread(target=self.work, args=(number,)) for number in range(4)]
        for thread in self.threads:
            thread.start()

    def work(self, number):
        while not self.stopped:
            prompt = self.prompts[number % len(self.prompts)]
            text, complete = [], False
            try:
                with urllib.request.urlopen(question(self.port, prompt, stream=True), timeout=20) as reply:
                    for line in reply:
                        if not line.endswith(b"\n"):
                            break
                        if line.startswith(b"data: [DONE]"):
                            complete = True
                        elif line.startswith(b"data: "):
                            text += [choice["delta"].get("content") or "" for choice in json.loads(line[6:])["choices"]]
            except ValueError as error:
                self.wrong.append(f"{prompt}: {error}")
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)
            self.got.append((prompt, "".join(text), complete))
            number += 1

    def stop(self):
        self.stopped = True
        for thread in self.threads:
            thread.join()


def question(port, prompt, stream):
    body = {"model": "model", "messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 400}
    return urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body | {"stream": stream}).encode(),
        {"content-type": "application/json"},
    )


def answers(port, prompts):
    """Returns the greedy texts, each asked for by itself."""
    found = {}
    for prompt in prompts:
        with urllib.request.urlopen(question(port, prompt, stream=False), timeout=60) as reply:
            found[prompt] = json.load(reply)["choices"][0]["message"]["content"]
    return found


def streamed(program, draws, most):
    """Kills servers while clients stream, and returns the numbers of streams that ended and that broke off."""
    training, prompts = Training(program, SCENES["serve"]), [f"go to the {word}" for word in ("desk", "shelf", "sink", "lamp")]
    whole = broken = 0
    with training.folder() as (folder, _):
        files = {path: path.read_bytes() for path in (folder / "model").iterdir()}
        with open(folder / "errors", "w") as errors:
            server = Server([training.filled(part) for part in training.scene["serve"]], folder, training.port, errors)
            server.start()
            expected = answers(training.port, prompts)
            assert all(expected.values()), expected
            for _ in range(most):
                streams = Streams(training.port, prompts)
                time.sleep(0.02 + draws.random())
                killer = draws.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
                server.process.send_signal(killer)
                server.process.wait(timeout=60)
                streams.stop()
                assert not streams.wrong, streams.wrong
                for prompt, text, complete in streams.got:
                    assert text == expected[prompt] if complete else expected[prompt].startswith(text), (prompt, text, expected[prompt])
                whole += sum(complete for _, _, complete in streams.got)
                broken += sum(bool(text) and not complete for _, text, complete in streams.got)
                server.start()
                assert answers(training.port, prompts) == expected, "the text differs after a restart"
            server.stop()
        assert "panicked" not in (folder / "errors").read_text(), (folder / "errors").read_text()
        assert files == {path: path.read_bytes() for path in (folder / "model").iterdir()}, "the model's files differ"
    return whole, broken


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=lambda text: str(pathlib.Path(text).resolve()))
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="run,sweep,worker,retriever,view")
    options = parser.parse_args()
    draws = random.Random(options.seed)
    kinds = options.only.split(",")
    share = -(-options.kills // len(kinds))
    for kind in kinds:
        if kind == "view":
            print(f"view: {viewer(options.program, draws, share)} kills, 0 differences", flush=True)
            continue
        if kind == "serve":
            whole, broken = streamed(options.program, draws, share)
            print(f"serve: {share} kills, 0 differences ({whole} whole streams, {broken} broken off)", flush=True)
            continue
        training = Training(options.program, SCENES[kind])
        expected, length = training.straight()
        done = runs = losses = 0
        while done < share:
            found, kills, foreign, missing = training.killed_until_done(draws, length, min(8, share - done))
            # SIGINT and SIGTERM write an extra checkpoint, which displaces an older one of those that are kept. The last one of a
            # phase is always kept.
            others = {name for name in found.keys() ^ expected.keys() if "/checkpoints/" in name}
            names = (expected.keys() | found.keys()) - others
            if lost := foreign and (missing or lost_episodes(list(found.values()))):
                names = {name for name in names if (name in expected) != (name in found)}
            differ = sorted(name for name in names if expected.get(name) != found.get(name))
            if differ:
                raise SystemExit(f"{kind}: after {kills} kills these differ: {differ}")
            done, runs, losses = done + kills, runs + 1, losses + lost
        more = f" ({losses} runs lost episodes)" if losses else ""
        print(f"{kind}: {done} kills in {runs} runs, 0 differences{more}", flush=True)


main()
