"""Credit methods as functions on NumPy arrays."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from turnwise import _native
from turnwise._arrays import Floats

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class TurnBatch:
    """The turns of a batch as arrays with one entry per turn.

    Turns of a trajectory are consecutive, and so are the trajectories of a group.

    Attributes:
        group: index of the group; trajectories of a group are compared.
        trajectory: index of the trajectory in the batch.
        turn: index of the turn in its trajectory.
        state: index of the turn's state in its group; equal states have equal indices.
        reward: reward of the turn, after shaping.
        valid: whether the action was well-formed.
        success: whether the trajectory solved its task.
        tokens: number of response tokens; 0 if unknown.
        entropy: mean entropy of the response tokens, in nats; NaN if unknown.
        logprob: summed log-prob of the response tokens under the sampling policy; NaN if unknown.
        progress: the environment's progress signal after the turn; NaN without one.
        observations: observations as text, for methods with ``texts=True``; else None.
        actions: actions as text, for methods with ``texts=True``; else None.
    """

    group: Ints
    trajectory: Ints
    turn: Ints
    state: Ints
    reward: Floats
    valid: Bools
    success: Bools
    tokens: Ints
    entropy: Floats
    logprob: Floats
    progress: Floats
    observations: list[str] | None = None
    actions: list[str] | None = None

    def __len__(self) -> int:
        return len(self.turn)

    @functools.cached_property
    def starts(self) -> Ints:
        """Index of the first turn of every trajectory."""
        return np.flatnonzero(self.turn == 0)

    @functools.cached_property
    def groups(self) -> Ints:
        """Index of the group of every trajectory."""
        return self.group[self.starts]

    def sums(self, values: Any) -> Floats:
        """Returns the sums ``[trajectories]`` over the turns of each trajectory."""
        return np.add.reduceat(np.asarray(values, dtype=np.float64), self.starts) if len(self) else np.zeros(0)

    def to_turns(self, values: Any) -> NDArray[Any]:
        """Repeats one value per trajectory ``[trajectories]`` for each of its turns ``[turns]``."""
        return np.asarray(values)[self.trajectory]

    @functools.cached_property
    def outcome(self) -> Floats:
        """Undiscounted return of the turn's trajectory."""
        return self.to_turns(self.sums(self.reward))

    def returns(self, gamma: float = 1.0) -> Floats:
        """Returns the return from each turn: ``sum_k gamma^k reward[t + k]`` up to the end of its trajectory."""
        found = self.reward.copy()
        last = int(self.turn.max(initial=0))
        # From the last turn to the first, all trajectories at once.
        for turn in range(last - 1, -1, -1):
            (at,) = np.nonzero(self.turn == turn)
            at = at[at + 1 < len(self)]
            at = at[self.turn[at + 1] == turn + 1]
            found[at] += gamma * found[at + 1]
        return found

    def split(self, values: Any) -> list[NDArray[Any]]:
        """Splits values into one array ``[turns]`` per trajectory."""
        return np.split(np.asarray(values), self.starts[1:]) if len(self) else []


class Method:
    """A credit method made from a function by :func:`estimator` or :func:`refinement`.

    A call with a :class:`TurnBatch` calls the function. A call with trajectories, as for :func:`turnwise.credit`, returns
    their advantages.
    """

    def __init__(self, function: Callable[..., Any], name: str, is_estimator: bool, texts: bool) -> None:
        functools.update_wrapper(self, function)
        self.name = name
        self.is_estimator = is_estimator
        self.texts = texts
        self.function = function
        self.settings = _settings(function, name, 1 if is_estimator else 2)
        self.register()

    def register(self) -> None:
        """Registers the method by its name, which creating it also does."""
        _native.register_method(self.name, self.is_estimator, self.function, self.settings, self.texts)

    def __call__(self, batch: Any, *args: Any, **settings: Any) -> Any:
        if isinstance(batch, TurnBatch):
            return self.function(batch, *args, **settings)
        from turnwise import credit

        return credit(batch, self, **{f"{self.path}.{key}": value for key, value in settings.items()}).advantages

    @property
    def path(self) -> str:
        """Path of its settings in a credit config."""
        return "estimator" if self.is_estimator else self.name

    def __repr__(self) -> str:
        return f"turnwise.{'estimator' if self.is_estimator else 'refinement'}({self.name!r})"


