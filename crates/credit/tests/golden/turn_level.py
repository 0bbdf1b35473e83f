"""Methods that credit turns by progress, by states that rollouts share, by values of states, and by a critic's values at turns, straight from
their equations.

A part of credit.py: the same input format, and nothing shared with the Rust code.
"""

import numpy as np


def turn_credit(batch, adv, gamma=0.9, beta=1.0, net_progress=True, first_turn=False):
    result = []
    for group, rows in zip(batch, adv):
        progress = []
        for tr in group:
            levels = [t["p"] for t in tr["turns"]]
            start = 0.0 if first_turn or not levels else levels[0]
            progress.append(np.diff([start] + levels))
        net = [p.sum() for p in progress]
        out = []
        for i, (tr, row, p) in enumerate(zip(group, rows, progress)):
            n = len(p)
            # Share of turn s's progress that turn t gets, as a matrix.
            share = np.array([[gamma ** (s - t) if t <= s else 0.0 for s in range(n)] for t in range(n)]).reshape(n, n)
            credit = (share / share.sum(axis=0, keepdims=True)) @ p if n else p
            tokens = np.array([len(t["h"]) for t in tr["turns"]], dtype=np.float64)
            centre = np.average(credit, weights=tokens) if n else 0.0
            level = net[i] - np.mean(net) if net_progress else 0.0
            out.append([float(a + level + beta * (c - centre)) for a, c in zip(row, credit)])
        result.append(out)
    return result


def rtmc(step_returns, batch, gamma=1.0, prior=1.0, invalid_penalty=0.1, invalid_penalty_target="turn"):
    result = []
    for group in batch:
        returns = step_returns(group, gamma, invalid_penalty, invalid_penalty_target)
        mean = np.mean([row[0] for row in returns if row])

        def firsts(same):
            """Returns from the first turn of every trajectory that `same` says yes to."""
            found = [[v for t, v in zip(tr["turns"], row) if same(t)] for tr, row in zip(group, returns)]
            return [values[0] for values in found if values]

        rows = []
        for tr in group:
            row = []
            for t in tr["turns"]:
                state = firsts(lambda x: x["o"] == t["o"])
                pair = firsts(lambda x: x["o"] == t["o"] and x["a"] == t["a"])
                value = (sum(state) + prior * mean) / (len(state) + prior)
                row.append((sum(pair) + prior * value) / (len(pair) + prior) - value)
            rows.append(row)
        result.append(rows)
    return result


def monte_carlo(batch, values, gamma=1.0, whiten=True, invalid_penalty=0.1):
    result = []
    for group, rows in zip(batch, values):
        out = []
        for tr, v in zip(group, rows):
            r = np.array([t["r"] - (0.0 if t["v"] else invalid_penalty) for t in tr["turns"]])
            v = np.append(np.array(v), 0.0)
            out.append(r + gamma * v[1:] - v[:-1])
        result.append(out)
    if whiten:
        every = np.concatenate([row for rows in result for row in rows])
        mean, var = every.mean(), every.var(ddof=1)
        result = [[(row - mean) / np.sqrt(var + 1e-8) for row in rows] for rows in result]
    return [[[float(x) for x in row] for row in rows] for rows in result]


def turn_ppo(batch, values, gamma=0.99, whiten=True, invalid_penalty=0.1, **kwargs):
    lam = kwargs.get("lambda", 0.9)
    advantages, returns, every = [], [], []
    for group, vs in zip(batch, values):
        arows, rrows = [], []
        for tr, v in zip(group, vs):
            n = len(tr["turns"])
            starts = np.cumsum([0] + [len(t["h"]) for t in tr["turns"]])
            r = [t["r"] - (0.0 if t["v"] else invalid_penalty) for t in tr["turns"]]
            V = [v[starts[k]] for k in range(n)] + [0.0]
            delta = [r[k] + gamma * V[k + 1] - V[k] for k in range(n)]
            A = [sum((gamma * lam) ** (j - k) * delta[j] for j in range(k, n)) for k in range(n)]
            every += A
            arows.append([A[k] for k in range(n) for _ in tr["turns"][k]["h"]])
            rrows.append([A[k] + V[k] for k in range(n) for _ in tr["turns"][k]["h"]])
        advantages.append(arows)
        returns.append(rrows)
    if whiten:
        mean, var = np.mean(every), np.var(every, ddof=1)
        advantages = [[[float((x - mean) / np.sqrt(var + 1e-8)) for x in row] for row in rows] for rows in advantages]
    return advantages, returns
