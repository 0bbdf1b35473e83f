"""Rows of a framework's batch as trajectories, and their advantages over the rows' tokens."""

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
#: Keys of a trajectory that its last row gives.
_LAST_KEYS = ("task", "success", "final_observation", "final_state_key")


@dataclass(frozen=True)
class Settings:
    """What to compute.

    Attributes:
        preset: a name of :func:`turnwise.presets`.
        switches: of the method.
        entropies: ``exact`` (over the whole vocabulary, from the framework or the row's dict) or ``surprisal``: the negative
            log-probability of each sampled token, whose mean is an estimate of the entropy and needs no further pass.
        seed: of methods that draw.
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
        """Settings of a framework's configuration over those of the environment; None where no method is named."""
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
            # None is as if it were not there.
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
        """True if the method reads entropies, by its preset or by a stage that switches add."""
        return "entropy" in _native.fields(self.preset, _arrays.switches(self.switches))


def _plain(given: Any) -> dict[str, Any]:
    """A mapping of any kind (OmegaConf's, a dataclass) as a dict."""
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
        group: which rows are compared (``uid``).
        mask: 1 at the policy's tokens ``[tokens]``.
        about: the row's dict, JSON text of it, or None: then its turns are the runs of the mask, without states.
        rewards: the framework's rewards ``[tokens]``.
        entropies: exact entropies ``[tokens]``, where the framework has them.
        logprobs: log-probabilities of the sampled tokens ``[tokens]``.
        session: the trajectory that a row belongs to, where the framework says it.
        position: its place in it.
        padding: True for a row that only fills the batch.
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
    """Advantages ``[tokens]`` of every row, 0 outside of the mask; outliers alike, where the method locates them."""

    rows: list[NDArray[np.float64]]
    outliers: list[NDArray[np.bool_]] | None
    diagnostics: dict[str, float]


def advantages(rows: Sequence[Row], settings: Settings) -> Advantages:
    """The advantages of a batch of rows.

    A trajectory of which no token counts (cut off and masked, rejected) teaches nothing and is left out of its group; its
    advantages are 0. A turn of which none counts, in a trajectory that has others, has advantages of 0 as well; it was
    played, so its state, its reward and its entropy are compared with those of the others.

    Raises:
        ValueError: names the row and the key of what is missing or wrong.
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
        # The longest name first: batch[1] begins batch[12].
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
    """The trajectory that some rows are, over their responses one after the other.

    Where a method reads entropies, a turn without a token that counts stays if its entropy is known: the row brings it, or the
    framework has it at the turn's tokens. Else the turn is left out, and the one before it gets its reward.
    """
    turns: list[dict[str, Any]] = []
    spans: list[list[int]] = []
    masks, entropies, offset = [], [], 0
    own_turns = [turn for _, _, about in members if about.get("turns") is not None for turn in about["turns"]]
    brought = any(map(_has_entropy, own_turns))
    # Turns that are left out before the first one that is not.
    early: list[dict[str, Any]] = []
    for number, (index, row, about) in enumerate(members):
        mask = np.asarray(row.mask) != 0
        given = about.get("turn_spans")
        found = _arrays.runs(mask) if given is None else _arrays.spans(given, f"row {index}: turn_spans", len(mask))
        own = about.get("turns")
        if given is None and not found:
            # A row that is masked among others of its trajectory: its turns were played, and nothing of them is learnt. One
            # is the whole row; where several are in it is not known.
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
        # Nothing is read of a masked row whose turns were left out.
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
    """Adds the reward of a turn that is left out to another's."""
    pair = (turn, left_out)
    if any(each.get("shaped_reward") is not None for each in pair):
        # Credit is assigned from the shaped reward if the row has one.
        shaped = [each["reward"] if each.get("shaped_reward") is None else each["shaped_reward"] for each in pair]
        turn["shaped_reward"] = sum(map(float, shaped))
    turn["reward"] = sum(float(each["reward"]) for each in pair)


def _reward(row: Row, index: int, start: int, end: int, last: bool) -> float:
    """The framework's rewards from a turn's first token to the next turn's. A row before the last has no reward of its own: the
    frameworks copy the outcome to all rows of a trajectory."""
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
