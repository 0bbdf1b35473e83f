"""Turnwise in verl.

**0.7 and 0.8** (and ``main_ppo_v0`` of 0.9): an estimator that replaces ``gdpo``, the only one that receives the batch's
objects from verl::

    VERL_USE_EXTERNAL_MODULES=turnwise.plugins.verl python -m verl.trainer.main_ppo \\
        algorithm.adv_estimator=gdpo +algorithm.turnwise.preset=gigpo ...

**0.9**: trainers that verl loads automatically through the entry point ``verl.plugins``::

    python -m verl.trainer.main_ppo trainer.v1.trainer_mode=turnwise_sync +algorithm.turnwise.preset=gigpo ...

Rollouts set ``AgentLoopOutput.extra_fields["turnwise"]`` to the dict of :mod:`turnwise.plugins`. Pass the variable to Ray's
actors: ``+ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES=turnwise.plugins.verl``.

Without a preset and dicts, the estimator is verl's ``gdpo``. Outlier turns (``stapo``) are in the batch as
``turnwise_outliers`` ``[rows, tokens]``, for a custom policy loss. Exact entropies are those of verl's forward pass for old
log-probs.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo import core_algos

from turnwise.plugins._rows import Row, Settings, advantages

__all__ = ["gdpo_or_turnwise"]

logger = logging.getLogger(__name__)

#: Key of the dict in a row's extra fields.
KEY = "turnwise"
#: Key of the entropies kept from verl's forward pass.
ENTROPIES = "turnwise_entropies"
OUTLIERS = "turnwise_outliers"
#: The estimator that receives the whole batch.
SLOT = "gdpo"

_own_gdpo = core_algos.ADV_ESTIMATOR_REGISTRY.get(SLOT)


def _settings(config: Any) -> Settings | None:
    """Returns the settings under `algorithm.turnwise` or from environment variables."""
    given = config.get(KEY) if hasattr(config, "get") else getattr(config, KEY, None)
    return Settings.of(given)


def _numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().float().cpu().numpy()


def gdpo_or_turnwise(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    config: Any = None,
    index: Any = None,
    non_tensor_batch: Mapping[str, Any] | None = None,
    batch: Any = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes advantages and returns ``[rows, tokens]`` with the configured preset, or with verl's ``gdpo`` if there is none."""
    objects = {} if non_tensor_batch is None else non_tensor_batch
    settings = _settings(config)
    if settings is None:
        if KEY in objects:
            raise ValueError("rows have turnwise dicts and no preset is named; add +algorithm.turnwise.preset=gigpo")
        if _own_gdpo is None:
            raise ValueError("no preset is named; add +algorithm.turnwise.preset=gigpo")
        return _own_gdpo(
            token_level_rewards=token_level_rewards,
            response_mask=response_mask,
            config=config,
            index=index,
            non_tensor_batch=non_tensor_batch,
            batch=batch,
            **kwargs,
        )
    if index is None:
        raise ValueError("the batch has no uid, so that no rows can be compared")
    mask, rewards = _numpy(response_mask), _numpy(token_level_rewards)

    def tokens(name: str) -> np.ndarray[Any, Any] | None:
        return _numpy(batch[name]) if batch is not None and name in batch.keys() else None

    entropies, logprobs = tokens(ENTROPIES), tokens("old_log_probs")
    lengths = _lengths(mask, tokens("attention_mask"))
    abouts = objects.get(KEY)
    rows = [
        Row(
            group=index[row],
            mask=mask[row, :length],
            about=None if abouts is None else abouts[row],
            rewards=rewards[row, :length],
            entropies=None if entropies is None else entropies[row, :length],
            logprobs=None if logprobs is None else logprobs[row, :length],
        )
        for row, length in enumerate(lengths)
    ]
    found = advantages(rows, settings)
    values = torch.as_tensor(_padded(found.rows, mask.shape), dtype=token_level_rewards.dtype)
    values = values.to(token_level_rewards.device)
    if found.outliers is not None and batch is not None:
        marked = _padded(found.outliers, mask.shape) != 0
        batch[OUTLIERS] = torch.as_tensor(marked).to(token_level_rewards.device)
    return values, values.clone()


def _lengths(mask: np.ndarray[Any, Any], attention: np.ndarray[Any, Any] | None) -> list[int]:
    """Returns the length of each response without padding.

    It is read from the attention mask, because the mask of a fully masked response does not show it, and padding has no
    entropies.
    """
    width = mask.shape[1]
    if attention is None or attention.shape[1] < width:
        return [width] * len(mask)
    present = (attention[:, attention.shape[1] - width :] != 0) | (mask != 0)
    return [int(np.flatnonzero(row)[-1]) + 1 if row.any() else 0 for row in present]


def _padded(rows: list[np.ndarray[Any, Any]], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Pads rows of different lengths to one array ``[rows, tokens]``."""
    found = np.zeros(shape)
    for index, row in enumerate(rows):
        found[index, : len(row)] = row
    return found


core_algos.ADV_ESTIMATOR_REGISTRY[SLOT] = gdpo_or_turnwise


def _keep_entropies() -> None:
    """Keeps the entropies of the forward pass for old log-probs, which verl drops before it computes advantages."""
    from verl.trainer.ppo import ray_trainer

    trainer = inspect.unwrap(ray_trainer.RayPPOTrainer)
    inner = getattr(trainer, "_compute_old_log_prob", None)
    if inner is None or hasattr(inner, "turnwise"):
        return

    @functools.wraps(inner)
    def compute_old_log_prob(self: Any, batch: Any) -> Any:
        result = inner(self, batch)
        settings = _settings(self.config.algorithm)
        if settings is not None and settings.needs_entropies and settings.entropies == "exact":
            found = result[0] if isinstance(result, tuple) else result
            if "entropys" in found.batch.keys():
                batch.batch[ENTROPIES] = found.batch["entropys"]
        return result

    compute_old_log_prob.turnwise = True  # type: ignore[attr-defined]
    trainer._compute_old_log_prob = compute_old_log_prob


def _register_trainers() -> None:
    """Registers a trainer for each of verl 0.9's: `turnwise_sync`, `turnwise_colocate_async`, `turnwise_separate_async`."""
    from turnwise.plugins import _verl_trainers

    _verl_trainers.register()


for _step in (_keep_entropies, _register_trainers):
    try:
        _step()
    except ImportError as _error:
        # This version lacks the trainer, or its optional packages are not installed.
        logger.warning("turnwise: %s is left out (%s)", _step.__name__.strip("_"), _error)
