"""Losses against their equations written in NumPy, and derivatives against central differences."""

from __future__ import annotations

import numpy as np
import pytest

from turnwise import objective

STEP = 1e-4


def data(seed: int, batch: int = 4, tokens: int = 9) -> dict:
    draw = np.random.default_rng(seed)
    mask = (draw.random((batch, tokens)) < 0.75).astype(float)
    mask[:, 0] = 1.0
    old = -draw.random((batch, tokens)) * 3 - 0.1
    return {
        "logprobs": old + draw.normal(0, 0.35, (batch, tokens)),
        "old_logprobs": old.astype(np.float32),
        "advantages": draw.normal(0, 1, (batch, tokens)),
        "mask": mask,
        "ref_logprobs": (old + draw.normal(0, 0.2, (batch, tokens))).astype(np.float32),
        "entropies": draw.random((batch, tokens)) * 2,
    }


def differences(of, at: np.ndarray) -> np.ndarray:
    """Fourth-order central differences of a function of an array."""
    slopes = np.zeros_like(at)
    for index in np.ndindex(at.shape):

        def moved(factor):
            other = at.copy()
            other[index] += factor * STEP
            return of(other)

        slopes[index] = (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12 * STEP)
    return slopes


LOSSES = [
    ("grpo", {}),
    ("ppo", {}),
    ("dapo", {}),
    ("gspo", {"ratio": "sequence"}),
    ("gspo", {"ratio": "sequence", "clip": {"low": 0.1, "high": 0.1}}),
    ("so-ppo", {"clip": {"low": 0.05, "high": 0.1}}),
    ("so-grpo", {}),
    ("stapo", {}),
    ("grpo", {"loss_agg_mode": "seq-mean-token-sum", "dual_clip": 1.3}),
    ("grpo", {"loss_agg_mode": "turn-mean", "ratio": "turn", "kl": {"coef": 0.1, "estimator": "k2"}}),
    ("grpo", {"entropy_coef": 0.05, "kl.coef": 0.02, "kl.estimator": "k1"}),
]


@pytest.mark.parametrize(("preset", "switches"), LOSSES)
def test_derivatives_are_central_differences(preset, switches):
    given = data(1)

    def loss(**changed):
        return objective.policy_loss(**{**given, **changed}, preset=preset, **switches)

    found = loss()
    slopes = differences(lambda logprobs: loss(logprobs=logprobs).value, given["logprobs"])
    assert found.d_logprobs.shape == given["logprobs"].shape
    assert np.abs(found.d_logprobs - slopes).max() < 1e-6
    assert not found.d_logprobs[given["mask"] == 0].any()
    # A doctored derivative would be noticed.
    assert np.abs(found.d_logprobs * 1.001 + 1e-5 - slopes).max() > 1e-6
    if "entropy_coef" in switches:
        slopes = differences(lambda entropies: loss(entropies=entropies).value, given["entropies"])
        assert np.abs(found.d_entropies - slopes).max() < 1e-6
    else:
        assert found.d_entropies is None


