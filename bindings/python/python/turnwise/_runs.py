"""Run directories of ``turnwise train``, and dumps of other frameworks."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from turnwise import _native
from turnwise._arrays import Floats


def read_dump(
    path: str | PathLike[str],
    *,
    format: str | None = None,
    rewards: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    """Reads the trajectories of a file for :func:`turnwise.credit`.

    Each assistant message of a conversation is a turn; its tool calls are in ``calls``, the messages and results before it
    in ``parts``. Turns of a file without rewards have no ``reward``.

    Args:
        path: JSON lines (a run's, hand-written, verl's, verifiers', OpenAI messages, ShareGPT; also ``.zst``), ATIF (also a
            Harbor job folder), or Parquet (messages, TRL).
        format: ``turnwise``, ``verl``, ``trl``, ``verifiers``, ``messages``, ``sharegpt`` or ``atif``; by default detected
            from the file.
        rewards: reward columns of a TRL file with their weights; by default all columns with weight 1.

    Warns:
        UserWarning: for each note of the reader, such as which reward columns were used, or traces without a reward.
    """
    text, notes = _native.read_dump(fspath(path), format, list((rewards or {}).items()))
    for note in notes:
        warnings.warn(f"{fspath(path)}: {note}", stacklevel=2)
    return json.loads(text)


class Run:
    """A run directory.

    >>> run = turnwise.Run("runs/quickstart-seed0")                        # doctest: +SKIP
    >>> steps, success = run.metric("train/success_rate")               # doctest: +SKIP
    >>> credit = turnwise.credit(run.dump(12), "gigpo")              # doctest: +SKIP
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        if not (self.path / "config.toml").is_file():
            raise FileNotFoundError(f"{self.path} is not a run directory: it has no config.toml")

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def config(self) -> dict[str, Any]:
        """Settings of the run, including all defaults."""
        path = self.path / "config.toml"
        try:
            return json.loads(_native.toml_to_json(_native.read_text(path)))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @property
    def status(self) -> dict[str, Any]:
        """Dict with ``state`` (running, interrupted, finished, failed), ``position`` and optionally ``reason``."""
        return self._json("status.json")

    def metrics(self) -> list[dict[str, Any]]:
        """Returns one dict per line of ``metrics.jsonl``: metrics by name, with phase and step."""
        path = self.path / "metrics.jsonl"
        return list(_lines(path)) if path.is_file() else []

    def metric(self, name: str) -> tuple[Floats, Floats]:
        """Returns steps ``[points]`` and values ``[points]`` of an RL metric."""
        found = [(line["step"], line[name]) for line in self.metrics() if _is_rl(line) and name in line]
        if not found:
            known = sorted({key for line in self.metrics() for key in line})
            raise KeyError(f"{self.path} has no metric {name!r}; there are {', '.join(known) or 'none'}")
        pairs = np.array([(float(step), np.nan if value is None else float(value)) for step, value in found])
        return pairs[:, 0], pairs[:, 1]

    def steps(self) -> list[int]:
        """Returns the steps with saved trajectories."""
        return sorted(_step(path) for path in (self.path / "trajectories").glob("step-*.jsonl*"))

    def trajectories(self, step: int) -> list[dict[str, Any]]:
        """Returns the trajectories of a step as written, with ``advantages`` ``[turns]``."""
        return list(_lines(self._trajectories(step)))

    def dump(self, step: int) -> list[dict[str, Any]]:
        """Returns the trajectories of a step for :func:`turnwise.credit`."""
        return read_dump(self._trajectories(step), format="turnwise")

    def evaluations(self) -> dict[str, list[dict[str, Any]]]:
        """Returns the evaluations by label (``sft-000300``, ``step-000012``), each with one result per split."""
        return {label: self.evaluation(label) for label in self.evaluation_labels()}

    def evaluation_labels(self) -> list[str]:
        """Returns the sorted labels of the evaluations."""
        return sorted(path.stem for path in (self.path / "eval").glob("*.json"))

    def evaluation(self, label: str) -> list[dict[str, Any]]:
        """Returns the evaluation with a label: one result per split."""
        return self._json(f"eval/{label}.json")

    def _trajectories(self, step: int) -> Path:
        for suffix in (".jsonl.zst", ".jsonl"):
            path = self.path / "trajectories" / f"step-{step:06}{suffix}"
            if path.is_file():
                return path
        known = ", ".join(str(step) for step in self.steps()) or "none"
        raise FileNotFoundError(f"{self.path} has no trajectories of step {step}; there are those of {known}")

    def _json(self, name: str) -> Any:
        path = self.path / name
        try:
            return json.loads(_native.read_text(path))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}: {error}") from None


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    lines = _native.read_text(path).split("\n")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                # The run was killed while it wrote the last line.
                if number == len(lines):
                    return
                raise ValueError(f"{path}: line {number}: {error}") from None


class NewLines:
    """Reads the lines added to a JSON lines file since the last call.

    A rewritten file (by a resumed run) is read from its start.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = 0
        self._last = b""

    def read(self) -> list[dict[str, Any]]:
        """Returns the new complete lines."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            # Compare the last line: a rewritten file may be longer than before.
            file.seek(self._end - len(self._last))
            if file.read(len(self._last)) != self._last:
                self._end, self._last = 0, b""
                file.seek(0)
            found = []
            for line in file:
                # This line is still being written.
                if not line.endswith(b"\n"):
                    break
                self._end += len(line)
                self._last = line
                if line.strip():
                    found.append(self._parse(line))
        return found

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            return json.loads(line)
        except ValueError as error:
            raise ValueError(f"{self._path}: the line that ends at byte {self._end}: {error}") from None


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-").split(".")[0])


def _is_rl(line: Mapping[str, Any]) -> bool:
    return line.get("phase", "rl") == "rl"
