"""Training and evaluation in this process: a small run, Ctrl-C, resuming, errors, methods of one's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import turnwise
from turnwise import _native, _train

pytestmark = pytest.mark.skipif(not hasattr(_native, "train"), reason="the wheel was built without the trainer")

TINY = {
    "name": "tiny",
    "env": {"max_turns": 4, "generator": {"size": "tiny", "train": 12, "valid_seen": 0, "valid_unseen": 4}},
    "prompt": {"validity": "admissible"},
    "policy": {"scratch": {"hidden_size": 16, "layers": 1, "heads": 2, "key_value_heads": 1, "intermediate_size": 32}},
    "sft": {"steps": 4, "warmup": 0, "demonstrations": 24, "learning_rate": 1e-2},
    "rollout": {"tasks_per_step": 2, "group_size": 4, "max_response_tokens": 6, "max_model_len": 512},
    "train": {"steps": 2, "learning_rate": 1e-3},
    "eval": {"splits": ["valid_unseen"], "tasks": 4},
}


def test_a_run_is_trained_resumed_and_evaluated(tmp_path):
    events = []
    others = threading.Event()
    thread = threading.Thread(target=others.set)

    def report(event):
        if not events:
            # Other threads run while it trains.
            thread.start()
        events.append(event)

    run = turnwise.train(TINY, preset="gigpo", runs=tmp_path, progress=report)
    assert others.wait(5)
    assert isinstance(run, turnwise.Run) and run.path == tmp_path / "tiny"
    assert run.status["state"] == "finished" and run.config["credit"]["estimator"]["kind"] == "gigpo"
    steps = [event["step"] for event in events if event["event"] == "step" and event["phase"] == "rl"]
    assert steps == [1, 2] and "loss/total" in [e for e in events if e["event"] == "step"][-1]["metrics"]
    assert [event["at"] for event in events if event["event"] == "evaluation"] == list(run.evaluations())
    more = turnwise.train({"train": {"steps": 3}}, resume=run, progress=False)
    assert more.path == run.path and more.metric("train/success_rate")[0].tolist() == [1, 2, 3]
    found = turnwise.evaluate(run, split="valid_unseen", tasks=4, temperature=0.0, progress=False)
    assert list(found) == ["valid_unseen"] and found["valid_unseen"]["success"]["trials"] == 4
    assert found["valid_unseen"]["temperature"] == 0.0


def test_methods_of_ones_own_are_trained_with(tmp_path):
    seen = []

    @turnwise.refinement
    def doubled(batch, advantages, *, factor=2.0):
        seen.append((len(batch), batch.tokens.min(), np.isfinite(batch.entropy).all(), factor))
        return factor * advantages

    by_preset = turnwise.train({**TINY, "name": "one"}, preset=doubled, runs=tmp_path, progress=False)
    refinements = by_preset.config["credit"]["refinements"]
    assert refinements == [{"kind": "doubled", "factor": 2.0}]
    named = {"credit": {"refinements": [{"kind": "doubled", "factor": 3.0}]}}
    turnwise.train([{**TINY, "name": "two"}, named], methods=[doubled], runs=tmp_path, progress=False)
    assert [factor for *_, factor in seen] == [2.0, 2.0, 3.0, 3.0]
    assert all(turns > 0 and tokens > 0 and finite for turns, tokens, finite, _ in seen)

    @turnwise.estimator
    def fails(batch):
        raise KeyError("what it lacks")

    with pytest.raises(ValueError, match=r"fails: KeyError: 'what it lacks' \(.*line \d+, in fails\)") as caught:
        turnwise.train({**TINY, "name": "three"}, preset=fails, runs=tmp_path, progress=False)
    assert isinstance(caught.value.__cause__, KeyError)


def test_errors_name_the_key(tmp_path):
    def fails(kind, text, config, **options):
        with pytest.raises(kind, match=text):
            turnwise.train(config, runs=tmp_path, progress=False, **options)

    fails(ValueError, "train.step.*steps", {"train": {"step": 3}})
    fails(ValueError, "learning_rate", {"train": {"learning_rate": -1.0}})
    fails(ValueError, "gipgo.*gigpo", TINY, preset="gipgo")
    fails(ValueError, "refinements.*must be one of.*doubled", {"credit": {"refinements": [{"kind": "mine"}]}})
    fails(ValueError, "train.steps is of type object", {"train": {"steps": object()}})
    fails(OSError, "nowhere.toml", "nowhere.toml")
    fails(RuntimeError, "nothing to train", None)
    with pytest.raises(ValueError, match="stop here"):

        def report(event):
            raise ValueError("stop here")

        turnwise.train({**TINY, "name": "stopped"}, runs=tmp_path, progress=report)
    with pytest.raises((OSError, RuntimeError, ValueError), match="no-run"):
        turnwise.evaluate(tmp_path / "no-run", progress=False)


def test_settings_are_written_as_toml():
    found = _train._overrides(
        {"a": {"b": 1, "c": {"kind": "x", "d": [1.5, True]}}, "env": {"kind": "k", "n": np.float32(2)}, "t": 'a"b\\'}, ""
    )
    assert found == ["a.b=1", 'a.c={ "kind" = "x", "d" = [1.5, true] }', 'env.kind="k"', "env.n=2.0", 't="a\\"b\\\\"']


SCRIPT = """
import sys, turnwise
sys.path.insert(0, {tests!r})
from test_train import TINY
try:
    turnwise.train({{**TINY, "train": {{"steps": 100000, "learning_rate": 1e-3}}}}, runs={runs!r})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_stops_at_a_safe_place(tmp_path):
    script = SCRIPT.format(tests=os.path.dirname(__file__), runs=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "tiny" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.is_file() and '"phase":"rl"' in metrics.read_text()) and time.monotonic() < deadline:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0 and out == "interrupted\n", err
    run = turnwise.Run(tmp_path / "tiny")
    assert run.status["state"] == "interrupted"
    done = run.metric("loss/total")[0].tolist()
    more = turnwise.train({"train": {"steps": len(done) + 1}}, resume=run, progress=False)
    assert more.metric("loss/total")[0].tolist() == [*done, len(done) + 1]


def test_the_program_is_in_the_wheel(tmp_path):
    def program(*arguments):
        command = [sys.executable, "-m", "turnwise", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    assert program("--version").stdout == f"turnwise {turnwise.__version__}\n"
    wrong = program("train", "train.step=1")
    assert wrong.returncode == 2 and "steps" in wrong.stderr
    (tmp_path / "tiny.toml").write_text(
        'name = "s"\nbase = ["base.toml"]\nseeds = [0]\n\n[[run]]\nname = "grpo"\npreset = "grpo"\n'
    )
    (tmp_path / "base.toml").write_text("\n".join(_train._overrides(TINY, "")))
    # Its runs are processes of Python, too.
    swept = program("sweep", "tiny.toml")
    assert "1 of 1 runs are finished" in swept.stdout, swept.stdout + swept.stderr
