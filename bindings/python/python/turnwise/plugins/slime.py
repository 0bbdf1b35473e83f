"""Turnwise in slime.

Two hooks are needed, because each trainer receives only a part of the batch. The rollout process has the whole batch and
computes the advantages. The trainers receive them as ``teacher_log_probs``, a column over response tokens that slime splits
like log-probs::

    --custom-reward-post-process-path turnwise.plugins.slime.credit_rewards
    --custom-advantage-function-path turnwise.plugins.slime.advantages
    TURNWISE_PRESET=gigpo          # in the environment of the rollout process

Leave off ``--use-opd`` (it needs that column) and ``--normalize-advantages`` (it would whiten the advantages).

Rollouts set ``sample.metadata["turnwise"]`` to the dict of :mod:`turnwise.plugins`; samples of one prompt share their
``group_index``. Turns may have entropies; ``TURNWISE_ENTROPIES=surprisal`` uses ``rollout_log_probs``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from turnwise.plugins._rows import Row, Settings
from turnwise.plugins._rows import advantages as _advantages

__all__ = ["advantages", "credit_rewards"]

KEY = "turnwise"


def credit_rewards(args: Any, samples: list[Any], **kwargs: Any) -> tuple[list[float], list[float]]:
    """Computes the advantages of all samples for the trainers, and returns the rewards unchanged."""
    if getattr(args, "use_opd", False):
        raise ValueError("--use-opd needs teacher_log_probs, in which Turnwise's advantages travel; leave it off")
    flat = [sample for entry in samples for sample in (entry if isinstance(entry, list) else [entry])]
    settings = Settings.of(getattr(args, KEY, None))
    if settings is None:
        raise ValueError("no preset is named; set TURNWISE_PRESET=gigpo in the environment of the rollout process")
    rewards = [float(sample.get_reward_value(args)) for sample in flat]
    found = _advantages(
        [_row(sample, index, reward) for index, (sample, reward) in enumerate(zip(flat, rewards))], settings
    )
    for sample, values in zip(flat, found.rows):
        sample.teacher_log_probs = torch.as_tensor(values, dtype=torch.float32)
    return rewards, list(rewards)


def _row(sample: Any, index: int, reward: float) -> Row:
    length = int(sample.response_length)
    mask = np.ones(length) if sample.loss_mask is None else np.asarray(sample.loss_mask)
    if len(mask) != length:
        raise ValueError(f"row {index}: loss_mask has {len(mask)} entries, response_length is {length}")
    if getattr(sample, "remove_sample", False):
        # slime masks removed samples only after its reward hook.
        mask = np.zeros(length)
    rewards = np.zeros(length)
    if length:
        rewards[-1] = reward
    group = getattr(sample, "group_index", None)
    if group is None:
        raise ValueError(f"row {index}: its group_index is not set, so that no samples can be compared")
    logprobs = getattr(sample, "rollout_log_probs", None)
    about = (sample.metadata or {}).get(KEY)
    return Row(group, mask, about, rewards, None, None if logprobs is None else np.asarray(logprobs, dtype=np.float64))


def advantages(args: Any, rollout_data: dict[str, Any]) -> None:
    """Sets ``advantages`` and ``returns`` of a part of the batch to the values from :func:`credit_rewards`."""
    if getattr(args, "normalize_advantages", False):
        raise ValueError("--normalize-advantages would whiten Turnwise's advantages once more; leave it off")
    if rollout_data.get("teacher_log_probs") is None:
        raise ValueError(
            "the samples carry no advantages; add --custom-reward-post-process-path turnwise.plugins.slime.credit_rewards"
        )
    rollout_data["advantages"] = rollout_data["returns"] = rollout_data["teacher_log_probs"]
