"""What several test files use: the program, and batches to compute on."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def program() -> Path:
    """The program `turnwise`, named by TURNWISE_PROGRAM or built by cargo."""
    named = os.environ.get("TURNWISE_PROGRAM")
    if named:
        # Whoever names one wants these tests: another program in its place, or none, is not what was asked for.
        if not Path(named).is_file():
            pytest.fail(f"TURNWISE_PROGRAM is {named}, which is not a file")
        return Path(named)
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "turnwise"
    if built.is_file():
        return built
    found = shutil.which("turnwise")
    if found is None:
        pytest.skip("the program is not built: cargo build --release")
    return Path(found)


@pytest.fixture(scope="session")
def run_folder(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the program: the one that TURNWISE_RUN names, or the shortest quickstart."""
    if "TURNWISE_RUN" in os.environ:
        return Path(os.environ["TURNWISE_RUN"])
    runs = tmp_path_factory.mktemp("runs")
    subprocess.run([program, "quickstart", "--smoke", "--runs", runs], check=True, capture_output=True)
    return next(path.parent for path in runs.glob("*/config.toml"))


def batch(seed: int, groups: int = 4, samples: int = 5) -> list[dict]:
    """Trajectories with everything that a method can read: repeated states, invalid turns, groups of one, ties."""
    draw = random.Random(seed)
    found = []
    for group in range(groups):
        solvable = draw.random() < 0.8
        for _ in range(1 if group == groups - 1 else samples):
            count = draw.randint(1, 6)
            turns = []
            for index in range(count):
                tokens = draw.randint(1, 4)
                # A few turns of unusual entropy.
                scale = 12.0 if draw.random() < 0.06 else 1.0
                turns.append(
                    {
                        "observation": f"room {draw.randint(0, 3)}",
                        "action": draw.choice(["go", "take mug", "look"]),
                        "reward": draw.choice([0.0, 0.0, 1.0, 10.0]) if solvable and index == count - 1 else 0.0,
                        "valid": draw.random() < 0.9,
                        "entropies": [(0.5 + draw.random()) * scale for _ in range(tokens)],
                        "progress": draw.random(),
                        "state_value": index / 7,
                        "values": [draw.gauss(0, 1) for _ in range(tokens)],
                        "credit": draw.random(),
                    }
                )
            found.append({"group": f"task-{group}", "task": "find the mug", "turns": turns, "final_observation": "end"})
    draw.shuffle(found)
    return found


@pytest.fixture(name="make_batch", scope="session")
def make_batch_fixture():
    return batch


def of_program(program: Path, folder: Path, trajectories: list[dict], *arguments: str) -> list[dict]:
    """The rows that `turnwise credit` writes for these trajectories, in their order."""
    given, written = folder / "given.jsonl", folder / "written.jsonl"
    given.write_text("".join(json.dumps(line) + "\n" for line in trajectories))
    command = [program, "credit", given, "-o", written, *arguments]
    subprocess.run(command, check=True, capture_output=True)
    rows = [json.loads(line) for line in written.read_text().splitlines()]
    return sorted(rows, key=lambda row: row["line"])


@pytest.fixture(name="rows_of_program")
def rows_of_program_fixture(program: Path, tmp_path: Path):
    return lambda trajectories, *arguments: of_program(program, tmp_path, trajectories, *arguments)


class Responses:
    """Trajectories as a framework has them: one response each, the environment's tokens between the turns."""

    def __init__(self, batch: list[dict]) -> None:
        self.batch = batch
        self.groups = [line["group"] for line in batch]
        self.masks, self.abouts, self.entropies, self.rewards = [], [], [], []
        for line in batch:
            mask: list[int] = []
            entropies: list[float] = []
            rewards: list[float] = []
            for turn in line["turns"]:
                if mask:
                    mask += [0, 0]
                    entropies += [9.0, 9.0]
                    rewards += [0.0, 0.0]
                mask += [1] * len(turn["entropies"])
                entropies += turn["entropies"]
                rewards += [0.0] * (len(turn["entropies"]) - 1) + [turn["reward"]]
            keys = ("observation", "action", "valid", "progress")
            turns = [{key: turn[key] for key in keys} for turn in line["turns"]]
            about = {"turns": turns, "task": line["task"], "final_observation": line["final_observation"]}
            self.masks.append(np.array(mask))
            self.entropies.append(np.array(entropies))
            self.rewards.append(np.array(rewards))
            self.abouts.append(about)
        self.width = max(len(mask) for mask in self.masks)

    def spread(self, index: int, per_turn: list) -> np.ndarray:
        """Numbers of turns over the tokens of a response."""
        found = np.zeros(len(self.masks[index]))
        lengths = [len(turn["entropies"]) for turn in self.batch[index]["turns"]]
        found[self.masks[index] == 1] = np.repeat(np.array(per_turn, dtype=float), lengths)
        return found

    def padded(self, rows: list, right_aligned: bool = False) -> np.ndarray:
        """Rows of different lengths as one array."""
        found = np.zeros((len(rows), self.width))
        for index, row in enumerate(rows):
            if right_aligned:
                found[index, self.width - len(row) :] = row
            else:
                found[index, : len(row)] = row
        return found


@pytest.fixture(name="expected_of")
def expected_of_fixture(rows_of_program):
    """The program's advantages over the tokens of responses, one array a row."""

    def expected(responses: Responses, preset: str, *arguments: str) -> list[np.ndarray]:
        rows = rows_of_program(responses.batch, "--preset", preset, *arguments)
        return [responses.spread(index, row["advantages"]) for index, row in enumerate(rows)]

    return expected


@pytest.fixture
def responses() -> Responses:
    return Responses(batch(21))
