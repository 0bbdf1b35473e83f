"""Runs in the real trackers, offline or in a store on this machine, read back by the tracker's own reader."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import turnwise
from turnwise import trackers
from turnwise._runs import NewLines

EVALUATION = {
    "split": "test",
    "seed": 0,
    "success": {"successes": 3, "trials": 4, "rate": 0.75, "low": 0.3, "high": 0.95},
    "kinds": {"sum": {"successes": 3, "trials": 4, "rate": 0.75, "low": 0.3, "high": 0.95, "mean_turns": 2.0}},
    "mean_turns": 2.5,
}


class Training:
    """A run directory that grows as a training writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "eval").mkdir(parents=True)
        (path / "config.toml").write_text('name = "small"\n[train]\nsteps = 4\n[env]\nkind = "ezpoints"\nsplits = ["a", "b"]\n')
        self.state("running")

    def state(self, state: str) -> None:
        (self.path / "status.json").write_text(json.dumps({"state": state}))

    def steps(self, phase: str, steps: range, mode: str = "a") -> None:
        with (self.path / "metrics.jsonl").open(mode) as file:
            for step in steps:
                line = {"phase": phase, "step": step, "time": 1.7e9 + step, "loss/total": step / 10, "perf/wait_time": 0.5, "missing": None}
                file.write(json.dumps(line) + "\n")

    def evaluate(self, label: str, rate: float) -> None:
        result = EVALUATION | {"success": EVALUATION["success"] | {"rate": rate}}
        (self.path / "eval" / f"{label}.json").write_text(json.dumps([result]))


@pytest.fixture
def training(tmp_path):
    return Training(tmp_path / "small-seed0")


def _records(data: bytes) -> Iterator[bytes]:
    """The records of a log in LevelDB's format: blocks of 32 KiB after a head of 7 bytes, a record in one part or several."""
    at, record, block = 7, b"", 32768
    while at + 7 <= len(data):
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record += data[at + 7 : at + 7 + length]
        # 1 is a whole record and 4 the last part of one.
        if kind in (1, 4):
            yield record
            record = b""
        at += 7 + length
        if block - at % block < 7:
            at += block - at % block


def _ended(path: Path) -> list[Any]:
    """The records of a file of wandb. Its service may still be writing when a run has ended."""
    from wandb.proto import wandb_internal_pb2

    until = time.monotonic() + 30
    while True:
        records = [wandb_internal_pb2.Record.FromString(data) for data in _records(path.read_bytes())]
        if any(record.HasField("exit") for record in records):
            return records
        assert time.monotonic() < until, f"{path} has no end"
        time.sleep(0.1)


class Store:
    """What a tracker has stored: values by metric as ``{step: value}``, settings, tables by name, and the state."""

    def __init__(self, to: str, folder: Path, monkeypatch) -> None:
        pytest.importorskip(to)
        self.to, self.folder = to, folder
        monkeypatch.setenv("WANDB_MODE", "offline")
        monkeypatch.setenv("WANDB_DIR", str(folder))
        monkeypatch.setenv("WANDB_SILENT", "true")
        monkeypatch.setenv("TRACKIO_DIR", str(folder))
        if to == "wandb":
            import wandb

            # It keeps the folder of the test before.
            wandb.teardown()
        if to == "mlflow":
            import mlflow

            # It writes artifacts to the working directory.
            monkeypatch.chdir(folder)
            mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        if to == "trackio":
            from trackio import sqlite_storage

            # Read from the environment when the package is first imported.
            monkeypatch.setattr(sqlite_storage, "TRACKIO_DIR", folder)

    def read(self, id: str, metric: str) -> dict[int, float]:
        return getattr(self, f"_{self.to}")(id, metric)

    def _mlflow(self, id: str, metric: str) -> dict[int, float]:
        from mlflow import MlflowClient

        return {point.step: point.value for point in MlflowClient().get_metric_history(id, metric)}

    def _trackio(self, id: str, metric: str) -> dict[int, float]:
        from trackio.sqlite_storage import SQLiteStorage

        return {line["step"]: line[metric] for line in SQLiteStorage.get_logs("turnwise", id) if metric in line}

    def _wandb(self, id: str, metric: str) -> dict[int, float]:
        axis = "sft/step" if metric.startswith("sft/") else "step"
        found, places = {}, []
        for path in sorted(self.folder.glob(f"wandb/offline-run-*/run-{id}.wandb")):
            for record in _ended(path):
                items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                if items:
                    places.append(record.history.step.num)
                if metric in items:
                    found[items[axis]] = items[metric]
        # The server drops lines whose step is below one that it has.
        assert places == sorted(set(places))
        return found


@pytest.fixture(params=list(trackers.TRACKERS))
def store(request, tmp_path, monkeypatch):
    return Store(request.param, tmp_path, monkeypatch)


