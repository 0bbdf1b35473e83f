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

* :func:`credit`: one advantage for every turn (:class:`Credit`), by any preset of :func:`presets`.
* :func:`estimator`, :func:`refinement`: methods of your own, functions on arrays (:class:`TurnBatch`).
* :mod:`turnwise.objective`: losses and their derivatives with respect to log-probabilities.
* :func:`train`, :func:`evaluate`: what ``turnwise train`` and ``turnwise eval`` do, in this process.
* :class:`Run`: what a run of ``turnwise train`` wrote; :func:`read_dump`: trajectories of other frameworks.
* :mod:`turnwise.benchmark`: a method of yours, or a preset, against the true advantage of every turn.
* :mod:`turnwise.trackers`: runs in Weights & Biases, MLflow and trackio.
* :mod:`turnwise.plugins`: verl, slime, SkyRL and TRL with Turnwise's advantages.
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
