"""The credit benchmark: scores methods against the true advantage of every turn.

``turnwise benchmark credit POLICY -o truth.jsonl.zst`` measures the true advantages. This module scores presets and your
own methods:

>>> import turnwise
>>> truth = turnwise.benchmark.read("truth.jsonl.zst")                                  # doctest: +SKIP
>>> turnwise.benchmark.score(truth, "gigpo", against="grpo").difference.within          # doctest: +SKIP
0.18 [0.08, 0.26]
>>> def last_turn(batch):                                                               # one array [turns] per trajectory
...     return [[0.0] * (len(one["turns"]) - 1) + [one["turns"][-1]["reward"]] for one in batch]
>>> turnwise.benchmark.score(truth, last_turn).within_corrected                         # doctest: +SKIP
0.01 [-0.03, 0.06]

The guide's page on the benchmark explains the measurement and the scores.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from os import PathLike, fspath
from typing import Any

import numpy as np

from turnwise import _arrays, _native
from turnwise._arrays import Floats
from turnwise._credit import Credit, credit

__all__ = ["Difference", "Estimate", "Score", "Truth", "read", "score"]

#: A preset's name, or a function that maps the trajectories of a training step to their advantages.
Method = str | Callable[[list[dict[str, Any]]], Any]


@dataclass(frozen=True)
class Truth:
    """Trajectories with the true advantages of their turns.

    Attributes:
        path: path of the file.
        source: settings of the measurement: policy, split, gamma, continuations, ...
        batch: trajectories for :func:`turnwise.credit`; those with equal ``step`` are one training step.
        turns: for each trajectory one entry per turn: a dict with ``v``, ``q``, ``a_star``, their errors, ``k``,
            ``halves`` and ``returns``, or None if it was not measured.
    """

    path: str
    source: dict[str, Any]
    batch: list[dict[str, Any]]
    turns: list[list[dict[str, Any] | None]]

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def a_star(self) -> list[Floats]:
        """The true advantages, one array ``[turns]`` per trajectory; NaN if a turn has none."""
        return self.numbers("a_star")

    def numbers(self, key: str) -> list[Floats]:
        """Returns one number per turn by its key, such as ``a_star_error``; NaN if a turn has none."""
        return [np.array([np.nan if turn is None else turn[key] for turn in turns]) for turns in self.turns]


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval over tasks (no interval for a single task)."""

    value: float
    low: float | None = None
    high: float | None = None

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        interval = "" if self.low is None or self.high is None else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.value:.2f}{interval}"


@dataclass(frozen=True)
class Difference:
    """Differences of a method's and a baseline's scores on the same resampled tasks. A missing score counts as 0."""

    name: str
    baseline: str
    pearson: Estimate | None
    pearson_corrected: Estimate | None
    within: Estimate | None
    within_corrected: Estimate | None
    signs: Estimate | None


@dataclass(frozen=True)
class Score:
    """A method's scores. Undefined scores are None, such as the correlation of a constant.

    Attributes:
        name: name of the method.
        pearson: correlation with ``A*`` over all turns; ``_corrected`` removes the noise of ``A*``.
        spearman: the same for ranks.
        within: correlation after subtracting each trajectory's mean from both: credit within trajectories.
        within_spearman: the same for ranks.
        signs: share of correct signs among the ``signed_turns`` turns whose ``|A*|`` exceeds twice its error.
        slope: the true advantage per unit of the method's advantage.
        noise: share of the advantage's variance that ``A*`` does not explain.
        errors: errors by position of the turn and by outcome.
        truth: tasks, turns, standard deviation and reliability of ``A*``.
        difference: difference to the baseline, if one was given.
    """

    name: str
    pearson: Estimate | None
    pearson_corrected: Estimate | None
    spearman: Estimate | None
    spearman_corrected: Estimate | None
    within: Estimate | None
    within_corrected: Estimate | None
    within_spearman: Estimate | None
    within_spearman_corrected: Estimate | None
    signs: Estimate | None
    signed_turns: int
    slope: Estimate | None
    noise: float | None
    errors: list[dict[str, Any]]
    truth: dict[str, Any]
    difference: Difference | None = None


