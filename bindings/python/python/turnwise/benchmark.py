"""The credit benchmark: methods against the true advantage of every turn.

``turnwise benchmark credit POLICY -o truth.jsonl.zst`` measures the truth; this module scores methods against it, yours too:

>>> import turnwise
>>> truth = turnwise.benchmark.read("truth.jsonl.zst")                                  # doctest: +SKIP
>>> turnwise.benchmark.score(truth, "gigpo", against="grpo").difference.within          # doctest: +SKIP
0.18 [0.08, 0.26]
>>> def last_turn(batch):                                                               # one array [turns] a trajectory
...     return [[0.0] * (len(one["turns"]) - 1) + [one["turns"][-1]["reward"]] for one in batch]
>>> turnwise.benchmark.score(truth, last_turn).within_corrected                         # doctest: +SKIP
0.01 [-0.03, 0.06]

The guide's page on the benchmark says what is measured and what the scores mean.
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

#: A preset's name, or a function from the trajectories of a training step to their advantages.
Method = str | Callable[[list[dict[str, Any]]], Any]


@dataclass(frozen=True)
class Truth:
    """Trajectories with the true advantage of their turns.

    Attributes:
        path: the file.
        source: what was measured and how: policy, split, gamma, continuations, ...
        batch: the trajectories as :func:`turnwise.credit` takes them; their ``step`` says which are one training step.
        turns: for each trajectory one entry a turn: a dict with ``v``, ``q``, ``a_star``, their errors, ``k``, ``halves`` and
            ``returns``, or None where the truth was not measured.
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
        """One number per turn by its key, such as ``a_star_error``; NaN if a turn has none."""
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
    """A method's scores less a baseline's, with tasks drawn for both at once. Credit that does not exist counts as 0."""

    name: str
    baseline: str
    pearson: Estimate | None
    pearson_corrected: Estimate | None
    within: Estimate | None
    within_corrected: Estimate | None
    signs: Estimate | None


@dataclass(frozen=True)
class Score:
    """A method's scores. None where a number does not exist, such as a correlation of what does not vary.

    Attributes:
        name: the method.
        pearson: correlation with ``A*`` over all turns; ``_corrected`` is without the noise of the truth.
        spearman: the same of ranks.
        within: correlation after each trajectory's mean is subtracted from both: credit proper.
        within_spearman: the same of ranks.
        signs: share of right signs where ``A*`` is above twice its error, which ``signed_turns`` turns are.
        slope: the true advantage that one unit of the method's stands for.
        noise: share of the advantage's variance that does not go with ``A*``.
        errors: errors by place of the turn and by outcome.
        truth: tasks, turns, standard deviation and reliability of the truth.
        difference: to the baseline, where one was given.
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
    """The data set that ``turnwise benchmark credit`` wrote.

    Raises:
        ValueError: a line of the file is not a trajectory with its truth.
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
    """Scores a method's advantages against the truth, equal to ``turnwise benchmark score`` for a preset.

    Args:
        truth: a data set, or its file.
        method: a preset's name, or a function that takes the trajectories of one training step, as :func:`turnwise.credit` does,
            and returns their advantages: one array ``[turns]`` a trajectory, or a :class:`turnwise.Credit`.
        name: the method's name; the preset's or the function's by default.
        against: a baseline, for :attr:`Score.difference`.
        resamples: of the bootstrap over tasks.
        seed: of the bootstrap.
        method_seed: of presets that draw.
        embed: as of :func:`turnwise.credit`.
        switches: of the preset, as of :func:`turnwise.credit`.

    Raises:
        ValueError: names the key that a preset needs and the data set does not have, or what a function returned.
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
    """The advantages of every trajectory as buffers, each training step by itself."""
    if isinstance(method, str):
        # The presets tell steps apart themselves.
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
    """A number with its interval as an :class:`Estimate`; anything else as it is."""
    if not isinstance(value, Mapping) or "interval" not in value:
        return value
    interval = value["interval"] or {}
    return Estimate(value["value"], interval.get("low"), interval.get("high"))


def _made(kind: type, found: Mapping[str, Any]) -> Any:
    return kind(**{field.name: _estimate(found[field.name]) for field in fields(kind)})
