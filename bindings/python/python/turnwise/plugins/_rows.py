"""Converts rows of a framework's batch to trajectories, and their advantages to the rows' tokens."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise import _arrays, _native
from turnwise._credit import credit, presets

#: Keys of a row's dict besides those of a trajectory.
_ROW_KEYS = ("trajectory", "turn", "turns", "turn_spans")
#: Keys of a trajectory that are read from its last row.
_LAST_KEYS = ("task", "success", "final_observation", "final_state_key")


@dataclass(frozen=True)
class Settings:
    """Settings of the advantages.

    Attributes:
        preset: a name of :func:`turnwise.presets`.
        switches: settings of the method.
        entropies: ``exact`` (over the whole vocabulary, from the framework or the row's dict) or ``surprisal``: the negative
            log-prob of each sampled token, whose mean estimates the entropy without another forward pass.
        seed: seed of methods with randomness.
    """

    preset: str
    switches: dict[str, Any] = field(default_factory=dict)
    entropies: str = "exact"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.entropies not in ("exact", "surprisal"):
            raise ValueError(f"turnwise.entropies is {self.entropies!r}; it is 'exact' or 'surprisal'")
        object.__setattr__(self, "seed", _arrays.seed(self.seed, "turnwise.seed"))
        if not isinstance(self.switches, Mapping):
            raise ValueError(
                f"turnwise.switches is of type {type(self.switches).__name__}; a dict of the method's switches is expected"
            )

    @classmethod
    def of(cls, given: Any = None, default: str | None = None) -> Settings | None:
        """Merges a framework's configuration over environment variables; None if neither names a method."""
        found: dict[str, Any] = {}
        if os.environ.get("TURNWISE_PRESET"):
            found["preset"] = os.environ["TURNWISE_PRESET"]
        if os.environ.get("TURNWISE_SWITCHES"):
            try:
                found["switches"] = json.loads(os.environ["TURNWISE_SWITCHES"])
            except json.JSONDecodeError as error:
                raise ValueError(f"TURNWISE_SWITCHES is no JSON: {error}") from None
        if os.environ.get("TURNWISE_ENTROPIES"):
            found["entropies"] = os.environ["TURNWISE_ENTROPIES"]
        if isinstance(given, str):
            found["preset"] = given
        elif given is not None:
            own = _plain(given)
            unknown = own.keys() - {"preset", "switches", "entropies", "seed"}
            if unknown:
                raise ValueError(
                    f"turnwise has no setting {sorted(unknown)[0]!r}; there are preset, switches, entropies, seed"
                )
            # None counts as absent.
            found.update((name, value) for name, value in own.items() if value is not None)
        if "preset" not in found:
            if default is None:
                return None
            found["preset"] = default
        known = presets()
        if not isinstance(found["preset"], str) or found["preset"] not in known:
            raise ValueError(f"turnwise.preset is {found['preset']!r}; there are {', '.join(known)}")
        return cls(**found)

    @functools.cached_property
    def needs_entropies(self) -> bool:
        """True if the method, with its settings, reads entropies."""
        return "entropy" in _native.fields(self.preset, _arrays.switches(self.switches))


def _plain(given: Any) -> dict[str, Any]:
    """Converts a mapping, OmegaConf config or dataclass to a dict."""
    if hasattr(given, "_metadata") and hasattr(given, "_content"):
        from omegaconf import OmegaConf

        given = OmegaConf.to_container(given, resolve=True)
    if isinstance(given, Mapping):
        return {str(key): _plain(value) if isinstance(value, Mapping) else value for key, value in given.items()}
    if not hasattr(given, "__dict__"):
        raise ValueError(
            f"turnwise's settings are of type {type(given).__name__}; a preset's name or a dict is expected"
        )
    return dict(vars(given))


@dataclass
class Row:
    """One row of a batch.

    Attributes:
        group: name of the group (``uid``), whose rows are compared.
        mask: 1 at the policy's tokens ``[tokens]``.
        about: the row's dict or its JSON text. If None, its turns are the runs of the mask, without states.
        rewards: the framework's rewards ``[tokens]``.
        entropies: exact entropies ``[tokens]``, if the framework has them.
        logprobs: log-probs of the sampled tokens ``[tokens]``.
        session: name of the row's trajectory, if the framework has it.
        position: index of the row in its trajectory.
        padding: True for a row that only pads the batch.
    """

    group: Any
    mask: NDArray[Any]
    about: Any = None
    rewards: NDArray[Any] | None = None
    entropies: NDArray[Any] | None = None
    logprobs: NDArray[Any] | None = None
    session: str | None = None
    position: int | None = None
    padding: bool = False


@dataclass(frozen=True)
class Advantages:
    """Advantages ``[tokens]`` of every row, 0 outside the mask; likewise outliers, if the method detects them."""

    rows: list[NDArray[np.float64]]
    outliers: list[NDArray[np.bool_]] | None
    diagnostics: dict[str, float]


def advantages(rows: Sequence[Row], settings: Settings) -> Advantages:
    """Computes the advantages of a batch of rows.

    A fully masked trajectory (truncated or rejected) is left out of its group, with advantages of 0. A fully masked turn of
    another trajectory also has advantages of 0, but was played, so its state, reward and entropy take part.

    Raises:
        ValueError: if a key of a row is missing or invalid; the message names row and key.
    """
    abouts = [_about(row, f"row {index}") for index, row in enumerate(rows)]
    sessions: dict[Any, list[int]] = {}
    for index, (row, about) in enumerate(zip(rows, abouts)):
        if not row.padding:
            name = row.session if about.get("trajectory") is None else about["trajectory"]
            key = ("row", index) if name is None else ("session", str(row.group), str(name))
            sessions.setdefault(key, []).append(index)
    sessions = {key: members for key, members in sessions.items() if any(np.any(rows[index].mask) for index in members)}
    batch = []
    for members in sessions.values():
        members.sort(key=lambda index: _place(abouts[index], rows[index], index))
        batch.append(_trajectory([(index, rows[index], abouts[index]) for index in members], settings))
    if not batch:
        return Advantages([np.zeros(len(row.mask)) for row in rows], None, {})
    try:
        found = credit(batch, settings.preset, seed=settings.seed, **settings.switches)
    except ValueError as error:
        names = {f"batch[{number}]": _named(members) for number, members in enumerate(sessions.values())}
        text = str(error)
        # The longest name first, because batch[1] is a prefix of batch[12].
        for name in sorted(names, key=len, reverse=True):
            text = text.replace(name, names[name])
        raise ValueError(text + _help(text, settings)) from None
    outliers = found.outliers
    spread: list[NDArray[np.float64]] = [np.zeros(len(row.mask)) for row in rows]
    marked: list[NDArray[np.bool_]] | None = None
    if outliers is not None:
        marked = [np.zeros(len(row.mask), dtype=bool) for row in rows]
    for number, (members, values) in enumerate(zip(sessions.values(), found.per_token())):
        start = 0
        for index in members:
            end = start + len(rows[index].mask)
            spread[index][:] = values[start:end]
            start = end
        if marked is not None and outliers is not None:
            start = 0
            whole = np.zeros(len(values), dtype=bool)
            for (begin, end), outlier in zip(batch[number]["turn_spans"], outliers[number]):
                whole[begin:end] = outlier
            whole &= batch[number]["response_mask"] != 0
            for index in members:
                end = start + len(rows[index].mask)
                marked[index][:] = whole[start:end]
                start = end
    diagnostics = {f"turnwise/{name}": value for step in found.diagnostics.values() for name, value in step.items()}
    return Advantages(spread, marked, diagnostics)


def _about(row: Row, name: str) -> dict[str, Any]:
    about = row.about
    if about is None:
        return {}
    if isinstance(about, str):
        try:
            about = json.loads(about)
        except json.JSONDecodeError as error:
            raise ValueError(f"{name}: its turnwise dict is no JSON: {error}") from None
    if not isinstance(about, Mapping):
        raise ValueError(
            f"{name}: its turnwise entry is of type {type(about).__name__}; a dict with `turns` is expected"
        )
    unknown = about.keys() - set(_ROW_KEYS) - set(_LAST_KEYS)
    if unknown:
        known = ", ".join((*_ROW_KEYS, *_LAST_KEYS))
        raise ValueError(f"{name}: unknown key {sorted(unknown)[0]!r} in its turnwise dict; known are {known}")
    turns, place = about.get("turns"), about.get("turn")
    if turns is not None:
        if isinstance(turns, (str, bytes, Mapping)) or not hasattr(turns, "__len__"):
            raise ValueError(f"{name}: its turns are of type {type(turns).__name__}; a list of dicts is expected")
        for number, turn in enumerate(turns):
            if not isinstance(turn, Mapping):
                raise ValueError(f"{name}: turn {number} is of type {type(turn).__name__}; a turn is a dict")
    try:
        int(place or 0)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name}: `turn` is {place!r}; it is the row's place in its trajectory, a number") from None
    return dict(about)


