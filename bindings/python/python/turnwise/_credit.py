"""Credit: one advantage per turn of a batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise import _arrays, _native
from turnwise._arrays import Floats, Spans
from turnwise._methods import Method, chosen

# Keys of a trajectory over the whole response instead of its turns.
_TOKEN_KEYS = ("entropies", "old_logprobs", "response_ids", "values")


@dataclass(frozen=True)
class Preset:
    """A method by name.

    Attributes:
        name: value for ``preset=``.
        base: the preset that it extends.
        fields: keys that every turn must have besides ``reward``.
        credit: all settings of its credit; ``credit(..., **switches)`` takes their paths.
        objective: all settings of its loss (:mod:`turnwise.objective`).
    """

    name: str
    base: str | None
    fields: tuple[str, ...]
    credit: dict[str, Any]
    objective: dict[str, Any]


def presets() -> dict[str, Preset]:
    """Returns all methods by name. ``turnwise config presets`` also lists full configs such as ``quickstart``."""
    return {
        name: Preset(name, entry["base"], tuple(entry["fields"]), entry["credit"], entry["objective"])
        for name, entry in json.loads(_native.presets()).items()
    }


@dataclass(frozen=True)
class Credit:
    """The advantages of a batch, in its order.

    Attributes:
        advantages: one array ``[turns]`` per trajectory.
        outliers: one bool array ``[turns]`` per trajectory, True for turns of unusual entropy; None unless the
            method detects them (``stapo``).
        token_advantages: one array ``[response tokens]`` per trajectory if the method works on tokens (``ppo``), with
            the tokens of its turns concatenated (one entry for a turn with a single value); else None.
        token_returns: the critic's targets, like ``token_advantages``.
        explanations: with ``explain=True``, one list ``[turns][stages]`` per trajectory of dicts with ``stage``,
            ``advantage`` and ``facts`` (numbers by name); else None.
        diagnostics: metrics of each training step of the batch, by name.
    """

    advantages: list[Floats]
    outliers: list[NDArray[np.bool_]] | None = None
    token_advantages: list[Floats] | None = None
    token_returns: list[Floats] | None = None
    explanations: list[list[list[dict[str, Any]]]] | None = None
    diagnostics: dict[int, dict[str, float]] = field(default_factory=dict)
    _responses: list[_Response | None] = field(default_factory=list, repr=False)
    # Number of entries of token_advantages per turn.
    _counts: list[list[int]] = field(default_factory=list, repr=False)

    def __len__(self) -> int:
        return len(self.advantages)

    def per_token(self, turn_spans: Sequence[Any] | None = None, lengths: Sequence[int] | None = None) -> list[Floats]:
        """Returns the advantages of response tokens: one array ``[tokens]`` per trajectory, 0 outside its turns.

        By default the spans are the batch's (``turn_spans`` or ``response_mask``). A turn with a single value has its
        advantage at all of its tokens.

        Args:
            turn_spans: for each trajectory ``[[start, end], ...]``, one span per turn.
            lengths: number of tokens of each trajectory; by default the last turn's end.
        """
        responses = self._responses if turn_spans is None else self._given(turn_spans, lengths)
        found = []
        for index, advantages in enumerate(self.advantages):
            response = responses[index] if index < len(responses) else None
            if response is None:
                raise ValueError(
                    f"batch[{index}] came without turn_spans or response_mask; give per_token(turn_spans=...)"
                )
            if self.token_advantages is not None:
                found.append(response.spread_tokens(self.token_advantages[index], self._counts[index], index))
            else:
                found.append(response.spread(advantages))
        return found

    def _given(self, turn_spans: Sequence[Any], lengths: Sequence[int] | None) -> list[_Response | None]:
        if len(turn_spans) != len(self.advantages):
            raise ValueError(f"turn_spans has {len(turn_spans)} entries; {len(self.advantages)} are expected")
        if lengths is not None and len(lengths) != len(turn_spans):
            raise ValueError(f"lengths has {len(lengths)} entries; {len(turn_spans)} are expected")
        found: list[_Response | None] = []
        for index, (given, advantages) in enumerate(zip(turn_spans, self.advantages)):
            name = f"turn_spans[{index}]"
            length = int(lengths[index]) if lengths is not None else _arrays.end(given, name)
            spans = _arrays.spans(given, name, length)
            if len(spans) != len(advantages):
                raise ValueError(f"{name} has {len(spans)} spans; the trajectory has {len(advantages)} turns")
            found.append(_Response(spans, np.ones(length, dtype=bool)))
        return found


@dataclass(frozen=True)
class _Response:
    """Spans of the turns in a trajectory's response, and the mask of its tokens."""

    spans: Spans
    mask: NDArray[np.bool_]

    def spread(self, advantages: Floats) -> Floats:
        found = np.zeros(len(self.mask))
        for (start, end), advantage in zip(self.spans, advantages):
            found[start:end] = np.where(self.mask[start:end], advantage, 0.0)
        return found

    def spread_tokens(self, advantages: Floats, counts: Sequence[int], index: int) -> Floats:
        found = np.zeros(len(self.mask))
        first = 0
        for turn, ((start, end), count) in enumerate(zip(self.spans, counts)):
            positions = np.arange(start, end)[self.mask[start:end]]
            if count not in (1, len(positions)):
                raise ValueError(
                    f"batch[{index}]: turn {turn} has values of {count} tokens and its span {len(positions)} that count; "
                    "give one a token, or one for the whole turn"
                )
            found[positions] = advantages[first : first + count]
            first += count
        return found


