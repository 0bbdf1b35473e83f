"""Losses and their closed-form derivatives in double precision. Only :func:`policy_loss` rounds the log-probs under the
sampling policy and the reference to single precision, like a run.

Log-probs are in nats, and entry ``t`` of every array belongs to token ``t`` itself. Arrays are ``[batch, tokens]``
(padded, with ``mask``) or lists of arrays ``[tokens]``. Derivatives have the same form, with 0 at masked tokens.

>>> import numpy as np
>>> from turnwise import objective
>>> loss = objective.policy_loss(
...     logprobs=[[-1.0, -2.0]], old_logprobs=[[-1.0, -2.0]], advantages=[0.5], preset="grpo")
>>> loss.value, loss.d_logprobs[0].tolist()
(-0.5, [-0.25, -0.25])
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise import _arrays, _native
from turnwise._arrays import Floats

__all__ = [
    "Loss",
    "Normalization",
    "SelectiveLoss",
    "kl_estimate",
    "policy_loss",
    "reward_kl",
    "selective_loss",
    "supervised_loss",
    "token_weights",
    "value_loss",
]

#: An array ``[batch, tokens]``, or a list of arrays ``[tokens]``.
Rows = Floats | list[Floats]


@dataclass(frozen=True)
class Normalization:
    """SORL's clipping bias of a batch (``so-ppo``, ``so-grpo``). The gradient is divided by its norm.

    Attributes:
        factor: factor on the gradient, ``1 / max(norm, delta)``, for the norms ``token`` and ``scalar``. None for
            ``parameter``: back-propagate ``d_logprobs`` alone and pass the norm of that gradient to :meth:`from_norm`.
        token_norm: L2 norm of the bias over tokens.
        scalar_norm: absolute value of its sum.
        clipped: number of tokens whose ratio was clipped.
        d_logprobs: derivative of the bias with respect to every log-prob.
        delta: minimum of the divisor.
    """

    factor: float | None
    token_norm: float
    scalar_norm: float
    clipped: int
    d_logprobs: Rows
    delta: float

    def from_norm(self, norm: float) -> float:
        """Returns the factor on the gradient, given the norm of the bias' gradient with respect to the weights."""
        if not norm >= 0.0:
            raise ValueError(f"norm is {norm}; it is 0 or more")
        return 1.0 / max(norm, self.delta)


@dataclass(frozen=True)
class Loss:
    """The loss of a batch and its derivatives.

    Attributes:
        value: the loss.
        d_logprobs: derivative with respect to every log-prob, in the form of ``logprobs``.
        metrics: sums and means by name (``policy_loss``, ``kl_loss``, ``clip_fraction``, ``approx_kl`` ..).
        settings: settings of the loss, including all defaults.
        d_entropies: derivative with respect to ``entropies``, if the loss has an entropy bonus.
        d_reference_kls: derivative with respect to ``reference_kls``, if the loss has them.
        normalization: factor that the method applies to the gradient; the derivatives are without it.
    """

    value: float
    d_logprobs: Rows
    metrics: dict[str, float]
    settings: dict[str, Any]
    d_entropies: Rows | None = None
    d_reference_kls: Rows | None = None
    normalization: Normalization | None = None


class _Layout:
    """Positions and mask of the response tokens of every sequence."""

    def __init__(self, shapes: Any, mask: Any, turn_spans: Any, name: str) -> None:
        self.padded = not isinstance(shapes, Sequence)
        self.rows = _arrays.rows(shapes, name)
        self.lengths = [len(row) for row in self.rows]
        # A list of lists of equal length may also be an array.
        masks = None if mask is None else self.like(mask, "mask")
        spans = None if turn_spans is None else _arrays.listed(turn_spans, "turn_spans")
        if spans is not None and len(spans) != len(self.rows):
            raise ValueError(f"turn_spans has {len(spans)} entries; {len(self.rows)} are expected")
        self.spans, self.masks = [], []
        for index, length in enumerate(self.lengths):
            counts = np.ones(length, dtype=bool) if masks is None else masks[index] != 0
            if spans is not None:
                found = _arrays.spans(spans[index], f"turn_spans[{index}]", length)
            else:
                found = [(0, length)] if masks is None else _arrays.runs(counts)
            self.spans.append(found)
            self.masks.append(counts)
        self.positions = [
            np.concatenate([np.arange(start, end) for start, end in spans] or [np.zeros(0, dtype=np.intp)])
            for spans in self.spans
        ]

    def like(self, values: Any, name: str) -> list[NDArray[Any]]:
        """Returns the rows, which must have the lengths of the log-probs' rows."""
        found = _arrays.rows(values, name)
        lengths = [len(row) for row in found]
        if lengths != self.lengths:
            raise ValueError(f"{name} has rows of {_short(lengths)} tokens; {_short(self.lengths)} are expected")
        return found

    def pick(self, values: Any, name: str) -> list[bytearray]:
        """Returns the response tokens of every row as buffers, with 0 at masked tokens."""
        found = []
        for row, positions, counts in zip(self.like(values, name), self.positions, self.masks):
            row = np.where(counts, row.astype(np.float64), 0.0)[positions]
            found.append(bytearray(row.tobytes()))
        return found

    def counts(self, index: int) -> NDArray[np.bool_]:
        return self.masks[index][self.positions[index]]

    def spread(self, buffers: list[bytearray]) -> Rows:
        found: list[Floats] = []
        for buffer, positions, length in zip(buffers, self.positions, self.lengths):
            row: Floats = np.zeros(length)
            row[positions] = _arrays.unpacked(buffer)
            found.append(row)
        return np.stack(found) if self.padded and found else found

    def span_lengths(self) -> list[list[int]]:
        return [[end - start for start, end in spans] for spans in self.spans]