def test_metrics_and_evaluations_arrive(training, store):
    training.steps("sft", range(1, 4))
    training.steps("rl", range(1, 5))
    training.evaluate("sft-000003", 0.5)
    training.evaluate("step-000004", 0.75)
    training.state("finished")
    id = trackers.log(training.path, store.to)
    assert store.read(id, "loss/total") == {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}
    assert store.read(id, "sft/loss/total") == {1: 0.1, 2: 0.2, 3: 0.3}
    assert store.read(id, "eval/test/success") == {0: 0.5, 4: 0.75}
    assert store.read(id, "eval/test/sum/success") == {0: 0.75, 4: 0.75}
    assert store.read(id, "missing") == {}
    assert store.read(id, "perf/wait_time") == dict.fromkeys(range(1, 5), 0.5)


def test_a_resumed_run_is_continued_in_the_same_run(training, store):
    training.steps("rl", range(1, 4))
    training.state("interrupted")
    id = trackers.log(training.path, store.to)
    # The training resumes from its checkpoint after step 2, so it writes its third line again.
    training.steps("rl", range(1, 3), mode="w")
    training.steps("rl", range(3, 6))
    training.evaluate("step-000005", 1.0)
    training.state("finished")
    assert trackers.log(turnwise.Run(training.path), store.to) == id
    assert store.read(id, "loss/total") == {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4, 5: 0.5}
    # A call without new lines changes nothing.
    assert trackers.log(training.path, store.to) == id
    assert store.read(id, "eval/test/success") == {5: 1.0}


def test_a_run_is_followed_until_it_ends(training, store):
    def train() -> None:
        for step in range(1, 5):
            training.steps("rl", range(step, step + 1))
            time.sleep(0.1)
        training.state("finished")

    thread = threading.Thread(target=train)
    thread.start()
    id = trackers.log(training.path, store.to, follow=True, interval=0.05)
    thread.join()
    assert store.read(id, "loss/total") == {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}


def test_runs_of_one_name_stay_apart(tmp_path, store):
    runs = []
    for folder in ("first", "second"):
        run = Training(tmp_path / folder / "small-seed0")
        run.steps("rl", range(1, 3) if folder == "first" else range(1, 6))
        run.state("finished")
        runs.append((run, trackers.log(run.path, store.to)))
    (first, one), (_, other) = runs
    assert one != other
    assert [sorted(store.read(id, "loss/total")) for id in (one, other)] == [[1, 2], [1, 2, 3, 4, 5]]
    # A later call continues the run that it began.
    first.steps("rl", range(3, 4))
    assert trackers.log(first.path, store.to) == one
    assert [sorted(store.read(id, "loss/total")) for id in (one, other)] == [[1, 2, 3], [1, 2, 3, 4, 5]]


def test_lines_are_read_once(training, monkeypatch):
    path = training.path / "metrics.jsonl"
    lines = NewLines(path)
    assert lines.read() == []
    training.steps("rl", range(1, 4))
    assert [line["step"] for line in lines.read()] == [1, 2, 3]
    parsed = []
    monkeypatch.setattr(NewLines, "_parse", lambda self, line: parsed.append(line) or json.loads(line))
    training.steps("rl", range(4, 5))
    with path.open("a") as file:
        file.write('{"phase": "rl", "st')
    assert [line["step"] for line in lines.read()] == [4] and len(parsed) == 1
    with path.open("a") as file:
        file.write('ep": 5}\n')
    assert [line["step"] for line in lines.read()] == [5] and lines.read() == []
    # Written again, once shorter than before and once longer.
    for steps in (range(2, 3), range(3, 9)):
        training.steps("rl", steps, mode="w")
        assert [line["step"] for line in lines.read()] == list(steps)
    monkeypatch.undo()
    with path.open("a") as file:
        file.write("{\n")
    with pytest.raises(ValueError, match="metrics.jsonl: the line that ends at byte"):
        lines.read()


def test_mlflow_has_the_settings_and_the_state(training, tmp_path, monkeypatch):
    Store("mlflow", tmp_path, monkeypatch)
    from mlflow import MlflowClient

    training.evaluate("step-000002", 0.75)
    training.state("failed")
    run = MlflowClient().get_run(trackers.log(training.path, "mlflow", project="other", name="mine"))
    assert run.data.params == {"name": "small", "train.steps": "4", "env.kind": "ezpoints", "env.splits": '["a", "b"]'}
    assert (run.info.status, run.info.run_name) == ("FAILED", "mine")
    assert run.data.metrics["best/eval/test/success"] == 0.75


def test_mistakes_are_named(training, monkeypatch):
    with pytest.raises(ValueError, match="unknown tracker 'neptune': use wandb, mlflow, trackio"):
        trackers.log(training.path, "neptune")
    with pytest.raises(FileNotFoundError, match="not a run directory"):
        trackers.log(training.path / "eval", "wandb")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ModuleNotFoundError, match="pip install wandb"):
        trackers.log(training.path, "wandb")
    (training.path / "trackers.json").write_text("{")
    with pytest.raises(ValueError, match="trackers.json: .*delete it"):
        trackers.log(training.path, "wandb")


def test_the_command_names_its_mistakes(tmp_path):
    command = [sys.executable, "-m", "turnwise", "log", str(tmp_path), "--to", "wandb"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1 and ended.stderr == f"turnwise: {tmp_path} is not a run directory: it has no config.toml\n"
