"""verl's own functions with the plug-in registered: 0.7 and 0.8 by the estimator, 0.9 by the trainer too.

The environment has to have one version of verl; `benches/real/plugins.sh` runs this file with three.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
verl = pytest.importorskip("verl", reason="verl is not installed")

from omegaconf import OmegaConf  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.trainer.ppo import core_algos  # noqa: E402

import turnwise.plugins.verl as plugin  # noqa: E402

PRESETS = ["grpo", "gigpo", "hgpo", "salt-grpo", "aem-gigpo", "stapo", "has-progressive"]


def legacy_compute_advantage():
    for module in ("verl.trainer.ppo.ray_trainer", "verl.trainer.ppo.v0.ray_trainer"):
        try:
            return importlib.import_module(module).compute_advantage
        except (ImportError, AttributeError):
            continue
    pytest.skip("this version has no compute_advantage")


def algorithm(preset: str | None, **more):
    settings = {} if preset is None else {"turnwise": {"preset": preset, **more}}
    return OmegaConf.create({"adv_estimator": "gdpo", "gamma": 1.0, "lam": 1.0, "use_kl_in_reward": False, **settings})


def data_of(responses, entropies: bool = True) -> DataProto:
    tensor = lambda rows: torch.tensor(responses.padded(rows), dtype=torch.float32)
    abouts = np.empty(len(responses.abouts), dtype=object)
    abouts[:] = responses.abouts
    tensors = {
        "token_level_rewards": tensor(responses.rewards),
        "response_mask": tensor(responses.masks).long(),
        "old_log_probs": -tensor(responses.entropies),
    }
    if entropies:
        tensors[plugin.ENTROPIES] = tensor(responses.entropies)
    objects = {"uid": np.array(responses.groups, dtype=object), "turnwise": abouts}
    return DataProto.from_dict(tensors=tensors, non_tensors=objects)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_estimator_inside_verls_compute_advantage(preset, responses, expected_of):
    compute_advantage = legacy_compute_advantage()
    data = compute_advantage(data_of(responses), adv_estimator="gdpo", config=algorithm(preset))
    expected = responses.padded(expected_of(responses, preset))
    got = data.batch["advantages"].numpy()
    assert got.shape == expected.shape and np.abs(got - expected).max() < 1e-5
    assert torch.equal(data.batch["advantages"], data.batch["returns"])
    if preset == "stapo":
        assert data.batch[plugin.OUTLIERS].any()
        assert not data.batch[plugin.OUTLIERS][data.batch["response_mask"] == 0].any()
    # Other rewards give other numbers.
    doctored = data_of(responses)
    doctored.batch["token_level_rewards"][0, 0] += 1.0
    other = compute_advantage(doctored, adv_estimator="gdpo", config=algorithm(preset)).batch["advantages"].numpy()
    assert np.abs(other - expected).max() > 1e-5


def test_surprisal_and_refusals(responses, expected_of):
    compute_advantage = legacy_compute_advantage()
    run = lambda config, data: compute_advantage(data, adv_estimator="gdpo", config=config)
    found = run(algorithm("aem-grpo", entropies="surprisal"), data_of(responses, entropies=False))
    expected = responses.padded(expected_of(responses, "aem-grpo"))
    assert np.abs(found.batch["advantages"].numpy() - expected).max() < 1e-5
    with pytest.raises(ValueError, match="needs `entropy`.*surprisal"):
        run(algorithm("aem-grpo"), data_of(responses, entropies=False))
    with pytest.raises(ValueError, match=r"add \+algorithm.turnwise.preset=gigpo"):
        run(algorithm(None), data_of(responses))
    with pytest.raises(ValueError, match="turnwise.preset is 'gipgo'"):
        run(algorithm("gipgo"), data_of(responses))


def test_what_fills_a_masked_response_is_none_of_its_turn(responses):
    """One row a turn, the last of them masked: its entropy is that of its own tokens."""
    first, last = (int(np.sum(responses.masks[index])) for index in range(2))
    width = max(first, last) + 4

    def about(session, turn, reward):
        return {"trajectory": session, "turn": turn, "turns": [{"observation": "room", "reward": reward}]}

    lengths, mask = [first, last, first], np.zeros((3, width))
    entropies, attention = np.zeros((3, width)), np.ones((3, 2 + width))
    for row, length in enumerate(lengths):
        entropies[row, :length] = 1.0 + row
        attention[row, 2 + length :] = 0
        mask[row, :length] = row != 1

    def run(filling):
        filled = np.where(attention[:, 2:] != 0, entropies, filling)
        values, _ = plugin.gdpo_or_turnwise(
            token_level_rewards=torch.as_tensor(np.zeros((3, width)), dtype=torch.float32),
            response_mask=torch.as_tensor(mask),
            config=algorithm("aem-gigpo"),
            index=["a", "a", "a"],
            non_tensor_batch={"turnwise": [about("0", 0, 0.0), about("0", 1, 1.0), about("1", 0, 0.0)]},
            batch={plugin.ENTROPIES: torch.as_tensor(filled), "attention_mask": torch.as_tensor(attention)},
        )
        return values.numpy()

    found = run(0.0)
    assert found.shape == mask.shape and not found[mask == 0].any() and found[0].any()
    assert np.array_equal(found, run(50.0))


def test_gdpo_stays_verls_own_where_nothing_is_asked(responses):
    if plugin._own_gdpo is None:
        pytest.skip("this version has no gdpo")
    asked = []
    own = plugin._own_gdpo
    plugin._own_gdpo = lambda **kwargs: asked.append(kwargs) or ("advantages", "returns")
    try:
        data = data_of(responses)
        del data.non_tensor_batch["turnwise"]
        found = core_algos.get_adv_estimator_fn("gdpo")(
            token_level_rewards=data.batch["token_level_rewards"],
            response_mask=data.batch["response_mask"],
            config=algorithm(None),
            index=data.non_tensor_batch["uid"],
            non_tensor_batch=data.non_tensor_batch,
            batch=data.batch,
        )
    finally:
        plugin._own_gdpo = own
    assert found == ("advantages", "returns") and asked[0]["index"] is data.non_tensor_batch["uid"]


def test_the_entropies_of_verls_pass_are_kept(responses):
    ray_trainer = pytest.importorskip("verl.trainer.ppo.ray_trainer")
    trainer = getattr(ray_trainer.RayPPOTrainer, "__wrapped__", ray_trainer.RayPPOTrainer)
    kept = getattr(trainer, "_compute_old_log_prob", None)
    if kept is None:
        pytest.skip("this version has no such pass")
    assert hasattr(kept, "turnwise")
    entropys = torch.tensor(responses.padded(responses.entropies), dtype=torch.float32)
    answer = types.SimpleNamespace(batch={"entropys": entropys, "old_log_probs": -entropys})
    for preset, there in (("aem-grpo", True), ("gigpo", False)):
        config = OmegaConf.create({"algorithm": {"turnwise": {"preset": preset}}})
        batch = types.SimpleNamespace(batch={})
        original = kept.__wrapped__
        wrapped = types.FunctionType(
            kept.__code__,
            kept.__globals__,
            closure=tuple(
                types.CellType(lambda self, batch: (answer, 0.0)) if cell.cell_contents is original else cell
                for cell in kept.__closure__
            ),
        )
        wrapped(types.SimpleNamespace(config=config), batch)
        assert (plugin.ENTROPIES in batch.batch) == there


def test_the_trainer_of_0_9(responses, expected_of, monkeypatch):
    trainer_base = pytest.importorskip(
        "verl.trainer.ppo.v1.trainer_base", reason="verl before 0.9, or no TransferQueue"
    )
    from tensordict import NonTensorStack, TensorDict
    from transfer_queue import KVBatchMeta

    from turnwise.plugins import _verl_trainers

    cls = trainer_base.get_trainer_cls("turnwise_sync")
    assert issubclass(cls, trainer_base.get_trainer_cls("sync"))
    nested = lambda rows: torch.nested.as_nested_tensor(
        [torch.tensor(np.asarray(row), dtype=torch.float32) for row in rows], layout=torch.jagged
    )
    count = len(responses.masks)
    seen: dict[str, int] = {}
    keys = []
    for group in responses.groups:
        keys.append(f"{group}_{seen.setdefault(group, 0)}_0")
        seen[group] += 1
    store = {
        "uid": NonTensorStack(*responses.groups),
        "extra_fields": NonTensorStack(*[{"turnwise": about} for about in responses.abouts]),
        "response_mask": nested(responses.masks),
        "rm_scores": nested(responses.rewards),
        "old_log_probs": nested([-row for row in responses.entropies]),
        "entropy": nested(responses.entropies),
    }

    def get(keys, partition_id, select_fields):
        return TensorDict({name: store[name] for name in select_fields if name in store}, batch_size=count)

    def put(keys, partition_id, fields=None, tags=None):
        store.update({name: fields[name] for name in fields.keys()})
        return meta

    for module in (trainer_base.tq, _verl_trainers.tq):
        monkeypatch.setattr(module, "kv_batch_get", get)
        monkeypatch.setattr(module, "kv_batch_put", put)
    meta = KVBatchMeta(keys=keys, tags=[{} for _ in keys], partition_id="train")
    for preset in ("gigpo", "aem-gigpo", "stapo"):
        trainer = cls.__new__(cls)
        trainer.trainer_mode = "turnwise_sync"
        assert trainer.trainer_mode == "sync", "verl chooses its replay buffer by this name"
        own = {"adv_estimator": "grpo", "turnwise": {"preset": preset}}
        trainer.config = OmegaConf.create(
            {"algorithm": {**algorithm(None), **own}, "actor_rollout_ref": {"rollout": {"n": 5}}}
        )
        trainer.use_critic = False
        metrics: dict[str, float] = {}
        assert trainer._compute_advantage(meta, metrics) is meta
        expected = expected_of(responses, preset)
        for name in ("advantages", "returns"):
            got = [row.numpy() for row in store[name].unbind()]
            assert all(np.abs(a - b).max() < 1e-5 for a, b in zip(got, expected, strict=True))
        assert any(name.startswith("turnwise/") for name in metrics) and ("turnwise_outliers" in store) == (
            preset == "stapo"
        )
    # A penalty in the rewards is verl's, and credit is assigned from what it leaves: 0.5 * 0.1 at every token.
    store["ref_log_prob"] = nested([-row - 0.1 for row in responses.entropies])
    trainer.config.algorithm.update({"use_kl_in_reward": True, "kl_penalty": "kl", "turnwise": {"preset": "gigpo"}})
    trainer.kl_ctrl_in_reward = core_algos.FixedKLController(0.5)
    metrics = {}
    trainer._compute_advantage(meta, metrics)
    for line in responses.batch:
        for turn in line["turns"]:
            turn["reward"] -= 0.05 * len(turn["entropies"])
    expected = expected_of(responses, "gigpo")
    got = [row.numpy() for row in store["advantages"].unbind()]
    assert all(np.abs(a - b).max() < 1e-4 for a, b in zip(got, expected, strict=True))
    assert abs(metrics["actor/reward_kl_penalty"] - 0.1) < 1e-6
    trainer.config.algorithm.pop("turnwise")
    with pytest.raises(ValueError, match="no preset is named"):
        trainer._compute_advantage(meta, {})


def test_verl_loads_the_plugin():
    """In its own process: by the variable in every version, by the entry point from 0.9 on."""
    code = (
        "import verl\n"
        "from verl.trainer.ppo import core_algos\n"
        "print(core_algos.ADV_ESTIMATOR_REGISTRY['gdpo'].__module__)\n"
    )
    trainers = "from verl.trainer.ppo.v1 import trainer_base\nprint(*sorted(trainer_base.TRAINER_REGISTRY))\n"

    def printed(code, **more):
        environment = {**os.environ, "VERL_USE_EXTERNAL_PLUGINS": "none", **more}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.split("\n")[-2]

    assert printed(code, VERL_USE_EXTERNAL_MODULES="turnwise.plugins.verl") == "turnwise.plugins.verl"
    assert printed(code) == "verl.trainer.ppo.core_algos"
    version = tuple(int(part) for part in verl.__version__.split(".")[:2])
    if version >= (0, 9):
        assert printed(code, VERL_USE_EXTERNAL_PLUGINS="auto") == "turnwise.plugins.verl"
        found = printed(code + trainers, VERL_USE_EXTERNAL_PLUGINS="auto").split()
        assert {"turnwise_sync", "turnwise_colocate_async", "turnwise_separate_async"} <= set(found)