def _short(lengths: list[int]) -> str:
    return str(lengths) if len(lengths) <= 8 else f"[{', '.join(map(str, lengths[:8]))}, ..]"


def policy_loss(
    logprobs: Any,
    old_logprobs: Any,
    advantages: Any,
    *,
    mask: Any = None,
    turn_spans: Any = None,
    ref_logprobs: Any = None,
    entropies: Any = None,
    reference_kls: Any = None,
    preset: str = "grpo",
    **switches: Any,
) -> Loss:
    """Computes the clipped surrogate with KL penalty and entropy bonus, and its derivative with respect to ``logprobs``.

    ``value = sum_t weight_t (-min(w A_t, clip(w) A_t) + beta KL_t - eta H_t)``. The importance ratio ``w`` is that of the
    token (``ppo``, ``grpo``, ``dapo`` ..), the turn (``so-ppo``) or the sequence (``gspo``), and ``loss_agg_mode`` sets the
    weights; all are settings. ``gspo`` treats ``w`` as a constant in the derivative, so that every token keeps its own
    advantage (``ratio="sequence-token"``). ``ratio="sequence"`` differentiates ``w``, which averages a sequence's
    advantages. STAPO's term on outlier turns is :func:`selective_loss`.

    Args:
        logprobs: log-probs of the sampled tokens under the policy, ``[batch, tokens]`` or a list of ``[tokens]``.
        old_logprobs: log-probs under the sampling policy; same form, rounded to single precision.
        advantages: one per token (same form), one per sequence ``[batch]``, or one per turn (a list of ``[turns]``).
        mask: 1 at tokens with a loss; by default all. Without ``turn_spans``, its runs of ones are the turns.
        turn_spans: for each sequence ``[[start, end], ...]``; tokens outside have no loss.
        ref_logprobs: log-probs under the reference policy, rounded to single precision; required by a KL penalty in the
            loss (``kl.coef`` above 0).
        entropies: entropies over the full vocabulary; required by an entropy bonus.
        reference_kls: KLs over the full vocabulary; required by ``kl.estimator = "full"``.
        preset: a name of :func:`turnwise.presets`.
        switches: settings of the loss, by path or as dicts: ``clip={"high": 0.28}``, ``ratio="turn"``, ``dual_clip=3.0``,
            ``loss_agg_mode="token-mean"``, ``kl={"coef": 0.01, "estimator": "k3"}``, ``entropy_coef=0.001``.

    Raises:
        ValueError: if an array or setting is missing or invalid; the message names it.
    """
    layout = _Layout(logprobs, mask, turn_spans, "logprobs")
    taken: dict[str, Sequence[bytearray | None]] = {
        "logprobs": layout.pick(logprobs, "logprobs"),
        "old_logprobs": layout.pick(old_logprobs, "old_logprobs"),
    }
    for name, values in (
        ("ref_logprobs", ref_logprobs),
        ("entropies", entropies),
        ("reference_kls", reference_kls),
    ):
        taken[name] = [None] * len(layout.rows) if values is None else layout.pick(values, name)
    given = _advantages(advantages, layout)
    sequences = [
        {
            "spans": spans,
            "mask": bytearray(layout.counts(index).astype(np.uint8).tobytes()),
            "advantages": given[index][0],
            "per_span": given[index][1],
            **{name: buffers[index] for name, buffers in taken.items()},
        }
        for index, spans in enumerate(layout.span_lengths())
    ]
    found = _native.policy_loss(sequences, preset, _arrays.switches(switches))
    settings = json.loads(found["settings"])
    normalization = None
    if "normalization" in found:
        entry = found["normalization"]
        normalization = Normalization(
            entry["factor"],
            entry["token_norm"],
            entry["scalar_norm"],
            entry["clipped"],
            layout.spread(entry["d_logprobs"]),
            settings["normalization"]["delta"],
        )

    def optional(name: str) -> Rows | None:
        return layout.spread(found[name]) if name in found else None

    return Loss(
        found["value"],
        layout.spread(found["d_logprobs"]),
        found["metrics"],
        settings,
        optional("d_entropies"),
        optional("d_reference_kls"),
        normalization,
    )