def _place(about: Mapping[str, Any], row: Row, index: int) -> tuple[int, int]:
    place = row.position if about.get("turn") is None else about["turn"]
    return (0 if place is None else int(place), index)


def _trajectory(members: list[tuple[int, Row, dict[str, Any]]], settings: Settings) -> dict[str, Any]:
    """Joins the rows of a trajectory, concatenating their responses.

    If a method reads entropies, a fully masked turn is kept only if its entropy is known from the row or the framework.
    Otherwise the turn is dropped, and the previous one gets its reward.
    """
    turns: list[dict[str, Any]] = []
    spans: list[list[int]] = []
    masks, entropies, offset = [], [], 0
    own_turns = [turn for _, _, about in members if about.get("turns") is not None for turn in about["turns"]]
    brought = any(map(_has_entropy, own_turns))
    # Turns that are dropped before the first kept one.
    early: list[dict[str, Any]] = []
    for number, (index, row, about) in enumerate(members):
        mask = np.asarray(row.mask) != 0
        given = about.get("turn_spans")
        found = _arrays.runs(mask) if given is None else _arrays.spans(given, f"row {index}: turn_spans", len(mask))
        own = about.get("turns")
        if given is None and not found:
            # A fully masked row of a trajectory: its turns were played, but are not trained. A single turn spans the whole row;
            # the spans of several are unknown.
            own = [{}] if own is None else own
            found = [(0, len(mask))] if len(own) == 1 else [(0, 0)] * len(own)
        if own is None:
            own = [{} for _ in found]
        if len(own) != len(found):
            source = "runs of ones in its mask" if given is None else "turn_spans"
            raise ValueError(f"row {index} has {len(own)} turns and {len(found)} {source}; one a turn is expected")
        known = _entropies(row, settings)
        last = number + 1 == len(members)
        ends = [*[start for start, _ in found[1:]], len(mask)]
        for place, ((start, end), until, turn) in enumerate(zip(found, ends, own)):
            turn = dict(turn)
            if turn.get("reward") is None:
                turn["reward"] = _reward(row, index, 0 if place == 0 else start, until, last)
            unknown = not _has_entropy(turn) and (brought or known is None or start == end)
            if settings.needs_entropies and unknown and not mask[start:end].any():
                if turns:
                    _add_reward(turns[-1], turn)
                else:
                    early.append(turn)
                continue
            for left_out in early:
                _add_reward(turn, left_out)
            early = []
            turns.append(turn)
            spans.append([offset + start, offset + end])
        masks.append(mask.astype(np.int8))
        # A masked row whose turns were dropped needs no entropies.
        entropies.append(np.zeros(len(mask)) if known is None and not mask.any() else known)
        offset += len(mask)
    final = members[-1][2]
    trajectory = {
        "group": str(members[0][1].group),
        "turns": turns,
        "turn_spans": spans,
        "response_mask": np.concatenate(masks),
        **{key: final[key] for key in _LAST_KEYS if key in final},
    }
    present = [values for values in entropies if values is not None]
    if settings.needs_entropies and not brought and len(present) == len(entropies):
        trajectory["entropies"] = np.concatenate(present)
    return trajectory