class Tensor:
    """What is asked of PyTorch's tensors, which need not be installed."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def is_floating_point(self) -> bool:
        return self.values.dtype.kind == "f"

    def float(self) -> Tensor:
        return Tensor(self.values.astype(np.float32))

    def double(self) -> Tensor:
        return Tensor(self.values.astype(np.float64))

    def numpy(self) -> np.ndarray:
        return self.values


def test_tensors_keep_every_digit():
    given = data(3)
    tensors = {name: Tensor(values) for name, values in given.items()}
    expected = objective.policy_loss(**given, preset="grpo", kl={"coef": 0.1})
    found = objective.policy_loss(**tensors, preset="grpo", kl={"coef": 0.1})
    assert found.value == expected.value and np.array_equal(found.d_logprobs, expected.d_logprobs)


def test_the_surrogate_by_its_equation():
    given = data(2)
    mask = given["mask"]
    ratio = np.exp(given["logprobs"] - given["old_logprobs"])
    terms = -np.minimum(ratio * given["advantages"], np.clip(ratio, 0.8, 1.2) * given["advantages"])
    expected = (terms * mask).sum() / mask.sum()
    found = objective.policy_loss(**given, preset="grpo")
    assert abs(found.value - expected) < 1e-12
    by_sequence = ((terms * mask).sum(1) / mask.sum(1)).mean()
    changed = objective.policy_loss(**given, preset="grpo", loss_agg_mode="seq-mean-token-mean")
    assert abs(changed.value - by_sequence) < 1e-12 and abs(changed.value - found.value) > 1e-6
    difference = (given["logprobs"] - given["ref_logprobs"]).astype(float)
    kl = ((np.exp(-difference) - 1 + difference) * mask).sum() / mask.sum()
    with_kl = objective.policy_loss(**given, preset="grpo", **{"kl.coef": 0.1})
    assert abs(with_kl.value - expected - 0.1 * kl) < 1e-12
    assert abs(with_kl.metrics["reference_kl"] - kl) < 1e-12
    sequence = np.exp(((given["logprobs"] - given["old_logprobs"]) * mask).sum(1) / mask.sum(1))
    advantages = np.array([1.0, -1.0, 0.5, 2.0])
    terms = -np.minimum(sequence * advantages, np.clip(sequence, 0.9, 1.1) * advantages)
    gspo = objective.policy_loss(**{**given, "advantages": advantages}, preset="gspo", clip={"low": 0.1, "high": 0.1})
    assert abs(gspo.value - terms.mean()) < 1e-12


def test_gspos_gradient_is_each_tokens_own():
    given = data(7)
    mask, old = given["mask"], given["old_logprobs"].astype(float)
    ratio = np.exp(((given["logprobs"] - old) * mask).sum(1) / mask.sum(1))[:, None]
    advantages = given["advantages"]
    clipped = ((advantages > 0) & (ratio > 1.1)) | ((advantages < 0) & (ratio < 0.9))
    weights = mask / mask.sum(1, keepdims=True) / len(mask)
    gspo = {"preset": "gspo", "clip": {"low": 0.1, "high": 0.1}}
    found = objective.policy_loss(**given, **gspo)
    assert clipped[mask == 1].any() and not clipped[mask == 1].all()
    assert np.abs(found.d_logprobs + weights * ratio * advantages * ~clipped).max() < 1e-12
    through = objective.policy_loss(**given, **gspo, ratio="sequence")
    assert found.value == through.value and np.abs(found.d_logprobs - through.d_logprobs).max() > 1e-3
    # Where a sequence has one advantage, the two are the same.
    given["advantages"] = np.array([1.0, -1.0, 0.5, 2.0])
    found, through = objective.policy_loss(**given, **gspo), objective.policy_loss(**given, **gspo, ratio="sequence")
    assert np.abs(found.d_logprobs - through.d_logprobs).max() < 1e-15


def test_metrics_by_their_definitions():
    given = data(6)
    given["logprobs"][0, :6] = given["old_logprobs"][0, :6] + [0.005, -0.02, 0.4, -1.5, 3.5, -11.0]
    given["mask"][0, :6] = 1.0
    metrics = objective.policy_loss(**given, preset="grpo").metrics
    mask = given["mask"] == 1
    log_ratio = (given["logprobs"] - given["old_logprobs"].astype(float))[mask]
    above = {float(name.removeprefix("log_ratio_above_")): share for name, share in metrics.items() if "above" in name}
    assert sorted(above) == [0.01, 0.03, 0.1, 0.3, 1, 3, 10]
    for bound, share in above.items():
        assert abs(share - (np.abs(log_ratio) > bound).mean()) < 1e-12
    # The bounds tell the shares apart, so that one in the place of another would be noticed.
    assert len(set(above.values())) == len(above) and min(above.values()) > 0
    assert abs(metrics["max_log_ratio"] - np.abs(log_ratio).max()) < 1e-12
    assert abs(metrics["ratio"] - np.exp(log_ratio).mean()) < 1e-12


def test_forms_of_the_arrays_agree():
    given = data(3)
    mask = given.pop("mask")
    padded = objective.policy_loss(**given, mask=mask, preset="so-ppo")
    lists = {name: list(rows) for name, rows in given.items()}
    listed = objective.policy_loss(**lists, mask=list(mask), preset="so-ppo")
    assert isinstance(listed.d_logprobs, list) and listed.value == padded.value
    assert all(np.array_equal(a, b) for a, b in zip(listed.d_logprobs, padded.d_logprobs))
    spans = [[[0, 3], [5, 9]] for _ in mask]
    per_turn = [np.array([0.5, -0.25])] * 4
    by_turn = objective.policy_loss(**{**given, "advantages": per_turn}, turn_spans=spans, preset="so-ppo")
    spread = np.zeros(mask.shape)
    spread[:, 0:3], spread[:, 5:9] = 0.5, -0.25
    by_token = objective.policy_loss(**{**given, "advantages": spread}, turn_spans=spans, preset="so-ppo")
    assert by_turn.value == by_token.value and not by_turn.d_logprobs[:, 3:5].any()
    ones = objective.policy_loss(**{**given, "advantages": np.ones(4)}, preset="grpo")
    filled = objective.policy_loss(**{**given, "advantages": np.ones(mask.shape)}, preset="grpo")
    assert ones.value == filled.value


def test_sorl_normalizes_by_the_clipping_bias():
    given = data(4)
    token = objective.policy_loss(**given, preset="so-grpo", normalization={"norm": "token", "delta": 1e-3})
    bias = token.normalization
    assert bias.clipped > 0 and abs(bias.factor - 1 / bias.token_norm) < 1e-12
    parameter = objective.policy_loss(**given, preset="so-grpo").normalization
    assert parameter.factor is None and parameter.from_norm(0.5) == 1.0 and parameter.from_norm(4.0) == 0.25
    ratio = np.exp(given["logprobs"] - given["old_logprobs"])
    clipped = ((given["advantages"] > 0) & (ratio > 1.2)) | ((given["advantages"] < 0) & (ratio < 0.8))
    weights = given["mask"] / given["mask"].sum(1, keepdims=True) / len(ratio)
    entries = clipped * weights * ratio * given["advantages"]
    assert abs(bias.token_norm - np.sqrt((entries**2).sum())) < 1e-9
    assert np.abs(bias.d_logprobs - entries).max() < 1e-9
    assert objective.policy_loss(**given, preset="grpo").normalization is None


def test_the_critics_the_warm_starts_and_stapos_loss():
    draw = np.random.default_rng(0)
    values, old, returns = draw.normal(size=(3, 2, 5))
    mask = np.array([[1, 1, 0, 1, 1], [1, 0, 1, 1, 1]])
    loss, slopes, _ = objective.value_loss(values, old, returns, mask=mask, clip=0.2)
    clipped = old + np.clip(values - old, -0.2, 0.2)
    terms = 0.5 * np.maximum((values - returns) ** 2, (clipped - returns) ** 2)
    assert abs(loss - (terms * mask).sum() / mask.sum()) < 1e-12
    expected = differences(lambda v: objective.value_loss(v, old, returns, mask=mask, clip=0.2)[0], values)
    assert np.abs(slopes - expected).max() < 1e-6

    weights = draw.random((2, 5))
    loss, slopes = objective.supervised_loss(values, weights=weights)
    assert abs(loss + (weights * values).sum() / weights.sum()) < 1e-12
    assert np.abs(slopes + weights / weights.sum()).max() < 1e-12

    outliers, spans = [[True, False], [False, True]], [[[0, 2], [2, 5]], [[0, 1], [1, 5]]]
    masked, reference = values + draw.normal(0, 0.1, (2, 5)), values + draw.normal(0, 0.1, (2, 5))

    def term(**changed):
        given = {"logprobs": values, "masked_logprobs": masked, "masked_ref_logprobs": reference, **changed}
        return objective.selective_loss(outliers, spans, **given, alpha=0.5, gamma=0.25)

    k3 = lambda a, b: np.exp(b - a) - 1 + a - b
    turns = [(0, slice(0, 2)), (1, slice(1, 5))]
    gained = [
        0.5 * k3(values[i, s], masked[i, s]).mean() - 0.25 * k3(masked[i, s], reference[i, s]).mean() for i, s in turns
    ]
    found = term()
    assert abs(found.value + sum(gained) / 4) < 1e-12 and found.outliers == 2
    assert np.abs(found.d_first - differences(lambda v: term(logprobs=v).value, values)).max() < 1e-6
    assert np.abs(found.d_second - differences(lambda v: term(masked_logprobs=v).value, masked)).max() < 1e-6
    kls = objective.selective_loss(outliers, spans, kls=np.abs(values), reference_kls=np.abs(masked))
    assert kls.d_first[0, 0] < 0 < kls.d_second[0, 0] and kls.d_first[0, 3] == 0


def test_kls_and_weights():
    a, b = np.array([[-1.0, -2.0]]), np.array([[-1.5, -1.0]])
    for name, of in {"k1": lambda d: d, "k2": lambda d: d * d / 2, "k3": lambda d: np.exp(-d) - 1 + d}.items():
        values, slopes = objective.kl_estimate(a, b, name)
        assert np.allclose(values, of(a - b), atol=1e-14) and values.shape == (1, 2)
        assert np.allclose(slopes, differences(lambda x: objective.kl_estimate(x, b, name)[0].sum(), a), atol=1e-8)
    assert np.array_equal(objective.reward_kl(a, b, 0.5, "k1"), 0.5 * (a - b))
    with pytest.raises(ValueError, match="there are k1, k2 and k3"):
        objective.kl_estimate(a, b, "k4")
    rows = [np.zeros(3), np.zeros(1)]
    assert np.allclose(np.concatenate(objective.token_weights(rows, "token-mean")), 0.25)
    assert np.allclose(np.concatenate(objective.token_weights(rows, "seq-mean-token-mean")), [1 / 6] * 3 + [0.5])
    spans = [[[0, 1], [1, 3]], [[0, 1]]]
    by_turn = objective.token_weights(rows, "turn-mean", turn_spans=spans)
    assert np.allclose(np.concatenate(by_turn), [1 / 3, 1 / 6, 1 / 6, 1 / 3])
    with pytest.raises(ValueError, match="loss_agg_mode: unknown variant `mean`"):
        objective.token_weights(rows, "mean")


def test_what_is_wrong_is_named():
    given = data(5)

    def refused(match, **changed):
        with pytest.raises(ValueError, match=match):
            objective.policy_loss(**{**given, **changed})

    refused(
        r"old_logprobs has rows of \[8, 8, 8, 8\] tokens; \[9, 9, 9, 9\] are expected",
        old_logprobs=given["old_logprobs"][:, 1:],
    )
    refused(r"advantages has 3 entries; one a sequence, 4, is expected", advantages=np.ones(3))
    refused(r"advantages is one number", advantages=1.0)
    refused(r"mask has rows of", mask=np.ones((3, 9)))
    refused(r"logprobs\[0\] has the shape", logprobs=np.ones((4, 9, 1)))
    refused("kl.coef is 0.1, so sequence 0 needs ref_logprobs", **{"ref_logprobs": None, "kl.coef": 0.1})
    refused("entropies has 0 entries", entropies=None, entropy_coef=0.1)
    refused("unknown preset `grop`; did you mean `grpo`", preset="grop")
    refused("clop: there is no `clop`.*Did you mean `clip`", clop=0.1)
    refused("clip", clip={"low": -1.0})
    refused("logprobs is nan|logprobs is NaN", logprobs=np.where(np.arange(9) == 0, np.nan, given["logprobs"]))
    refused(r"turn_spans\[0\]\[0\] is \[0, 10\)", turn_spans=[[[0, 10]]] * 4)
    with pytest.raises(ValueError, match="give either kls, reference_kls or logprobs"):
        objective.selective_loss([[True]], [[[0, 1]]], kls=[[1.0]])