def credit(
    batch: Sequence[Mapping[str, Any]],
    preset: str | Method | Sequence[str | Method] = "grpo",
    *,
    explain: bool = False,
    seed: int = 0,
    verl_agent: bool = False,
    embed: Callable[[list[str]], Any] | None = None,
    **switches: Any,
) -> Credit:
    """Computes the advantages of all turns, like ``turnwise credit``.

    Trajectories of the same ``group`` are compared. A trajectory is a dict::

        {"group": "task-17",                # a text or a number
         "turns": [{"reward": 0.0,          # of the environment, after the turn
                    "observation": "...",   # or "state_key": the name of the state
                    "action": "...",
                    "valid": True,          # whether the action was well-formed
                    "entropy": 0.4,         # mean over the response's tokens, or "entropies": [tokens]
                    "progress": 0.5, "values": 0.1, "credit": 0.2, "state_value": 0.3}, ...]}

    or a conversation of OpenAI messages, in which every assistant message is a turn::

        {"group": "task-17", "messages": [{"role": "user", "content": "..."}, ...],
         "reward": 1.0}                     # of the last turn, or a list with one per turn

    Only ``group``, ``turns`` and ``reward`` are always required; :attr:`Preset.fields` lists other keys that a method
    reads. A trajectory may have ``turn_spans`` ``[turns, 2]`` and ``response_mask`` ``[tokens]`` (without spans, its runs
    of ones are the turns). Then it may also have ``entropies``, ``values``, ``old_logprobs`` and ``response_ids``
    ``[tokens]`` over the whole response, which are split into turns without masked tokens. A fully masked turn was still
    played: it takes part with the entropy of all its tokens, and its :meth:`Credit.per_token` is 0.

    Args:
        batch: the trajectories of one training step (or of several, by their ``step``).
        preset: a name of :func:`presets`, your own method (:func:`turnwise.estimator`, :func:`turnwise.refinement`), or a
            list of a preset and your own refinements: ``["gigpo", mine]``.
        explain: also explain how every advantage was computed.
        seed: seed of methods with randomness.
        verl_agent: use the settings that reproduce verl-agent's numbers (``grpo``, ``rloo``, ``gigpo``, ``hgpo``).
        embed: function that returns embeddings ``[texts, dimensions]`` of texts, for methods that match states by
            embedding (``salt={"matching": "embedding"}``); hashed character n-grams by default.
        switches: settings of the method, by path or as dicts: ``estimator={"omega": 0.5}``, ``**{"aem.lambda": 2.0}``.

    Raises:
        ValueError: if a key is missing or invalid; the message names the key and the fix.
    """
    if isinstance(batch, Mapping) or not isinstance(batch, Sequence) or isinstance(batch, (str, bytes)):
        raise ValueError(f"batch is of type {type(batch).__name__}; it is a list of trajectories, each a dict")
    seed = _arrays.seed(seed, "seed")
    prepared, responses = [], []
    for index, trajectory in enumerate(batch):
        if not isinstance(trajectory, Mapping):
            raise ValueError(f"batch[{index}] is of type {type(trajectory).__name__}; a trajectory is a dict")
        plain, response = _prepared(dict(trajectory), f"batch[{index}]")
        prepared.append(plain)
        responses.append(response)
    vectors = None if embed is None else _vectors(prepared, embed)
    preset, switches = chosen(preset, switches)
    rows, diagnostics = _native.credit(prepared, preset, _arrays.switches(switches), verl_agent, seed, explain, vectors)

    def of(key: str) -> list[Floats] | None:
        return [_arrays.unpacked(row[key]) for row in rows] if rows and key in rows[0] else None

    outliers = None
    if rows and "outliers" in rows[0]:
        outliers = [np.frombuffer(row["outliers"], dtype=np.bool_) for row in rows]
    token_advantages = of("token_advantages")
    counts: list[list[int]] = []
    if token_advantages is not None:
        # Methods that work on tokens have one value per token or per turn.
        every = [[turn["values"] for turn in trajectory["turns"]] for trajectory in prepared]
        counts = [[1 if np.ndim(values) == 0 else len(values) for values in turns] for turns in every]
    return Credit(
        advantages=of("advantages") or [],
        outliers=outliers,
        token_advantages=token_advantages,
        token_returns=of("token_returns"),
        explanations=[row["explanation"] for row in rows] if explain else None,
        diagnostics=dict(diagnostics),
        _responses=responses,
        _counts=counts,
    )


