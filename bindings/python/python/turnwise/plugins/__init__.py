"""Turnwise's advantages in other frameworks.

Each module is for one framework, which is imported only with the module:

* ``turnwise.plugins.verl``: an estimator (0.7, 0.8) and trainers (0.9);
* ``turnwise.plugins.slime``: a reward hook and an advantage hook;
* ``turnwise.plugins.skyrl``: an entry of the registry of advantage estimators;
* ``turnwise.plugins.trl``: a trainer.

Rollouts must supply a dict for each row::

    {"turns": [{"observation": "...", "action": "...", "reward": 0.0, "valid": True}, ...],
     "turn_spans": [[0, 12], [40, 55]]}        # in the response; by default the runs of ones of the mask

with the keys of :func:`turnwise.credit`. A turn without ``reward`` gets the framework's rewards of its tokens. Only the
last row of a trajectory does, because frameworks copy the outcome to all rows. Rows that are single turns of one
trajectory name it: ``{"trajectory": "...", "turn": 0, "turns": [{...}]}``.

Set the method and its settings in the framework's configuration or in the environment variables ``TURNWISE_PRESET``
(``gigpo``), ``TURNWISE_SWITCHES`` (``{"estimator": {"omega": 0.5}}``) and ``TURNWISE_ENTROPIES`` (``surprisal``).
"""
