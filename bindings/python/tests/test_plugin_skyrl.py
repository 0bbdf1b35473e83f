"""SkyRL's own functions with the estimator in its registry."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
ppo_utils = pytest.importorskip("skyrl.backends.skyrl_train.utils.ppo_utils", reason="skyrl is not installed")

from turnwise.plugins import skyrl  # noqa: E402


@pytest.fixture(autouse=True)
def registered():
    skyrl.register()
    skyrl.register()
    assert "turnwise" in ppo_utils.AdvantageEstimatorRegistry.list_available()


def generated(responses):
    """A generator's output, and the tensors that SkyRL makes of it."""
    from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors
    from skyrl.train.generators.base import TrajectoryID

    output = {
        "prompt_token_ids": [[1, 2, 3]] * len(responses.masks),
        "response_ids": [[5] * len(mask) for mask in responses.masks],
        "rewards": [row.tolist() for row in responses.rewards],
        "loss_masks": [mask.tolist() for mask in responses.masks],
        "rollout_logprobs": [(-row).tolist() for row in responses.entropies],
        "trajectory_ids": [TrajectoryID(group, index) for index, group in enumerate(responses.groups)],
    }
    turns = [
        [{**turn, "entropies": own["entropies"]} for turn, own in zip(about["turns"], line["turns"])]
        for about, line in zip(responses.abouts, responses.batch)
    ]
    dicts = [{**about, "turns": own} for about, own in zip(responses.abouts, turns)]
    skyrl.attach(output, dicts)
    tensors = convert_prompts_responses_to_batch_tensors(
        0,
        output["prompt_token_ids"],
        output["response_ids"],
        output["rewards"],
        output["loss_masks"],
        output["rollout_logprobs"],
    )
    response_mask, rewards = tensors[2], tensors[3]
    uids = [trajectory.instance_id for trajectory in output["trajectory_ids"]]
    return uids, response_mask, rewards


def run(uids, response_mask, rewards, name="turnwise"):
    return ppo_utils.compute_advantages_and_returns(
        token_level_rewards=rewards,
        response_mask=response_mask,
        index=uids,
        adv_estimator=name,
        config=None,
        values=None,
        gamma=1.0,
        lambd=1.0,
        grpo_norm_by_std=True,
    )


@pytest.mark.parametrize("preset", ["grpo", "gigpo", "hgpo", "salt-grpo", "aem-gigpo", "stapo", "has-progressive"])
def test_the_registry_gives_the_programs_numbers(preset, responses, expected_of, monkeypatch):
    monkeypatch.setenv("TURNWISE_PRESET", preset)
    uids, response_mask, rewards = generated(responses)
    advantages, returns = run(uids, response_mask, rewards)
    expected = responses.padded(expected_of(responses, preset), right_aligned=True)
    assert advantages.shape == expected.shape and np.abs(advantages.numpy() - expected).max() < 1e-5
    assert torch.equal(advantages, returns)
    rewards = rewards.clone()
    rewards[0, -1] += 1.0
    assert np.abs(run(uids, response_mask, rewards)[0].numpy() - expected).max() > 1e-5


def test_a_uid_is_the_text_that_it_was(responses, monkeypatch):
    uids, response_mask, rewards = generated(responses)
    assert uids == responses.groups and len(set(uids)) == len(set(responses.groups))
    copied = pickle.loads(pickle.dumps(uids))
    assert copied[0].about == uids[0].about and isinstance(copied[0], skyrl.Uid)
    monkeypatch.setenv("TURNWISE_PRESET", "aem-grpo")
    monkeypatch.setenv("TURNWISE_ENTROPIES", "surprisal")
    by_name = run(uids, response_mask, rewards)[0]
    assert torch.equal(run(copied, response_mask, rewards)[0], by_name)
    # Settings may be given where the estimator is registered, over those of the environment.
    skyrl.register("turnwise-hgpo", {"preset": "hgpo"})
    assert not torch.equal(run(uids, response_mask, rewards, "turnwise-hgpo")[0], by_name)


def test_what_cannot_work_is_refused(responses, monkeypatch):
    uids, response_mask, rewards = generated(responses)
    monkeypatch.delenv("TURNWISE_PRESET", raising=False)
    with pytest.raises(ValueError, match="no preset is named"):
        run(uids, response_mask, rewards)
    monkeypatch.setenv("TURNWISE_PRESET", "gigpo")
    # A step-wise trainer makes an array of the names, which are plain texts then.
    with pytest.raises(ValueError, match="row 0 has no turns: the generator must call"):
        run(np.array(uids), response_mask, rewards)
    with pytest.raises(ValueError, match="turns has 1 entries"):
        skyrl.attach({"trajectory_ids": [1, 2], "loss_masks": [[1], [1]]}, [[]])
    with pytest.raises(ValueError, match="no trajectory_ids"):
        skyrl.attach({}, [])
