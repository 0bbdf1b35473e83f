"""Trainers for verl 0.9, whose estimators receive neither observations nor turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.trainer.ppo.v1 import trainer_base

from turnwise.plugins._rows import Row, Settings, advantages

KEY = "turnwise"


def register() -> None:
    """Registers `turnwise_MODE` for every trainer of verl."""
    for mode, trainer in list(trainer_base.TRAINER_REGISTRY.items()):
        name = f"{KEY}_{mode}"
        if not mode.startswith(f"{KEY}_") and name not in trainer_base.TRAINER_REGISTRY:
            trainer_base.register_trainer(name)(_with_credit(trainer, mode))


def _with_credit(trainer: type, mode: str) -> type:
    """Returns a subclass of the trainer with Turnwise's advantages."""

    class TurnwiseTrainer(trainer):  # type: ignore[misc, valid-type]
        """verl's trainer with the advantages of the preset under `algorithm.turnwise`."""

        # verl chooses its replay buffer by `trainer_mode`.
        trainer_mode = property(lambda self: mode, lambda self, value: None)

        def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
            settings = Settings.of(self.config.algorithm.get(KEY))
            if settings is None:
                raise ValueError("no preset is named; add +algorithm.turnwise.preset=gigpo")
            # Read the turns from the rollout's mask before verl's corrections remove tokens from it.
            masks = _rows(_get(batch, ["response_mask"])["response_mask"])
            # verl computes reward penalties, rollout corrections and their metrics.
            batch = super()._compute_advantage(batch, metrics)
            return _replace(self, batch, metrics, settings, masks)

    TurnwiseTrainer.__name__ = TurnwiseTrainer.__qualname__ = f"Turnwise{trainer.__name__}"
    return TurnwiseTrainer


def _get(batch: Any, fields: list[str]) -> Any:
    return tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)


def _replace(
    trainer: Any, batch: Any, metrics: dict[str, Any], settings: Settings, masks: list[np.ndarray[Any, Any]]
) -> Any:
    """Replaces the advantages of a batch by Turnwise's."""
    penalised = trainer.config.algorithm.get("use_kl_in_reward", False)
    rewards = "token_level_rewards" if penalised else "rm_scores"
    fields = ["uid", "extra_fields", rewards]
    if settings.needs_entropies:
        fields.append("old_log_probs" if settings.entropies == "surprisal" else "entropy")
    data = _get(batch, fields)
    columns = {name: _rows(data[name]) for name in fields[2:] if name in data.keys()}
    uids, extras = data["uid"].tolist(), data["extra_fields"].tolist()
    tags = batch.tags if batch.tags is not None else [{}] * len(batch.keys)
    rows = []
    for index, key in enumerate(batch.keys):
        # {uid}_{session}_{output}: an agent loop may return several rows per trajectory.
        _, session, output = str(key).rsplit("_", 2)
        extra = extras[index] if isinstance(extras[index], dict) else {}
        rows.append(
            Row(
                group=uids[index],
                mask=masks[index],
                about=extra.get(KEY),
                rewards=columns[rewards][index],
                entropies=columns["entropy"][index] if "entropy" in columns else None,
                logprobs=columns["old_log_probs"][index] if "old_log_probs" in columns else None,
                session=session,
                position=int(output),
                padding=bool((tags[index] or {}).get("is_padding", False)),
            )
        )
    found = advantages(rows, settings)
    metrics.update(found.diagnostics)
    columns_out = {"advantages": _nested(found.rows)}
    if not getattr(trainer, "use_critic", False):
        columns_out["returns"] = _nested(found.rows)
    if found.outliers is not None:
        columns_out["turnwise_outliers"] = _nested([row.astype(np.float32) for row in found.outliers])
    fields_out = TensorDict(columns_out, batch_size=len(batch.keys))
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields_out)


def _rows(column: torch.Tensor) -> list[np.ndarray[Any, Any]]:
    """Returns the rows of a nested tensor."""
    return [row.detach().float().cpu().numpy() for row in column.unbind()]


def _nested(rows: list[np.ndarray[Any, Any]]) -> torch.Tensor:
    tensors = [torch.as_tensor(row, dtype=torch.float32) for row in rows]
    return torch.nested.as_nested_tensor(tensors, layout=torch.jagged)
