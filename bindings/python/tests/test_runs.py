"""A run of the program, and dumps of other frameworks, read back."""

from __future__ import annotations

import json

import numpy as np
import pytest

import turnwise


def test_a_run_is_read(run_folder):
    run = turnwise.Run(run_folder)
    assert run.config["credit"]["estimator"]["kind"] and run.status["state"] in ("finished", "interrupted")
    metrics = run.metrics()
    assert metrics and {"phase", "step", "time"} <= metrics[0].keys()
    steps, values = run.metric("train/success_rate")
    assert steps.shape == values.shape and len(steps) > 0 and (np.diff(steps) > 0).all()
    with pytest.raises(KeyError, match="no metric 'rollout/nothing'; there are"):
        run.metric("rollout/nothing")
    evaluations = run.evaluations()
    assert evaluations and all("split" in entry for entries in evaluations.values() for entry in entries)
    kept = run.steps()
    assert kept
    trajectories = run.trajectories(kept[-1])
    assert all(len(line["advantages"]) == len(line["turns"]) for line in trajectories)
    with pytest.raises(FileNotFoundError, match="no trajectories of step 999"):
        run.trajectories(999)


def test_credit_of_a_run_is_what_the_run_had(run_folder):
    """The advantages that the program wrote come out of the wheel again, from the run's own settings."""
    run = turnwise.Run(run_folder)
    credit_settings = run.config["credit"]
    trajectories = run.trajectories(run.steps()[-1])
    credit = turnwise.credit(
        run.dump(run.steps()[-1]),
        "grpo",
        estimator=credit_settings["estimator"],
        refinements=credit_settings["refinements"],
        seed=run.config["seed"],
    )
    assert len(credit) == len(trajectories)
    for got, line in zip(credit.advantages, trajectories):
        assert np.allclose(got, line["advantages"], atol=1e-12)


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a run directory: it has no config.toml"):
        turnwise.Run(tmp_path)
    (tmp_path / "config.toml").write_text("name = \n")
    with pytest.raises(ValueError, match="config.toml"):
        turnwise.Run(tmp_path).config
    (tmp_path / "metrics.jsonl").write_text('{"phase":"rl","step":1,"a":1.5}\nnonsense\n{"phase":"rl","st')
    with pytest.raises(ValueError, match="metrics.jsonl: line 2"):
        turnwise.Run(tmp_path).metrics()
    (tmp_path / "metrics.jsonl").write_text(
        '{"phase":"sft","step":1,"a":0.5}\n{"phase":"rl","step":1,"a":1.5}\n{"phase":"rl","st'
    )
    steps, values = turnwise.Run(tmp_path).metric("a")
    assert (steps.tolist(), values.tolist()) == ([1.0], [1.5])


def test_dumps_of_others(tmp_path, program, rows_of_program):
    verl = tmp_path / "7.jsonl"
    sample = {"input": "system\nPlay.\nuser\nFind the key.\nassistant\n", "step": 7, "uid": "u1"}
    outputs = [("open box\nuser\nIt is empty.\nassistant\nopen bag", 1.0), ("give up", 0.0)]
    verl.write_text("".join(json.dumps({**sample, "output": text, "score": score}) + "\n" for text, score in outputs))
    dump = turnwise.read_dump(verl)
    assert [len(line["turns"]) for line in dump] == [2, 1] and dump[0]["turns"][0]["action"] == "open box"
    credit = turnwise.credit(dump, "gigpo")
    rows = rows_of_program(dump, "--preset", "gigpo")
    assert all(np.array_equal(got, row["advantages"]) for got, row in zip(credit.advantages, rows))
    assert credit.diagnostics.keys() == {7}
    with pytest.raises(ValueError, match="unknown format `veral`"):
        turnwise.read_dump(verl, format="veral")
    with pytest.raises(ValueError, match="7.jsonl: line 1"):
        turnwise.read_dump(verl, format="turnwise")
    with pytest.raises(OSError, match="absent.jsonl"):
        turnwise.read_dump(tmp_path / "absent.jsonl")


def test_the_notes_of_a_reader_are_warnings(tmp_path):
    node = {"parent": None, "sampled": True, "message": {"role": "assistant", "content": "look"}}

    def trace(name, score):
        reward = None if score is None else {"score": score}
        return {"agent": {"name": name}, "nodes": [node], "rewards": {"right": reward}}

    def episode(*traces):
        return json.dumps({"group": {"id": "g1"}, "task": {"data": {}}, "traces": traces}) + "\n"

    path = tmp_path / "traces.jsonl"
    # Solvers are compared with solvers, critics with critics.
    path.write_text(
        episode(trace("solver", 1.0), trace("critic", 0.25))
        + episode(trace("solver", 0.0), trace("critic", 0.75))
        + episode(trace("solver", None))
    )
    with pytest.warns(UserWarning, match=r"traces\.jsonl: 1 traces have no reward") as warned:
        dump = turnwise.read_dump(path)
    assert [warning.filename for warning in warned] == [__file__]
    assert [line["group"] for line in dump] == ["g1 solver", "g1 critic"] * 2
    credit = turnwise.credit(dump, "rloo", estimator={"invalid_penalty": 0.0})
    assert [row.tolist() for row in credit.advantages] == [[1.0], [-0.5], [-1.0], [0.5]]


def test_a_dump_keeps_every_number(tmp_path, make_batch):
    batch = make_batch(11)
    path = tmp_path / "batch.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in batch))
    for preset in ("aem-gigpo", "ppo", "has-progressive", "has-judge", "stapo"):
        direct, read = turnwise.credit(batch, preset), turnwise.credit(turnwise.read_dump(path), preset)
        assert all(np.array_equal(a, b) for a, b in zip(direct.advantages, read.advantages))