def read(path: str | PathLike[str]) -> Truth:
    """Reads a data set of ``turnwise benchmark credit``.

    Raises:
        ValueError: if a line of the file is not a trajectory with true advantages.
    """
    path = fspath(path)
    lines = [line for line in _native.read_text(path).split("\n") if line.strip()]
    turns, source = [], {}
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            turns.append(entry["truth"])
            source = entry["benchmark"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}: line {number} is not a trajectory with its truth ({error}); `turnwise benchmark credit` writes them"
            ) from None
    batch = json.loads(_native.read_dump(path, "turnwise", [])[0])
    if len(batch) != len(turns) or not batch:
        raise ValueError(f"{path}: {len(turns)} lines have {len(batch)} trajectories; one a line is expected")
    return Truth(path, source, batch, turns)


def score(
    truth: Truth | str | PathLike[str],
    method: Method,
    *,
    name: str | None = None,
    against: Method | None = None,
    resamples: int = 1000,
    seed: int = 0,
    method_seed: int = 0,
    embed: Callable[[list[str]], Any] | None = None,
    **switches: Any,
) -> Score:
    """Scores a method's advantages against the true ones, like ``turnwise benchmark score`` for presets.

    Args:
        truth: a data set, or its file.
        method: a preset's name, or a function that takes the trajectories of one training step, like
            :func:`turnwise.credit`, and returns one array ``[turns]`` per trajectory or a :class:`turnwise.Credit`.
        name: the method's name; by default the preset's or the function's.
        against: a baseline, for :attr:`Score.difference`.
        resamples: number of resamples of the bootstrap over tasks.
        seed: seed of the bootstrap.
        method_seed: seed of presets with randomness.
        embed: see :func:`turnwise.credit`.
        switches: settings of the preset, see :func:`turnwise.credit`.

    Raises:
        ValueError: if the data set lacks a key that a preset needs, or if a function returns invalid advantages.
    """
    if not isinstance(truth, Truth):
        truth = read(truth)
    if not isinstance(method, str) and switches:
        raise ValueError(f"{next(iter(switches))}: switches are of presets; give them to the function yourself")
    resamples = _arrays.seed(resamples, "resamples")
    settings = {"seed": _arrays.seed(method_seed, "method_seed"), "embed": embed}
    own = (name or _name(method), _advantages(truth, method, {**settings, **switches}))
    base = None if against is None else (_name(against), _advantages(truth, against, settings))
    found = json.loads(_native.score_truth(truth.path, own, base, resamples, _arrays.seed(seed, "seed")))
    difference = found["difference"]
    return _made(
        Score,
        {
            **found["score"],
            "truth": {key: _estimate(value) for key, value in found["truth"].items()},
            "difference": None if difference is None else _made(Difference, difference),
        },
    )


def _name(method: Method) -> str:
    return method if isinstance(method, str) else getattr(method, "__name__", type(method).__name__)


def _advantages(truth: Truth, method: Method, settings: dict[str, Any]) -> list[bytes]:
    """Returns the advantages of every trajectory as buffers, computed separately for each training step."""
    if isinstance(method, str):
        # Presets separate the steps themselves.
        found: Sequence[Any] = credit(truth.batch, method, **settings).advantages
        return [np.ascontiguousarray(row, dtype=np.float64).tobytes() for row in found]
    steps: dict[int, list[int]] = {}
    for index, trajectory in enumerate(truth.batch):
        steps.setdefault(trajectory.get("step", 0), []).append(index)
    buffers = [b""] * len(truth.batch)
    for indices in steps.values():
        answer = method([truth.batch[index] for index in indices])
        rows = answer.advantages if isinstance(answer, Credit) else _arrays.listed(answer, f"{_name(method)}'s answer")
        if len(rows) != len(indices):
            raise ValueError(
                f"{_name(method)} returned {len(rows)} rows for {len(indices)} trajectories; one a trajectory is expected"
            )
        for index, row in zip(indices, rows):
            where = f"{_name(method)}'s advantages of batch[{index}]"
            values = _arrays.floats(row, where, len(truth.batch[index]["turns"]))
            if not np.isfinite(values).all():
                raise ValueError(f"{where} are not finite")
            buffers[index] = values.tobytes()
    return buffers


def _estimate(value: Any) -> Any:
    """Converts a number with its interval to an :class:`Estimate`; other values are unchanged."""
    if not isinstance(value, Mapping) or "interval" not in value:
        return value
    interval = value["interval"] or {}
    return Estimate(value["value"], interval.get("low"), interval.get("high"))


def _made(kind: type, found: Mapping[str, Any]) -> Any:
    return kind(**{field.name: _estimate(found[field.name]) for field in fields(kind)})
