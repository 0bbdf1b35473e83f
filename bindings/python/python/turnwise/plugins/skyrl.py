"""Turnwise in SkyRL.

An advantage estimator for SkyRL's registry, for trajectories of one row each (not ``step_wise_trajectories``)::

    import turnwise.plugins.skyrl as turnwise_skyrl

    turnwise_skyrl.register("turnwise", {"preset": "gigpo"})     # in the entrypoint, before the trainer
    # trainer.algorithm.advantage_estimator=turnwise

An estimator receives only rewards, mask and ``uid`` of a row. So the generator attaches the row's dict to the name of its
trajectory, which the trainer then uses as the ``uid``::

    output = await super().generate(input_batch)
    turnwise_skyrl.attach(output, turns, input_batch)            # turns[row] = [{"observation": ..., "reward": ...}, ...]
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import torch

from turnwise import _arrays
from turnwise.plugins._rows import Row, Settings, advantages

__all__ = ["Uid", "attach", "estimator", "register"]


class Uid(str):
    """The identifier of a prompt, with the dict of one row that was sampled from it.

    Equality and hash are those of the plain string, so SkyRL's grouping and filters still work. It can be pickled.
    """

    about: Mapping[str, Any]
    logprobs: list[float] | None

    def __new__(cls, text: str, about: Mapping[str, Any], logprobs: Sequence[float] | None = None) -> Uid:
        uid = super().__new__(cls, text)
        uid.about = about
        uid.logprobs = None if logprobs is None else list(logprobs)
        return uid

    def __reduce__(self) -> tuple[Any, ...]:
        return (Uid, (str(self), self.about, self.logprobs))


def attach(
    output: MutableMapping[str, Any], turns: Sequence[Any], input_batch: Mapping[str, Any] | None = None
) -> None:
    """Attaches the turns of every row of a generator's output to the names of its trajectories, ``trajectory_ids``.

    A fully masked row (overlong filtering) has no turns, and is left out of its group.

    Args:
        output: SkyRL's ``GeneratorOutput``; the spans of turns are read from ``loss_masks``.
        turns: for each row a list of turns, or the whole dict of :mod:`turnwise.plugins`.
        input_batch: the generator's input, whose names are used if the output has none (SkyRL's generator writes names only
            with ``step_wise_trajectories``).
    """
    ids = output.get("trajectory_ids") or (input_batch or {}).get("trajectory_ids")
    if not ids:
        raise ValueError(
            "neither the generator's output nor its input has trajectory_ids; call attach(output, turns, input_batch)"
        )
    if len(turns) != len(ids):
        raise ValueError(f"turns has {len(turns)} entries; {len(ids)} rows are expected")
    logprobs = output.get("rollout_logprobs")
    named = []
    for index, (trajectory, own) in enumerate(zip(ids, turns)):
        about = dict(own) if isinstance(own, Mapping) else {"turns": list(own)}
        mask = np.asarray(output["loss_masks"][index])
        if not mask.any():
            about.update(turns=[], turn_spans=[])
        if about.get("turn_spans") is None:
            about["turn_spans"] = [list(span) for span in _arrays.runs(mask)]
        if len(about["turn_spans"]) != len(about["turns"]):
            raise ValueError(
                f"row {index} has {len(about['turns'])} turns and {len(about['turn_spans'])} runs of ones in its loss mask"
            )
        uid = Uid(str(trajectory.instance_id), about, None if logprobs is None else logprobs[index])
        # Copied, because the trainer uses the names of the input.
        named.append(dataclasses.replace(trajectory, instance_id=uid))
    output["trajectory_ids"] = named
    _take_names()


def _take_names() -> None:
    """Patches SkyRL's trainer to use the names written by :func:`attach` as ``uids``, which it creates before generation.

    Generators run in the trainer's process, :func:`register` perhaps in the process that starts it. So both call this
    function, which does nothing without a trainer.
    """
    trainer = getattr(sys.modules.get("skyrl.train.trainer"), "RayPPOTrainer", None)
    if trainer is None or hasattr(trainer.convert_to_training_input, "turnwise"):
        return
    inner = trainer.convert_to_training_input

    @functools.wraps(inner)
    def convert_to_training_input(self: Any, generator_output: Any, uids: Any) -> Any:
        names = [trajectory.instance_id for trajectory in generator_output.get("trajectory_ids") or []]
        # Dynamic sampling has already removed the same rows from both.
        own = names if names and all(isinstance(name, Uid) for name in names) else uids
        return inner(self, generator_output, own)

    convert_to_training_input.turnwise = True  # type: ignore[attr-defined]
    trainer.convert_to_training_input = convert_to_training_input


def estimator(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Any],
    settings: Settings | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns advantages and returns ``[rows, tokens]``, 0 outside the policy's tokens."""
    settings = settings or Settings.of()
    if settings is None:
        raise ValueError("no preset is named; give register(..., {'preset': 'gigpo'}), or set TURNWISE_PRESET=gigpo")
    masks = response_mask.detach().float().cpu().numpy() != 0
    rewards = token_level_rewards.detach().float().cpu().numpy()
    rows, places = [], []
    for row, uid in enumerate(index):
        if not isinstance(uid, Uid):
            raise ValueError(
                f"row {row} has no turns: the generator must call turnwise.plugins.skyrl.attach, and rows must be whole "
                "trajectories (generator.step_wise_trajectories=false)"
            )
        # Responses are right-aligned; these are the columns of this one.
        columns = np.flatnonzero(masks[row])
        mask = np.zeros(len(columns))
        for start, end in _arrays.spans(uid.about["turn_spans"], f"row {row}: turn_spans", len(columns)):
            mask[start:end] = 1
        logprobs = None if uid.logprobs is None else np.asarray(uid.logprobs[: len(columns)], dtype=np.float64)
        rows.append(Row(str(uid), mask, uid.about, rewards[row][columns], None, logprobs))
        places.append(columns)
    found = advantages(rows, settings)
    values = np.zeros(masks.shape)
    for row, (columns, of_row) in enumerate(zip(places, found.rows)):
        values[row, columns] = of_row
    tensor = torch.as_tensor(values, dtype=token_level_rewards.dtype).to(token_level_rewards.device)
    return tensor, tensor.clone()


def register(name: str = "turnwise", settings: Any = None) -> None:
    """Registers the estimator in SkyRL; a second call with the same name changes nothing.

    Args:
        name: value for ``trainer.algorithm.advantage_estimator``.
        settings: the preset's name, or a dict with ``preset``, ``switches``, ``entropies`` and ``seed``; by default the
            environment variables of the estimator's process (``TURNWISE_PRESET``).
    """
    from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry

    _take_names()
    if name not in AdvantageEstimatorRegistry.list_available():
        chosen = None if settings is None else Settings.of(settings)
        AdvantageEstimatorRegistry.register(name, functools.partial(estimator, settings=chosen))
