"""SkyRL's own functions with the estimator in its registry."""

from __future__ import annotations

import pickle
import types

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


def output_of(responses):
    """What SkyRL's own generator returns, without names, the names in its input, and what is known about the rows."""
    from skyrl.train.generators.base import TrajectoryID

    output = {
        "prompt_token_ids": [[1, 2, 3]] * len(responses.masks),
        "response_ids": [[5] * len(mask) for mask in responses.masks],
        "rewards": [row.tolist() for row in responses.rewards],
        "loss_masks": [mask.tolist() for mask in responses.masks],
        "rollout_logprobs": [(-row).tolist() for row in responses.entropies],
        "trajectory_ids": None,
    }
    names = [TrajectoryID(group, index) for index, group in enumerate(responses.groups)]
    turns = [
        [{**turn, "entropies": own["entropies"]} for turn, own in zip(about["turns"], line["turns"])]
        for about, line in zip(responses.abouts, responses.batch)
    ]
    dicts = [{**about, "turns": own} for about, own in zip(responses.abouts, turns)]
    return output, names, dicts


def generated(responses):
    """The names of a generator's output, and the tensors that SkyRL makes of it."""
    from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors

    output, names, dicts = output_of(responses)
    skyrl.attach(output, dicts, {"trajectory_ids": names})
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


def prompts_one_after_the_other(responses):
    """The rows of the groups of five, as the trainer has them."""
    by_group: dict[str, list[int]] = {}
    for index, group in enumerate(responses.groups):
        by_group.setdefault(group, []).append(index)
    rows = [index for members in by_group.values() if len(members) == 5 for index in members]
    for name in ("batch", "groups", "masks", "abouts", "entropies", "rewards"):
        setattr(responses, name, [getattr(responses, name)[row] for row in rows])
    responses.width = max(len(mask) for mask in responses.masks)


def advantages_of_trainer(output, uids):
    """SkyRL's own way from a generator's output to advantages, with the uids that it had before."""
    trainers = pytest.importorskip("skyrl.train.trainer")
    space = types.SimpleNamespace
    trainer = trainers.RayPPOTrainer.__new__(trainers.RayPPOTrainer)
    trainer.tokenizer, trainer.all_metrics = space(pad_token_id=0), {}
    trainer.dispatch = space(get_lcm_dp_size=lambda: 1)
    algorithm = space(
        max_seq_len=None,
        off_policy_correction=space(tis_ratio_type=None, sequence_mask_metric=None),
        advantage_estimator="turnwise",
        gamma=1.0,
        lambd=1.0,
        grpo_norm_by_std=True,
    )
    prompts = len(set(uids))
    trainer.cfg = space(
        trainer=space(
            algorithm=algorithm,
            train_batch_size=prompts,
            policy_mini_batch_size=prompts,
            critic=space(model=space(path=None)),
        ),
        generator=space(n_samples_per_prompt=5, step_wise_trajectories=False),
    )
    data = trainer.convert_to_training_input(output, uids)
    data["values"] = None
    return trainer.compute_advantages_and_returns(data)["advantages"].numpy()


def test_the_trainer_takes_the_names_of_trajectories(responses, expected_of, monkeypatch):
    monkeypatch.setenv("TURNWISE_PRESET", "gigpo")
    pytest.importorskip("skyrl.train.trainer")
    prompts_one_after_the_other(responses)
    output, names, dicts = output_of(responses)
    skyrl.attach(output, dicts, {"trajectory_ids": names})
    assert not any(isinstance(name.instance_id, skyrl.Uid) for name in names), "the input stays as it is"
    found = advantages_of_trainer(output, list(responses.groups))
    expected = responses.padded(expected_of(responses, "gigpo"), right_aligned=True)
    assert found.shape == expected.shape and np.abs(found - expected).max() < 1e-5
    # Another generator's names are none of ours, and the uids stay as they are.
    with pytest.raises(ValueError, match="row 0 has no turns"):
        advantages_of_trainer({**output, "trajectory_ids": names}, list(responses.groups))


def test_overlong_filtering_takes_a_row_out_of_its_group(responses, expected_of, monkeypatch):
    monkeypatch.setenv("TURNWISE_PRESET", "gigpo")
    pytest.importorskip("skyrl.train.trainer")
    prompts_one_after_the_other(responses)
    output, names, dicts = output_of(responses)
    output["loss_masks"][0] = [0] * len(responses.masks[0])
    skyrl.attach(output, dicts, {"trajectory_ids": names})
    found = advantages_of_trainer(output, list(responses.groups))
    for name in ("batch", "groups", "masks", "abouts", "entropies", "rewards"):
        setattr(responses, name, getattr(responses, name)[1:])
    expected = responses.padded(expected_of(responses, "gigpo"), right_aligned=True)
    assert not found[0].any() and np.abs(found[1:] - expected).max() < 1e-5


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
    with pytest.raises(ValueError, match=r"has trajectory_ids; call attach\(output, turns, input_batch\)"):
        skyrl.attach({"trajectory_ids": None}, [])
