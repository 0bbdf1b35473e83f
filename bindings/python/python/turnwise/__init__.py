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
* :mod:`turnwise.objective`: losses and their derivatives with respect to log-probabilities.
* :class:`Run`: what a run of ``turnwise train`` wrote; :func:`read_dump`: trajectories of other frameworks.
* :mod:`turnwise.benchmark`: a method of yours, or a preset, against the true advantage of every turn.
* :mod:`turnwise.plugins`: verl, slime, SkyRL and TRL with Turnwise's advantages.
"""

from turnwise import benchmark, objective
from turnwise._credit import Credit, Preset, credit, presets
from turnwise._runs import Run, read_dump

__all__ = ["Credit", "Preset", "Run", "benchmark", "credit", "objective", "presets", "read_dump"]