def _has_entropy(turn: Mapping[str, Any]) -> bool:
    return turn.get("entropy") is not None or turn.get("entropies") is not None


def _add_reward(turn: dict[str, Any], left_out: Mapping[str, Any]) -> None:
    """Adds the reward of a dropped turn to another turn."""
    pair = (turn, left_out)
    if any(each.get("shaped_reward") is not None for each in pair):
        # Credit is computed from the shaped reward if the row has one.
        shaped = [each["reward"] if each.get("shaped_reward") is None else each["shaped_reward"] for each in pair]
        turn["shaped_reward"] = sum(map(float, shaped))
    turn["reward"] = sum(float(each["reward"]) for each in pair)


def _reward(row: Row, index: int, start: int, end: int, last: bool) -> float:
    """Returns the framework's rewards from a turn's first token to the next turn's. Only the last row of a trajectory has
    them, because frameworks copy the outcome to all rows."""
    if row.rewards is None:
        raise ValueError(f"row {index}: its turns have no `reward`, and the framework gives none for its tokens")
    return float(np.sum(np.asarray(row.rewards, dtype=np.float64)[start:end])) if last else 0.0


def _entropies(row: Row, settings: Settings) -> NDArray[Any] | None:
    if settings.entropies == "surprisal":
        return None if row.logprobs is None else -np.asarray(row.logprobs, dtype=np.float64)
    return None if row.entropies is None else np.asarray(row.entropies, dtype=np.float64)


def _named(members: list[int]) -> str:
    return f"row {members[0]}" if len(members) == 1 else f"rows {', '.join(map(str, members))}"


def _help(text: str, settings: Settings) -> str:
    if "needs `entropy`" in text:
        return (
            ". Give each turn its `entropy` in the row's turnwise dict, or set turnwise.entropies = surprisal to estimate it "
            "from the log-probabilities of the sampled tokens"
        )
    if "needs `" in text:
        return ". Rollouts give it in the turnwise dict of each row (see turnwise.plugins)"
    return ""
