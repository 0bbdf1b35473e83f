"""Turn-level credit and objectives for multi-turn LLM agents.

>>> import turnwise
>>> turn = lambda state, reward: {"observation": state, "reward": reward}
>>> batch = [
...     {"group": "a", "turns": [turn("s0", 0.0), turn("s1", 1.0)]},
...     {"group": "a", "turns": [turn("s0", 0.0), turn("s2", 0.0)]},
... ]
>>> credit = turnwise.credit(batch, "gigpo")
>>> [round(float(advantage), 4) for advantage in credit.advantages[0]]
[1.4142, 0.7071]

* :func:`credit`: one advantage per turn (:class:`Credit`), by any method of :func:`presets`.
* :func:`estimator`, :func:`refinement`: your own methods, as functions on arrays (:class:`TurnBatch`).
* :mod:`turnwise.objective`: losses and their derivatives with respect to log-probs.
* :func:`train`, :func:`evaluate`: ``turnwise train`` and ``turnwise eval`` in this process.
* :class:`Run`: a run directory of ``turnwise train``; :func:`read_dump`: trajectories of other frameworks.
* :mod:`turnwise.benchmark`: scores of methods against the true advantage of every turn.
* :mod:`turnwise.trackers`: copies of runs in Weights & Biases, MLflow and trackio.
* :mod:`turnwise.plugins`: Turnwise's advantages in verl, slime, SkyRL and TRL.
"""

from turnwise import _native, benchmark, objective
from turnwise._credit import Credit, Preset, credit, presets
from turnwise._methods import Method, TurnBatch, estimator, refinement
from turnwise._runs import Run, read_dump
from turnwise._train import evaluate, train

__version__: str = _native.__version__

__all__ = [
    "Credit",
    "Method",
    "Preset",
    "Run",
    "TurnBatch",
    "benchmark",
    "credit",
    "estimator",
    "evaluate",
    "objective",
    "presets",
    "read_dump",
    "refinement",
    "train",
]
