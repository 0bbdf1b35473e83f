"""Turnwise's advantages inside other frameworks.

Each module belongs to one framework and imports nothing of it before it is imported itself:

* ``turnwise.plugins.verl``: an estimator (0.7, 0.8) and trainers (0.9);
* ``turnwise.plugins.slime``: a reward hook and an advantage hook;
* ``turnwise.plugins.skyrl``: an entry of the registry of advantage estimators;
* ``turnwise.plugins.trl``: a trainer.

What all of them need from a rollout is a dict for each of its rows::

    {"turns": [{"observation": "...", "action": "...", "reward": 0.0, "valid": True}, ...],
     "turn_spans": [[0, 12], [40, 55]]}        # of the response; the runs of ones of the mask by default

with the keys of :func:`turnwise.credit`. A turn without ``reward`` gets the framework's rewards of its tokens, in the
last row of a trajectory alone: the frameworks copy the outcome to all of its rows. Rows that are single turns
of one trajectory name it: ``{"trajectory": "...", "turn": 0, "turns": [{...}]}``.

Set the method and its switches in the framework's configuration or in the environment variables ``TURNWISE_PRESET``
(``gigpo``), ``TURNWISE_SWITCHES`` (``{"estimator": {"omega": 0.5}}``) and ``TURNWISE_ENTROPIES`` (``surprisal``).
"""