def _settings(function: Callable[..., Any], name: str, inputs: int) -> dict[str, Any]:
    """Returns the settings of a method: the keyword-only parameters of its function, with their defaults."""
    parameters = list(inspect.signature(function).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    expected = "(batch, *, settings)" if inputs == 1 else "(batch, advantages, *, settings)"
    if len(positional) != inputs or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        raise TypeError(f"{name}: its parameters are {inspect.signature(function)}; {expected} is expected")
    keyword = [p for p in parameters if p.kind == p.KEYWORD_ONLY]
    for parameter in keyword:
        if parameter.default is parameter.empty or parameter.default is None:
            raise TypeError(f"{name}: the setting {parameter.name!r} has no default; a number, text, list or dict is expected")
    return {parameter.name: parameter.default for parameter in keyword}


@overload
def estimator(function: Callable[..., Any]) -> Method: ...
@overload
def estimator(*, name: str | None = None, texts: bool = False) -> Callable[[Callable[..., Any]], Method]: ...
def estimator(function: Any = None, *, name: str | None = None, texts: bool = False) -> Any:
    """Registers a function ``(batch) -> advantages`` as an estimator.

    The function receives a :class:`TurnBatch` and returns an array ``[turns]``, or a pair of it and a dict of further
    arrays ``[turns]`` for explanations. Keyword-only parameters with defaults are its settings. Its name is a preset:

    >>> import turnwise
    >>> @turnwise.estimator
    ... def centred(batch, *, scale=1.0):
    ...     returns = batch.sums(batch.reward)
    ...     counts = np.bincount(batch.groups)
    ...     mean = np.bincount(batch.groups, returns) / counts
    ...     return scale * batch.to_turns(returns - mean[batch.groups])
    >>> turns = [{"reward": 0.0}, {"reward": 1.0}]
    >>> batch = [{"group": "a", "turns": turns}, {"group": "a", "turns": [{"reward": 0.0}]}]
    >>> [row.tolist() for row in turnwise.credit(batch, "centred").advantages]
    [[0.5, 0.5], [-0.5]]

    Args:
        name: name of the method and its preset; by default the function's.
        texts: whether the batch also has ``observations`` and ``actions``.
    """
    return _made(function, name, True, texts)


@overload
def refinement(function: Callable[..., Any]) -> Method: ...
@overload
def refinement(*, name: str | None = None, texts: bool = False) -> Callable[[Callable[..., Any]], Method]: ...
def refinement(function: Any = None, *, name: str | None = None, texts: bool = False) -> Any:
    """Registers a function ``(batch, advantages) -> advantages`` as a refinement (see :func:`estimator`).

    Its preset is GRPO with the refinement; ``turnwise.credit(batch, ["gigpo", method])`` refines the advantages of GiGPO.
    """
    return _made(function, name, False, texts)


def _made(function: Any, name: str | None, is_estimator: bool, texts: bool) -> Any:
    if function is None:
        return lambda function: Method(function, name or function.__name__, is_estimator, texts)
    return Method(function, name or function.__name__, is_estimator, texts)


def chosen(method: Any, switches: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns preset and settings of a method: a name, a :class:`Method`, or a list that begins with either."""
    if isinstance(method, str):
        return method, switches
    if isinstance(method, Method):
        return method.name, switches
    if not isinstance(method, Sequence) or not method or not all(isinstance(part, (str, Method)) for part in method):
        raise ValueError(f"the method is {method!r}; a preset's name, a method, or a list of a preset and methods is expected")
    first, *rest = method
    if not isinstance(first, str) and not first.is_estimator:
        first, rest = "grpo", list(method)
    preset = first if isinstance(first, str) else first.name
    for part in rest:
        if isinstance(part, str) or part.is_estimator:
            raise ValueError(f"{part!r} is not a refinement; a list has one preset or estimator, and it is the first")
    refinements = json.loads(_native.presets())[preset]["credit"]["refinements"] if rest else []
    if rest:
        switches = {"refinements": [*refinements, *({"kind": part.name} for part in rest)], **switches}
    return preset, switches


_WHOLE = ("group", "trajectory", "turn", "state", "tokens")
_FLAGS = ("valid", "success")


def called(
    name: str, function: Callable[..., Any], buffers: dict[str, Any], before: bytearray | None, settings: str
) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Calls a method's function on buffers, for the extension module."""
    arrays: dict[str, Any] = {}
    for key, buffer in buffers.items():
        if key in _FLAGS:
            arrays[key] = np.frombuffer(buffer, dtype=np.bool_)
        elif isinstance(buffer, list):
            arrays[key] = buffer
        else:
            numbers = np.frombuffer(buffer, dtype=np.float64)
            arrays[key] = numbers.astype(np.int64) if key in _WHOLE else numbers
    batch = TurnBatch(**arrays)
    inputs = (batch,) if before is None else (batch, np.frombuffer(before, dtype=np.float64))
    found = function(*inputs, **json.loads(settings))
    found, facts = found if isinstance(found, tuple) else (found, {})
    each = [(key, _turns(name, key, values, len(batch)).tobytes()) for key, values in facts.items()]
    return _turns(name, "advantages", found, len(batch)).tobytes(), each


def _turns(name: str, what: str, values: Any, turns: int) -> Floats:
    found = np.ascontiguousarray(values, dtype=np.float64)
    if found.shape != (turns,):
        raise ValueError(f"{name} returned {what} of the shape {found.shape}; one a turn, ({turns},), is expected")
    return found