def _advantages(values: Any, layout: _Layout) -> list[tuple[bytearray, bool]]:
    """Returns for each sequence the buffer of its advantages, and whether it has one per span."""
    if not isinstance(values, Sequence) or (values and np.ndim(values[0]) == 0):
        whole = _arrays.array(values, "advantages")
        if whole.ndim == 0:
            raise ValueError("advantages is one number; one a token, a turn or a sequence is expected")
        if whole.ndim == 1:
            if len(whole) != len(layout.rows):
                raise ValueError(
                    f"advantages has {len(whole)} entries; one a sequence, {len(layout.rows)}, is expected"
                )
            per_span = [np.full(len(spans), value, dtype=np.float64) for spans, value in zip(layout.spans, whole)]
            return [(bytearray(row.tobytes()), True) for row in per_span]
        return [(buffer, False) for buffer in layout.pick(whole, "advantages")]
    found = _arrays.rows(values, "advantages")
    if len(found) != len(layout.rows):
        raise ValueError(f"advantages has {len(found)} rows; {len(layout.rows)} are expected")
    if [len(row) for row in found] == layout.lengths:
        return [(buffer, False) for buffer in layout.pick(found, "advantages")]
    counts = [len(spans) for spans in layout.spans]
    if [len(row) for row in found] != counts:
        lengths = [len(row) for row in found]
        raise ValueError(
            f"advantages has rows of {_short(lengths)}; as many as tokens, {_short(layout.lengths)}, or as turns, "
            f"{_short(counts)}, are expected"
        )
    return [(bytearray(row.astype(np.float64).tobytes()), True) for row in found]


def value_loss(
    values: Any, old_values: Any, returns: Any, *, mask: Any = None, clip: float = 0.5
) -> tuple[float, Rows, float]:
    """Computes the critic's clipped loss, ``mean_t 0.5 max((v - R)^2, (clip(v) - R)^2)``.

    Args:
        values: ``[batch, tokens]`` or a list of ``[tokens]``, like ``old_values``, ``returns`` and ``mask``.
        clip: maximum distance of the clipped value from the old one.

    Returns:
        the loss, its derivative with respect to ``values``, and the fraction of clipped tokens.
    """
    layout = _Layout(values, None, None, "values")
    masks = None
    if mask is not None:
        masks = [(row != 0).tolist() for row in layout.like(mask, "mask")]
    now, old, targets = (
        [bytes(buffer) for buffer in layout.pick(rows, name)]
        for name, rows in (("values", values), ("old_values", old_values), ("returns", returns))
    )
    loss, slopes, clipped = _native.value_loss(now, old, targets, masks, float(clip))
    return loss, layout.spread(slopes), clipped


def supervised_loss(logprobs: Any, *, weights: Any = None) -> tuple[float, Rows]:
    """Computes the weighted cross-entropy ``-sum_t w_t lp_t / sum_t w_t`` and its derivative with respect to ``logprobs``.

    ``weights`` has the form of ``logprobs``; by default all are 1.
    """
    layout = _Layout(logprobs, None, None, "logprobs")
    if weights is None:
        weights = [np.ones(length) for length in layout.lengths]
    arrays = [
        [bytes(buffer) for buffer in layout.pick(rows, name)]
        for name, rows in (("logprobs", logprobs), ("weights", weights))
    ]
    loss, slopes = _native.supervised_loss(*arrays)
    return loss, layout.spread(slopes)


@dataclass(frozen=True)
class SelectiveLoss:
    """STAPO's selective term of a batch.

    Attributes:
        value: ``-J_sel``, to be added to the policy loss.
        d_first: derivative with respect to ``kls``, or to ``logprobs``.
        d_second: derivative with respect to ``reference_kls``, or to ``masked_logprobs``.
        kl: sum over outlier turns of the mean ``KL[pi(.|c) || pi(.|masked)]``.
        reference_kl: sum over outlier turns of the mean ``KL[pi(.|masked) || pi_ref(.|masked)]``.
        outliers: number of outlier turns.
    """

    value: float
    d_first: Rows
    d_second: Rows
    kl: float
    reference_kl: float
    outliers: int


