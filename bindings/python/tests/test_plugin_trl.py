"""TRL's trainer, for real, on a model of a few thousand weights: its own sampling, rewards, buffers and loss."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("trl", reason="trl is not installed")

from datasets import Dataset  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402
from trl import GRPOConfig  # noqa: E402

from conftest import Responses  # noqa: E402
from turnwise.plugins.trl import TurnwiseGRPOTrainer, turns_of_messages  # noqa: E402

WORDS = ["[PAD]", "[EOS]", "[UNK]", "go", "look", "take", "room", "mug", "open", "wait"]


@pytest.fixture
def trainer_of(tmp_path):
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", eos_token="[EOS]", unk_token="[UNK]")

    def make(rollout, turnwise, rewards, generations=4, prompts=2, **more):
        torch.manual_seed(0)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(WORDS),
                hidden_size=16,
                intermediate_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                num_key_value_heads=2,
                max_position_embeddings=64,
                pad_token_id=0,
                eos_token_id=1,
                bos_token_id=None,
            )
        )
        args = GRPOConfig(
            output_dir=str(tmp_path),
            report_to="none",
            use_cpu=True,
            bf16=False,
            max_steps=1,
            logging_steps=1,
            save_strategy="no",
            per_device_train_batch_size=generations * prompts,
            num_generations=generations,
            max_completion_length=8,
            learning_rate=0.1,
            beta=0.0,
            disable_tqdm=True,
            gradient_checkpointing=False,
            **more,
        )
        data = Dataset.from_dict({"prompt": [f"room {word}" for word in ("mug", "go", "look", "take")][:prompts]})
        return TurnwiseGRPOTrainer(
            model,
            rewards,
            args=args,
            train_dataset=data,
            processing_class=fast,
            rollout_func=rollout,
            turnwise=turnwise,
        )

    return make


def rollout_of(responses, rows):
    """A rollout that plays the given trajectories, whatever the prompts are."""

    def rollout(prompts, trainer):
        completions = [[3 + (position % 6) for position in range(len(responses.masks[row]))] for row in rows]
        return {
            "prompt_ids": [[6, 7]] * len(prompts),
            "completion_ids": completions,
            "logprobs": [(-responses.entropies[row]).tolist() for row in rows],
            "env_mask": [responses.masks[row].tolist() for row in rows],
            "turnwise": [
                {
                    **responses.abouts[row],
                    "turns": [
                        {**turn, "reward": own["reward"], "entropies": own["entropies"]}
                        for turn, own in zip(responses.abouts[row]["turns"], responses.batch[row]["turns"])
                    ],
                }
                for row in rows
            ],
        }

    return rollout


@pytest.mark.parametrize("preset", ["grpo", "gigpo", "hgpo", "salt-grpo", "aem-gigpo", "stapo", "has-progressive"])
def test_a_step_of_trl_uses_the_programs_advantages(preset, make_batch, expected_of, trainer_of, monkeypatch):
    # TRL's groups are neighbours of one prompt: two groups of four, of different returns.
    responses = Responses(make_batch(34))
    by_group: dict[str, list[int]] = {}
    for index, group in enumerate(responses.groups):
        by_group.setdefault(group, []).append(index)
    rows = [index for members in by_group.values() if len(members) >= 4 for index in members[:4]][:8]
    responses.batch[:] = [responses.batch[row] for row in rows]
    for name in ("groups", "masks", "abouts", "entropies", "rewards"):
        setattr(responses, name, [getattr(responses, name)[row] for row in rows])
    expected = expected_of(responses, preset)
    trainer = trainer_of(
        rollout_of(responses, range(8)), {"preset": preset}, lambda completions, **_: [0.0] * len(completions)
    )
    seen = []
    score = trainer._generate_and_score_completions
    monkeypatch.setattr(
        trainer, "_generate_and_score_completions", lambda inputs: seen.append(score(inputs)) or seen[-1]
    )
    losses = []
    loss = trainer._compute_loss
    monkeypatch.setattr(
        trainer, "_compute_loss", lambda model, inputs: losses.append(inputs["advantages"]) or loss(model, inputs)
    )
    before = [weight.clone() for weight in trainer.model.parameters()]
    trainer.train()
    got = seen[0]["advantages"].numpy()
    for index, row in enumerate(expected):
        assert np.abs(got[index, : len(row)] - row).max() < 1e-5 and not got[index, len(row) :].any()
    # The rows are shuffled on their way to the loss.
    assert losses[0].shape == got.shape
    assert sorted(map(tuple, losses[0].tolist())) == sorted(map(tuple, got.tolist()))
    assert any(not torch.equal(a, b) for a, b in zip(before, trainer.model.parameters()))


def test_rewards_of_trl_belong_to_the_last_turn(responses, trainer_of):
    """Without rewards of turns the sum of the reward functions counts, and a model's own sampling is one turn."""
    trainer = trainer_of(None, "rloo", lambda completions, **_: [float(index % 3) for index in range(len(completions))])
    trainer.train()
    line = trainer.state.log_history[0]
    assert np.isfinite(line["loss"])


def test_entropies_are_computed_where_nobody_brings_them(trainer_of, monkeypatch):
    rewards = lambda completions, **_: [float(index % 3) for index in range(len(completions))]
    passes = []
    for settings, count in (({"preset": "aem-grpo"}, 1), ({"preset": "grpo"}, 0)):
        trainer = trainer_of(None, settings, rewards)
        inner = trainer._entropies
        monkeypatch.setattr(trainer, "_entropies", lambda output: passes.append(inner(output)) or passes[-1])
        trainer.train()
        assert len(passes) == count
        if count:
            assert (passes[0] >= 0).all() and passes[0].max() <= np.log(len(WORDS)) + 1e-4
            passes.clear()


def test_messages_are_read_as_turns():
    prompt = [{"role": "system", "content": "Play."}, {"role": "user", "content": "Find the mug."}]
    completion = [
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "go", "arguments": {"to": "hall"}}}]},
        {"role": "tool", "content": "A hall."},
        {"role": "assistant", "content": "done"},
    ]
    turns = turns_of_messages(prompt, completion)
    assert [turn["observation"] for turn in turns] == ["Find the mug.", "A hall."]
    assert "go" in turns[0]["action"] and turns[1]["action"] == "done"
    assert turns_of_messages("Find it.", "done") == [{"observation": "Find it.", "action": "done"}]


def test_what_cannot_work_is_refused(trainer_of):
    rewards = lambda completions, **_: [0.0] * len(completions)
    with pytest.raises(ValueError, match="no preset is named"):
        trainer_of(None, None, rewards)
    with pytest.raises(ValueError, match="turnwise.preset is 'gipgo'"):
        trainer_of(None, {"preset": "gipgo"}, rewards)
