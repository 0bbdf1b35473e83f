"""Conversion of arrays to NumPy with checks of their shapes, and spans of turns in a response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Spans = list[tuple[int, int]]


def array(values: Any, name: str) -> NDArray[Any]:
    """Converts lists, NumPy arrays and PyTorch tensors on any device to an array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        # NumPy has no bfloat16, and not every device has doubles.
        values = values.double().numpy() if values.is_floating_point() else values.numpy()
    try:
        found = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} is not an array: its rows have different lengths ({error})") from None
    if found.dtype.kind not in "fiub":
        raise ValueError(f"{name} has entries of type {found.dtype}; numbers are expected")
    return found


def floats(values: Any, name: str, length: int | None = None) -> Floats:
    """Converts values to a contiguous one-dimensional ``float64`` array and checks its length."""
    found = np.ascontiguousarray(array(values, name), dtype=np.float64)
    if found.ndim != 1:
        raise ValueError(f"{name} has the shape {found.shape}; one dimension is expected")
    if length is not None and len(found) != length:
        raise ValueError(f"{name} has {len(found)} entries; {length} are expected")
    return found


def rows(values: Any, name: str) -> list[NDArray[Any]]:
    """Returns the rows of an array ``[batch, tokens]``, or of a list of arrays ``[tokens]`` of any lengths."""
    if isinstance(values, Sequence) and not isinstance(values, (str, bytes)):
        found = [array(row, f"{name}[{index}]") for index, row in enumerate(values)]
    else:
        found = list(array(values, name))
    for index, row in enumerate(found):
        if np.ndim(row) != 1:
            raise ValueError(
                f"{name}[{index}] has the shape {np.shape(row)}; {name} is an array [batch, tokens] or a list of "
                "arrays [tokens]"
            )
    return found


def seed(value: Any, name: str) -> int:
    """Checks a seed: an unsigned 64-bit integer."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value < 2**64:
        raise ValueError(f"{name} is {value!r}; it is a whole number from 0 to 2^64 - 1")
    return int(value)


def unpacked(buffer: bytearray) -> Floats:
    """Returns the array in a buffer of ``float64``, without a copy."""
    return np.frombuffer(buffer, dtype=np.float64)


def runs(mask: NDArray[Any]) -> Spans:
    """Returns the runs of ones of a mask, as ``(start, end)``."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], (mask != 0).astype(np.int8), [0]))))
    return [(int(start), int(end)) for start, end in zip(edges[::2], edges[1::2])]


def end(given: Any, name: str) -> int:
    """Returns the largest end of spans ``[[start, end], ...]`` in any order; 0 without spans."""
    return max((last for _, last in _pairs(given, name)), default=0)


def spans(given: Any, name: str, length: int) -> Spans:
    """Checks half-open spans ``[[start, end], ...]``: ascending, disjoint and inside ``length`` tokens."""
    found: Spans = []
    previous = 0
    for index, (start, end) in enumerate(_pairs(given, name)):
        if not previous <= start <= end <= length:
            raise ValueError(
                f"{name}[{index}] is [{start}, {end}); spans are ascending, disjoint and inside of [0, {length})"
            )
        found.append((start, end))
        previous = end
    return found


def _pairs(given: Any, name: str) -> Spans:
    try:
        spans = iter(given)
    except TypeError:
        raise ValueError(f"{name} is {given!r}; a list of spans [start, end] is expected") from None
    found: Spans = []
    for index, span in enumerate(spans):
        try:
            start, end = (int(number) for number in span)
            whole = all(number == int(number) for number in span)
        except (TypeError, ValueError, OverflowError):
            whole = False
        if not whole:
            raise ValueError(f"{name}[{index}] is {span!r}; a span is [start, end]")
        found.append((start, end))
    return found


def switches(given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Flattens overrides to dotted paths. A dict with a ``kind`` is a value."""
    found: list[tuple[str, Any]] = []
    for path, value in given.items():
        if isinstance(value, Mapping) and "kind" not in value and value:
            found.extend(switches({f"{path}.{key}": inner for key, inner in value.items()}))
        else:
            found.append((path, dict(value) if isinstance(value, Mapping) else value))
    return found


def listed(values: Iterable[Any] | Any, name: str) -> list[Any]:
    """Converts to a list with one entry per sequence."""
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__len__"):
        raise ValueError(f"{name} is {type(values).__name__}; a list with one entry a sequence is expected")
    return list(values)
