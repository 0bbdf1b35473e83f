"""Methods that are Python functions: their numbers, their settings, their errors."""

from __future__ import annotations

import numpy as np
import pytest

import turnwise


@turnwise.estimator
def own_grpo(batch, *, epsilon=1e-6):
    """GRPO's advantages, written again."""
    returns = batch.sums(batch.reward)
    found = np.zeros(len(returns))
    for group in np.unique(batch.groups):
        at = batch.groups == group
        if at.sum() > 1:
            found[at] = (returns[at] - returns[at].mean()) / (returns[at].std(ddof=1) + epsilon)
    return batch.to_turns(found)


@turnwise.refinement
def scaled(batch, advantages, *, factor=0.5):
    return factor * advantages, {"before": advantages}


def close(one, other):
    return all(np.allclose(a, b, atol=1e-12) for a, b in zip(one, other, strict=True))


def test_an_estimator_gives_the_numbers_of_the_built_in_one(make_batch):
    for seed in range(3):
        batch = make_batch(seed)
        # The penalty of invalid actions is a part of the preset.
        for turn in (turn for line in batch for turn in line["turns"]):
            turn["valid"] = True
        expected = turnwise.credit(batch, "grpo").advantages
        for method in ("own_grpo", own_grpo, [own_grpo]):
            assert close(turnwise.credit(batch, method).advantages, expected)
        assert close(own_grpo(batch), expected)
        assert not close(turnwise.credit(batch, own_grpo, estimator={"kind": "own_grpo", "epsilon": 0.5}).advantages, expected)


def test_a_refinement_follows_a_preset(make_batch):
    batch = make_batch(1)
    gigpo = turnwise.credit(batch, "gigpo").advantages
    halves = turnwise.credit(batch, ["gigpo", scaled], explain=True)
    assert close(halves.advantages, [0.5 * row for row in gigpo])
    stages = halves.explanations[0][0]
    assert [stage["stage"] for stage in stages] == ["gigpo", "scaled"]
    assert stages[1]["facts"] == {"before": gigpo[0][0]}
    twice = turnwise.credit(batch, ["aem-gigpo", scaled], **{"scaled.factor": 2.0})
    assert close(twice.advantages, [2 * row for row in turnwise.credit(batch, "aem-gigpo").advantages])
    with pytest.raises(ValueError, match="one preset or estimator"):
        turnwise.credit(batch, ["gigpo", own_grpo])


def test_the_arrays_are_those_of_the_turns():
    seen = {}

    @turnwise.refinement(name="looks", texts=True)
    def looks(batch, advantages):
        seen["batch"] = batch
        return advantages

    turn = lambda state, reward, **more: {"observation": state, "reward": reward, **more}
    batch = [
        {"group": "a", "success": True, "turns": [turn("s", 1.0, action="x", entropies=[0.5, 1.5]), turn("t", 2.0, action="y")]},
        {"group": "b", "turns": [turn("t", 3.0, action="z", valid=False)]},
        {"group": "a", "turns": [turn("t", 4.0, action="x"), turn("t", 5.0, action="x"), turn("u", 6.0, action="x")]},
    ]
    turnwise.credit(batch, looks)
    found = seen["batch"]
    assert found.group.tolist() == [0, 0, 0, 0, 0, 1] and found.trajectory.tolist() == [0, 0, 1, 1, 1, 2]
    assert found.turn.tolist() == [0, 1, 0, 1, 2, 0] and found.state.tolist() == [0, 1, 1, 1, 2, 0]
    assert found.reward.tolist() == [1.0, 2.0, 4.0, 5.0, 6.0, 3.0]
    assert found.valid.tolist() == [True] * 5 + [False] and found.success.tolist() == [True, True] + [False] * 4
    assert found.entropy[0] == 1.0 and np.isnan(found.entropy[1:]).all()
    assert found.observations == ["s", "t", "t", "t", "u", "t"] and found.actions[5] == "z"
    assert found.sums(found.reward).tolist() == [3.0, 15.0, 3.0]
    assert found.returns(0.5).tolist() == [2.0, 2.0, 8.0, 8.0, 6.0, 3.0]
    assert found.outcome.tolist() == [3.0, 3.0, 15.0, 15.0, 15.0, 3.0]
    assert [row.tolist() for row in found.split(found.turn)] == [[0, 1], [0, 1, 2], [0]]


def test_errors_say_where(make_batch):
    batch = make_batch(0)

    @turnwise.estimator
    def breaks(batch):
        return {}["nothing"]

    with pytest.raises(ValueError, match=r"breaks: KeyError: 'nothing' \(.*test_methods.py, line \d+, in breaks\)") as caught:
        turnwise.credit(batch, breaks)
    assert isinstance(caught.value.__cause__, KeyError)

    @turnwise.estimator
    def short(batch):
        return np.zeros(3)

    with pytest.raises(ValueError, match=r"short returned advantages of the shape \(3,\)"):
        turnwise.credit(batch, short)

    @turnwise.estimator
    def nan(batch):
        return np.full(len(batch), np.nan)

    with pytest.raises(ValueError, match="nan: `advantage` is NaN"):
        turnwise.credit(batch, nan)
    with pytest.raises(ValueError, match="unknown field `fctor`, expected one of `factor`"):
        turnwise.credit(batch, "grpo", refinements=[{"kind": "scaled", "fctor": 1.0}])
    with pytest.raises(ValueError, match="grpo: turnwise has a method of this name"):
        turnwise.estimator(name="grpo")(lambda batch: batch.reward)
    with pytest.raises(TypeError, match="the setting 'factor' has no default"):

        @turnwise.estimator
        def wants(batch, *, factor):
            return batch.reward

    with pytest.raises(TypeError, match=r"\(batch, advantages, \*, settings\) is expected"):
        turnwise.refinement(lambda batch: batch.reward)


def test_a_second_method_of_a_name_replaces_the_first(make_batch):
    batch = make_batch(2)
    for scale in (1.0, 3.0):

        @turnwise.estimator(name="again")
        def again(batch):
            return scale * batch.reward

        rows = turnwise.credit(batch, "again").advantages
        assert rows[0].tolist() == [scale * turn["reward"] for turn in batch[0]["turns"]]
