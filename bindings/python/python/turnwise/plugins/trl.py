"""Turnwise in TRL.

A trainer that replaces ``GRPOTrainer``, whose loss accepts one advantage per token::

    from turnwise.plugins.trl import TurnwiseGRPOTrainer

    trainer = TurnwiseGRPOTrainer(model, reward_funcs, turnwise={"preset": "gigpo"}, args=..., train_dataset=...)

Turns are the parts of a completion that the model wrote. With ``tools`` or environments they are read from the messages. A
``rollout_func`` returns them under ``turnwise``, one dict of :mod:`turnwise.plugins` per completion, and ``env_mask``. The
sum of the reward functions belongs to the last turn, unless turns have rewards.

If the method reads entropies that rollouts do not supply, they cost one more forward pass.
``turnwise={"entropies": "surprisal"}`` uses the log-probs of the sampled tokens instead. Liger's loss is rejected, because it
takes one advantage per completion. For GSPO's sequence ratio, set TRL's ``importance_sampling_level``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from turnwise import _arrays
from turnwise.plugins._rows import Row, Settings, advantages

__all__ = ["TurnwiseGRPOTrainer", "turns_of_messages"]

KEY = "turnwise"


def turns_of_messages(prompt: Any, completion: Any) -> list[dict[str, Any]]:
    """Returns the turns of a conversation: each assistant message, with the messages before it as its observation."""

    def text(message: Any) -> str:
        content = message.get("content") if isinstance(message, dict) else message
        if isinstance(content, list):
            return "\n".join(str(part.get("text", part)) for part in content)
        return "" if content is None else str(content)

    if isinstance(completion, str):
        return [{"observation": text(prompt[-1]) if isinstance(prompt, list) else str(prompt), "action": completion}]
    heard = [text(prompt[-1]) if isinstance(prompt, list) and prompt else text({"content": prompt})]
    turns = []
    for message in completion:
        if message.get("role") == "assistant":
            calls = message.get("tool_calls") or []
            action = "\n".join(str(call.get("function", call)) for call in calls) or text(message)
            turns.append({"observation": "\n".join(heard), "action": action})
            heard = []
        else:
            heard.append(text(message))
    return turns


class TurnwiseGRPOTrainer(GRPOTrainer):
    """``GRPOTrainer`` with one advantage per token, from a Turnwise preset.

    Args:
        turnwise: the preset's name, or a dict with ``preset``, ``switches``, ``entropies`` and ``seed``; by default the
            environment variables (``TURNWISE_PRESET``).
    """

    def __init__(self, *args: Any, turnwise: Any = None, **kwargs: Any) -> None:
        settings = Settings.of(turnwise)
        if settings is None:
            raise ValueError("no preset is named; give turnwise={'preset': 'gigpo'}")
        super().__init__(*args, **kwargs)
        if getattr(self.args, "use_liger_kernel", False) or getattr(self, "use_liger_kernel", False):
            raise ValueError("use_liger_kernel: its loss takes one advantage a completion; leave it off")
        self._turnwise = settings
        self._turnwise_rows: list[tuple[Any, Any]] = []
        self._turnwise_rewards: torch.Tensor | None = None

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        found = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        weights = self.reward_weights.to(found.device).unsqueeze(0)
        self._turnwise_rewards = (found * weights).nansum(dim=1)
        self._turnwise_rows = [
            (entry.get(KEY), turns_of_messages(prompt, completion))
            for entry, prompt, completion in zip(inputs, prompts, completions)
        ]
        return found

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        output["advantages"] = self._turn_advantages(output)
        return output

    def _turn_advantages(self, output: dict[str, Any]) -> torch.Tensor:
        """Returns the advantages of this process' completions ``[completions, tokens]``."""
        masks = output["completion_mask"]
        if "tool_mask" in output:
            masks = masks * output["tool_mask"]
        logprobs = output.get("sampling_per_token_logps", output.get("old_per_token_logps"))
        given = [about for about, _ in self._turnwise_rows]
        entropies = self._entropies(output) if self._needs_pass(given) else None
        own = []
        for index, (about, turns) in enumerate(self._turnwise_rows):
            length = int(output["completion_mask"][index].sum())
            mask = masks[index, :length].cpu().numpy()
            if about is None:
                runs = _arrays.runs(mask)
                # The last reply may have been truncated to nothing.
                about = {"turns": turns[: len(runs)]} if len(turns) >= len(runs) else {}
            own.append(
                (
                    mask,
                    about,
                    None if logprobs is None else logprobs[index, :length].float().cpu().numpy(),
                    None if entropies is None else entropies[index, :length].float().cpu().numpy(),
                )
            )
        # A group may be spread over processes.
        everyone = gather_object(own)
        generations = self.num_generations if self.model.training else self.num_generations_eval
        rewards = self._turnwise_rewards.cpu().numpy()
        rows = []
        for index, (mask, about, surprisals, exact) in enumerate(everyone):
            tokens = np.zeros(len(mask))
            inside = np.flatnonzero(mask)
            if len(inside):
                tokens[inside[-1]] = rewards[index]
            rows.append(Row(index // generations, mask, about, tokens, exact, surprisals))
        found = advantages(rows, self._turnwise)
        mode = "train" if self.model.training else "eval"
        for name, value in found.diagnostics.items():
            self._metrics[mode][name].append(value)
        start = self.accelerator.process_index * len(own)
        values = torch.zeros(masks.shape, dtype=torch.float32, device=masks.device)
        for index, of_row in enumerate(found.rows[start : start + len(own)]):
            values[index, : len(of_row)] = torch.as_tensor(of_row, dtype=torch.float32)
        return values

    def _needs_pass(self, given: list[Any]) -> bool:
        """Returns True if the method reads entropies that rollouts did not supply."""
        if not self._turnwise.needs_entropies or self._turnwise.entropies == "surprisal":
            return False
        brought = [
            isinstance(about, dict)
            and all("entropy" in turn or "entropies" in turn for turn in about.get("turns", [{}]))
            for about in given
        ]
        return not all(brought)

    def _entropies(self, output: dict[str, Any]) -> torch.Tensor:
        """Computes entropies over the whole vocabulary ``[completions, tokens]``, in nats."""
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        with torch.no_grad():
            found = self._get_per_token_logps_and_entropies(
                self.model,
                ids,
                mask,
                output["completion_ids"].size(1),
                self.args.per_device_train_batch_size,
                compute_entropy=True,
            )
        return found[1]
