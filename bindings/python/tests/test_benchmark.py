"""Scores equal the program's; functions of the user's own are scored like presets."""

from __future__ import annotations

import csv
import io
import json
import random
import subprocess

import numpy as np
import pytest

import turnwise
from turnwise import benchmark


def truth_line(draw: random.Random, task: int, sample: int, step: int) -> dict:
    """A played trajectory in the program's own form, with an invented truth."""
    turns, truth = [], []
    solved = draw.random() < 0.5
    count = draw.randint(1, 4)
    for index in range(count):
        last = index == count - 1
        turn = {
            "observation": f"room {draw.randint(0, 2)}",
            "action": draw.choice(["go", "look"]),
            "response": "x",
            "valid": True,
            "reward": 1.0 if last and solved else 0.0,
            "entropies": [draw.random()],
        }
        turns.append(turn)
        a_star = draw.gauss(0.2 if solved else -0.2, 0.3)
        halves = [a_star + draw.gauss(0, 0.05), a_star + draw.gauss(0, 0.05)]
        entry = {"v": 0.5, "v_error": 0.03, "q": 0.5 + a_star, "q_error": 0.03, "a_star": sum(halves) / 2}
        truth.append({**entry, "a_star_error": 0.04, "k": 8, "halves": halves})
    source = {"method": "branching", "policy": "tiny", "config": "0", "split": "train", "gamma": 1.0}
    source |= {"continuations": 8, "samples": 4, "tasks": 6, "seed": 0}
    trajectory = {"schema_version": 1, "task": {"id": f"t{task}", "kind": "k", "goal": "g"}, "turns": turns}
    trajectory |= {"group": task, "sample": sample, "step": step, "success": solved, "stop": {"kind": "terminated"}}
    return {**trajectory, "truth": truth, "benchmark": source}


@pytest.fixture
def truth_file(tmp_path):
    draw = random.Random(3)
    lines = [truth_line(draw, task, sample, task % 2) for task in range(6) for sample in range(4)]
    # The order of lines is not that of steps and groups.
    draw.shuffle(lines)
    path = tmp_path / "truth.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_truth_is_read_as_it_was_written(truth_file):
    truth = benchmark.read(truth_file)
    lines = [json.loads(line) for line in truth_file.read_text().splitlines()]
    assert len(truth) == 24 and truth.source["policy"] == "tiny"
    assert truth.turns == [line["truth"] for line in lines]
    assert [len(row) for row in truth.a_star] == [len(one["turns"]) for one in truth.batch]
    assert truth.a_star[0][0] == lines[0]["truth"][0]["a_star"]
    lines[3]["truth"] = None
    del lines[4]["truth"]
    truth_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ValueError, match="line 5 is not a trajectory with its truth"):
        benchmark.read(truth_file)


def test_scores_are_the_programs(truth_file, program):
    command = [program, "benchmark", "score", truth_file, "--format", "csv", "--preset", "gigpo", "--baseline", "grpo"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = list(csv.DictReader(io.StringIO(text)))

    def of_program(method: str, measure: str, part: str = "") -> list[float]:
        row = next(row for row in rows if (row["method"], row["measure"], row["part"]) == (method, measure, part))
        return [float(row[key]) for key in ("value", "low", "high")]

    found = benchmark.score(truth_file, "gigpo", against="grpo")
    for measure in ["pearson", "within_corrected", "spearman_corrected", "signs", "slope"]:
        estimate = getattr(found, measure)
        assert [estimate.value, estimate.low, estimate.high] == of_program("gigpo", measure), measure
    difference = found.difference.within_corrected
    program_says = of_program("gigpo", "within_corrected_difference", "grpo")
    assert [difference.value, difference.low, difference.high] == program_says
    assert found.truth["turns"] == sum(len(one["turns"]) for one in benchmark.read(truth_file).batch)
    assert benchmark.score(truth_file, "rloo").pearson != found.pearson


def test_a_function_is_scored_like_a_preset(truth_file):
    truth = benchmark.read(truth_file)
    preset = benchmark.score(truth, "gigpo", estimator={"omega": 0.5})
    calls = []

    def mine(batch):
        calls.append({one["step"] for one in batch})
        return turnwise.credit(batch, "gigpo", estimator={"omega": 0.5})

    found = benchmark.score(truth, mine)
    # Once a training step, as in training.
    assert sorted(map(sorted, calls)) == [[0], [1]]
    assert found.name == "mine" and found.within == preset.within and found.errors == preset.errors
    # The truth itself is perfect, and another function is another score.
    rows = iter(truth.a_star)
    by_id = {id(one): row for one, row in zip(truth.batch, rows)}
    perfect = benchmark.score(truth, lambda batch: [by_id[id(one)] for one in batch], name="a-star", against="grpo")
    assert perfect.pearson.value == pytest.approx(1) and perfect.within.value == pytest.approx(1)
    assert perfect.difference.baseline == "grpo" and float(perfect.difference.within) == pytest.approx(1)
    assert perfect.signs.value == 1 and perfect.within != found.within


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda batch: [[0.0] * len(one["turns"]) for one in batch][:-1], "one a trajectory is expected"),
        (lambda batch: [[0.0] * 9 for _ in batch], "has 9 entries"),
        (lambda batch: [[np.nan] * len(one["turns"]) for one in batch], "are not finite"),
        (lambda batch: "no rows", "a list with one entry"),
    ],
)
def test_a_wrong_answer_of_a_function_is_refused(truth_file, answer, words):
    with pytest.raises(ValueError, match=words):
        benchmark.score(truth_file, answer, name="wrong")


def test_what_a_preset_needs_and_the_truth_has_not_is_named(truth_file):
    with pytest.raises(ValueError, match="needs a critic"):
        benchmark.score(truth_file, "ppo")
    with pytest.raises(ValueError, match="switches are of presets"):
        benchmark.score(truth_file, lambda batch: [], omega=1)
    with pytest.raises(FileNotFoundError):
        benchmark.score("none.jsonl.zst", "grpo")