def _prepared(trajectory: dict[str, Any], name: str) -> tuple[dict[str, Any], _Response | None]:
    """Returns a trajectory with all data in its turns, and their spans in its response."""
    mask = trajectory.pop("response_mask", None)
    given = trajectory.pop("turn_spans", None)
    tokens = {key: trajectory.pop(key) for key in _TOKEN_KEYS if key in trajectory}
    tokens = {key: values for key, values in tokens.items() if values is not None}
    if mask is None and given is None:
        if tokens:
            key = next(iter(tokens))
            raise ValueError(
                f"{name}[{key!r}] is over the whole response; add `turn_spans` or `response_mask`, or give it turn by turn"
            )
        return trajectory, None
    turns = trajectory.get("turns")
    if not isinstance(turns, Sequence) or isinstance(turns, (str, bytes)):
        raise ValueError(f"{name}['turns'] is missing or no list")
    arrays = {key: _arrays.array(values, f"{name}[{key!r}]") for key, values in tokens.items()}
    counts: NDArray[np.bool_] | None = None
    if mask is not None:
        counts = _arrays.floats(mask, f"{name}['response_mask']") != 0
    lengths = [len(values) for values in arrays.values()]
    if counts is not None:
        lengths.insert(0, len(counts))
    end = 0 if given is None else _arrays.end(given, f"{name}['turn_spans']")
    length = lengths[0] if lengths else end
    for key, values in arrays.items():
        if values.shape != (length,):
            raise ValueError(f"{name}[{key!r}] has the shape {values.shape}; ({length},) is expected")
    if given is None:
        assert counts is not None
        spans = _arrays.runs(counts)
        source = "runs of ones in response_mask"
    else:
        spans = _arrays.spans(given, f"{name}['turn_spans']", length)
        source = "turn_spans"
    if len(spans) != len(turns):
        raise ValueError(f"{name} has {len(turns)} turns and {len(spans)} {source}; one a turn is expected")
    response = _Response(spans, np.ones(length, dtype=bool) if counts is None else counts)
    cut = []
    for index, (turn, (start, end)) in enumerate(zip(turns, spans)):
        if not isinstance(turn, Mapping):
            raise ValueError(f"{name}['turns'][{index}] is of type {type(turn).__name__}; a turn is a dict")
        turn = dict(turn)
        for key, values in arrays.items():
            if turn.get(key) is not None:
                raise ValueError(f"{name} has {key!r} over the response and in turn {index}; give it once")
            inside = values[start:end][response.mask[start:end]]
            if key == "values" and not len(inside):
                raise ValueError(
                    f"{name}: turn {index} has no token that counts, and a critic's `values` need one; give the turn's tokens to its neighbour"
                )
            # A fully masked turn keeps its entropy, because methods that compare entropies need one per turn.
            turn[key] = values[start:end] if key == "entropies" and not len(inside) else inside
        cut.append(turn)
    return {**trajectory, "turns": cut}, response


def _vectors(batch: list[dict[str, Any]], embed: Callable[[list[str]], Any]) -> dict[str, bytes]:
    """Returns the embeddings of all states of a batch."""
    texts: dict[str, None] = {}

    def add(state: Mapping[str, Any], key: str, words: str) -> None:
        # The name may be empty.
        name = state.get(words) if state.get(key) is None else state[key]
        texts["" if name is None else str(name)] = None

    for trajectory in batch:
        turns = trajectory.get("turns")
        for turn in turns if isinstance(turns, Iterable) else ():
            # Turns that are not dicts are rejected later.
            if isinstance(turn, Mapping):
                add(turn, "state_key", "observation")
        add(trajectory, "final_state_key", "final_observation")
    names = list(texts)
    found = np.ascontiguousarray(_arrays.array(embed(names), "embed's answer"), dtype=np.float64)
    if found.ndim != 2 or len(found) != len(names):
        raise ValueError(f"embed gave the shape {found.shape} for {len(names)} texts; [texts, dimensions] is expected")
    return {text: vector.tobytes() for text, vector in zip(names, found)}
