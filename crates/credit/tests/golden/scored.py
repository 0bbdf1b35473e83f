"""Methods that read log-probs of texts or responses under the policy, straight from their equations.

A part of credit.py: the same input format, and nothing shared with the Rust code.
"""

import numpy as np


def igpo(batch, scores, gamma=1.0, standardize="joint", epsilon=1e-6):
    """`scores` has the log-probs of the answer's tokens, a list a turn; an empty list for a prompt without room."""
    result = []
    for group, rows in zip(batch, scores):
        p = [[float(np.prod(np.exp(s)) ** (1 / len(s))) if s else None for s in row] for row in rows]
        gains, outcomes = [], []
        for tr, row in zip(group, p):
            pairs = zip(row[1:], row[:-1])
            gains.append([b - a if a is not None and b is not None else 0.0 for b, a in pairs])
            outcomes.append(sum(t["r"] for t in tr["turns"]))

        def z(value, population):
            if len(population) == 1 or len(set(population)) == 1:
                return 0.0
            return (value - np.mean(population)) / (np.std(population, ddof=1) + epsilon)

        flat = [g for row in gains for g in row]
        both = flat + outcomes
        out = []
        for row, outcome in zip(gains, outcomes):
            r = [z(g, both if standardize == "joint" else flat) for g in row]
            r.append(z(outcome, both if standardize == "joint" else outcomes))
            n = len(r)
            out.append([float(sum(gamma ** (k - t) * r[k] for k in range(t, n))) for t in range(n)])
        result.append(out)
    return result


def privileged_gap(batch, adv, own, teacher, epsilon=0.2, **kwargs):
    """`own` and `teacher` have the log-probs of the response's tokens, a list a turn; no `teacher` for a turn without a hint."""
    lam = kwargs.get("lambda", 1.0)
    result = []
    for rows, own_rows, teacher_rows in zip(adv, own, teacher):
        out = []
        for row, mine, theirs in zip(rows, own_rows, teacher_rows):
            new = []
            for a, m, t in zip(row, mine, theirs):
                weight = 1.0
                if t and a != 0.0:
                    ratio = np.exp(np.mean(np.array(t) - np.array(m)))
                    weight = ratio if a > 0 else 1.0 / ratio
                    weight = min(max(weight, 1.0 - epsilon), 1.0 + epsilon)
                new.append(float((1.0 - lam) * a + lam * weight * a))
            out.append(new)
        result.append(out)
    return result


def cases(batches, grpo, rng):
    """Random log-probs for the batches that have turns to score, with the expected advantages."""

    def logprobs(count):
        # Values of f32, as the learner gives them.
        return [float(np.float32(x)) for x in -rng.gamma(1.0, 0.5, size=count)]

    found = []
    for config in ({}, {"gamma": 0.9}, {"standardize": "separate"}, {"standardize": "separate", "gamma": 0.0, "epsilon": 0.01}):
        for name in ("mixed", "long", "ties"):
            batch = batches[name]
            answers = [[int(rng.integers(1, 5)) for _ in group] for group in batch]
            # A prompt in ten has no room for the answer.
            scores = [
                [[logprobs(n) if rng.random() > 0.1 else [] for _ in tr["turns"]] for tr, n in zip(group, lengths)]
                for group, lengths in zip(batch, answers)
            ]
            expected = igpo(batch, scores, **config)
            refinement = {"kind": "igpo", **config}
            found.append({"batch": name, "refinement": refinement, "own": None, "scores": scores, "expected": expected})
    for config in ({}, {"lambda": 0.5}, {"epsilon": 1.0}, {"epsilon": 0.05, "lambda": 0.75}):
        for name in ("mixed", "long", "ties"):
            batch = batches[name]
            own = [[[logprobs(len(t["h"])) for t in tr["turns"]] for tr in group] for group in batch]
            scores = [[[logprobs(len(t["h"])) if rng.random() > 0.1 else [] for t in tr["turns"]] for tr in group] for group in batch]
            expected = privileged_gap(batch, grpo(batch), own, scores, **config)
            refinement = {"kind": "privileged-gap", "hint": "answer", **config}
            found.append({"batch": name, "refinement": refinement, "own": own, "scores": scores, "expected": expected})
    return found