def selective_loss(
    outliers: Any,
    turn_spans: Any,
    *,
    kls: Any = None,
    reference_kls: Any = None,
    logprobs: Any = None,
    masked_logprobs: Any = None,
    masked_ref_logprobs: Any = None,
    **switches: Any,
) -> SelectiveLoss:
    """Computes STAPO's selective term, which makes outlier turns depend on their context and stay near the reference.

    Pass either full-vocabulary KLs (``kls``, ``reference_kls``), or log-probs of the sampled tokens after the full and the
    masked prompt (``logprobs``, ``masked_logprobs``, ``masked_ref_logprobs``), from which k3 estimates the KLs.

    Args:
        outliers: one list of bools ``[turns]`` per sequence (:attr:`turnwise.Credit.outliers`).
        turn_spans: for each sequence ``[[start, end], ...]``.
        switches: settings ``alpha``, ``gamma``, ``penalty``, ``detach_masked``.
    """
    by_kl = {"kls": kls, "reference_kls": reference_kls}
    by_token = {
        "logprobs": logprobs,
        "masked_logprobs": masked_logprobs,
        "masked_ref_logprobs": masked_ref_logprobs,
    }
    given = [group for group in (by_kl, by_token) if all(values is not None for values in group.values())]
    if len(given) != 1:
        raise ValueError(f"give either {', '.join(by_kl)} or {', '.join(by_token)}, whole")
    arrays = given[0]
    name, first = next(iter(arrays.items()))
    layout = _Layout(first, None, turn_spans, name)
    marked = [np.asarray(row).astype(bool).tolist() for row in _arrays.listed(outliers, "outliers")]
    counts = [len(spans) for spans in layout.spans]
    if [len(row) for row in marked] != counts:
        raise ValueError(f"outliers has rows of {_short([len(row) for row in marked])}; {_short(counts)} are expected")
    picked = [[bytes(buffer) for buffer in layout.pick(rows, name)] for name, rows in arrays.items()]
    found = _native.selective_loss(
        layout.span_lengths(), marked, [list(row) for row in zip(*picked)], _arrays.switches(switches)
    )
    return SelectiveLoss(
        found["value"],
        layout.spread(found["d_first"]),
        layout.spread(found["d_second"]),
        found["kl"],
        found["reference_kl"],
        found["outliers"],
    )


def kl_estimate(logprobs: Any, ref_logprobs: Any, estimator: str = "k3") -> tuple[Floats, Floats]:
    """Estimates ``KL[pi || pi_ref]`` at sampled tokens, with derivatives with respect to ``logprobs``.

    Both arrays have the same shape. With ``d = logprobs - ref_logprobs``, ``k1`` is ``d``, ``k2`` is ``d^2 / 2``, and ``k3``
    is ``exp(-d) - 1 + d``.
    """
    first = np.ascontiguousarray(_arrays.array(logprobs, "logprobs"), dtype=np.float64)
    second = np.ascontiguousarray(_arrays.array(ref_logprobs, "ref_logprobs"), dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(f"ref_logprobs has the shape {second.shape}; {first.shape} is expected")
    values, slopes = _native.kl_estimate(estimator, first.tobytes(), second.tobytes())
    return _arrays.unpacked(values).reshape(first.shape), _arrays.unpacked(slopes).reshape(first.shape)


def reward_kl(old_logprobs: Any, ref_logprobs: Any, coef: float, estimator: str = "k3") -> Floats:
    """Returns the KL penalty of each token, ``coef`` times the estimate, to be subtracted from rewards."""
    return coef * kl_estimate(old_logprobs, ref_logprobs, estimator)[0]


def token_weights(shape: Any, loss_agg_mode: str = "token-mean", *, mask: Any = None, turn_spans: Any = None) -> Rows:
    """Returns the weight of every token in a loss.

    ``loss_agg_mode`` is ``token-mean``, ``seq-mean-token-mean``, ``seq-mean-token-sum`` or ``turn-mean``. ``shape`` is any array
    of the required form, such as the log-probs.
    """
    layout = _Layout(shape, mask, turn_spans, "shape")
    masks = [layout.counts(index).tolist() for index in range(len(layout.rows))]
    return layout.spread(_native.token_weights(loss_agg_mode, layout.span_lengths(), masks))
