"""Every credit method once more, straight from its equations, in NumPy: writes credit.json.

Independent of the Rust code: nothing is shared but the equations and the input format.
Run: python3 credit.py > credit.json
"""

import functools
import json

import numpy as np

import scored
from turn_level import monte_carlo, rtmc, turn_credit, turn_ppo

rng = np.random.default_rng(7)


# ---- batches: a list of groups, a group is a list of trajectories, a trajectory is turns + a final text


def turn(o, r=0.0, a="go", v=True, p=0.0, h=(0.5,)):
    return {"o": o, "a": a, "v": v, "r": r, "p": p, "h": [float(np.float32(x)) for x in h]}


def random_trajectory(length, solved, states, actions):
    turns = []
    progress = 0.0
    for t in range(length):
        progress = min(1.0, progress + float(rng.integers(0, 3)) / 8)
        entropies = rng.gamma(2.0, 0.3, size=rng.integers(1, 6))
        turns.append(
            turn(
                f"state {rng.integers(states)}",
                r=float(rng.integers(0, 3)) / 4 if rng.random() < 0.2 else 0.0,
                a=f"action {rng.integers(actions)}",
                v=bool(rng.random() > 0.15),
                p=progress,
                h=entropies,
            )
        )
    if turns:
        turns[-1]["r"] += 10.0 if solved else 0.0
    return {"turns": turns, "final": f"state {rng.integers(states)}"}


mixed = [
    [random_trajectory(int(rng.integers(1, 13)), bool(rng.random() < 0.5), 4, 2) for _ in range(size)]
    for size in (8, 5, 3, 1)
]
long = [[random_trajectory(n, n == 50, 6, 3) for n in (50, 1, 50, 7, 1)]]
flat = [
    [{"turns": [turn("s", 0.1, h=(0.3,)), turn("t", 0.2, h=(0.3,))], "final": "u"} for _ in range(6)],
    [{"turns": [turn("s", 1.0, v=False, h=(0.3, 0.3))], "final": "s"}, {"turns": [turn("s", 1.0)], "final": "s"}],
]
peer = [
    [
        {"turns": [turn("s0"), turn("s1"), turn("s2", 10.0)], "final": ""},
        {"turns": [turn("s0"), turn("s3", v=False)], "final": ""},
    ]
]
# Entropies exactly 0.25 apart; scores exactly at the fences; a loop that walks one edge three times.
ties = [
    [
        {"turns": [turn("a", h=(0.25,)), turn("a", h=(0.5,)), turn("a", 1.0, h=(0.25, 0.5))], "final": "a"},
        {"turns": [turn("a", h=(0.5,)), turn("b", 0.5, h=(0.25,))], "final": "a"},
        {"turns": [turn("a", h=(0.25,)), turn("a", 0.25, h=(0.5,))], "final": "a"},
    ]
]
fences = [
    [
        {"turns": [turn(f"{i}", h=(h,))], "final": ""}
        for i, h in enumerate([1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 6.25, 0.0, 7.0])
    ]
]
BATCHES = {"mixed": mixed, "long": long, "flat": flat, "peer": peer, "ties": ties, "fences": fences}


# ---- the methods


def constant(values):
    return len(set(values)) == 1


def standardise(score, population, normalize, ddof, eps, singleton):
    n = len(population)
    if n == 1:
        if singleton == "zero":
            return 0.0
        return score / (1 + eps) if normalize == "mean-std" else score
    mean = population[0] if constant(population) else np.mean(population)
    if normalize == "mean":
        return score - mean
    if constant(population):
        return 0.0
    return (score - mean) / (np.std(population, ddof=ddof) + eps)


def outcome(trajectory, cost, scope):
    return sum(t["r"] - (cost if scope == "return" and not t["v"] else 0.0) for t in trajectory["turns"])


def turn_scores(group, cost, scope):
    return [
        [outcome(tr, cost, scope) - (cost if scope == "turn" and not t["v"] else 0.0) for t in tr["turns"]]
        for tr in group
    ]


def step_returns(group, gamma, cost, scope):
    table = []
    for tr in group:
        rewards = [t["r"] - (cost if scope == "return" and not t["v"] else 0.0) for t in tr["turns"]]
        row = []
        for t in range(len(rewards)):
            value = sum(gamma ** (k - t) * rewards[k] for k in range(t, len(rewards)))
            row.append(value - (cost if scope == "turn" and not tr["turns"][t]["v"] else 0.0))
        table.append(row)
    return table


def grpo(batch, normalize="mean-std", ddof=1, epsilon=1e-6, population="trajectory", single_sample_advantage="zero",
         invalid_penalty=0.1, invalid_penalty_target="turn"):
    result = []
    for group in batch:
        scores = turn_scores(group, invalid_penalty, invalid_penalty_target)
        if population == "turn":
            members = [s for row in scores for s in row]
        else:
            members = [outcome(tr, invalid_penalty, invalid_penalty_target) for tr in group]
        result.append([[standardise(s, members, normalize, ddof, epsilon, single_sample_advantage) for s in row] for row in scores])
    return result


def rloo(batch, population="trajectory", single_sample_advantage="zero", invalid_penalty=0.1, invalid_penalty_target="turn"):
    result = []
    for group in batch:
        scores = turn_scores(group, invalid_penalty, invalid_penalty_target)
        returns = [outcome(tr, invalid_penalty, invalid_penalty_target) for tr in group]
        flat_scores = [s for row in scores for s in row]
        rows, seen = [], 0
        for i, row in enumerate(scores):
            out = []
            for s in row:
                if population == "turn":
                    others = flat_scores[:seen] + flat_scores[seen + 1 :]
                    own, extra = s, 0.0
                else:
                    others = returns[:i] + returns[i + 1 :]
                    own, extra = returns[i], s - returns[i]
                seen += 1
                if others:
                    out.append(own - np.mean(others) + extra)
                else:
                    out.append(0.0 if single_sample_advantage == "zero" else own + extra)
            rows.append(out)
        result.append(rows)
    return result


def gigpo(batch, gamma=0.95, omega=1.0, normalize="mean-std", ddof=1, epsilon=1e-6, population="trajectory",
          single_sample_advantage="zero", single_step_advantage="zero", invalid_penalty=0.1, invalid_penalty_target="turn"):
    episode = grpo(batch, normalize, ddof, epsilon, population, single_sample_advantage, invalid_penalty, invalid_penalty_target)
    result = []
    for group, rows in zip(batch, episode):
        returns = step_returns(group, gamma, invalid_penalty, invalid_penalty_target)
        states = {}
        for tr, values in zip(group, returns):
            for t, value in zip(tr["turns"], values):
                states.setdefault(t["o"], []).append(value)
        result.append([
            [
                a + omega * standardise(value, states[t["o"]], normalize, ddof, epsilon, single_step_advantage)
                for a, value, t in zip(row, values, tr["turns"])
            ]
            for row, values, tr in zip(rows, returns, group)
        ])
    return result


def hgpo(batch, gamma=0.95, levels=3, alpha=1.0, normalize="mean-std", ddof=0, epsilon=1e-6,
         invalid_penalty=0.1, invalid_penalty_target="turn"):
    result = []
    for group in batch:
        returns = step_returns(group, gamma, invalid_penalty, invalid_penalty_target)
        key = lambda tr, t, k: tuple(x["o"] for x in tr["turns"][max(0, t - k + 1) : t + 1])
        rows = []
        for i, tr in enumerate(group):
            row = []
            for t in range(len(tr["turns"])):
                total = weight = 0.0
                for k in range(1, levels + 1):
                    members = [
                        returns[j][s]
                        for j, other in enumerate(group)
                        for s in range(len(other["turns"]))
                        if key(other, s, k) == key(tr, t, k)
                    ]
                    if len(members) > 1:
                        w = (k + 1) ** alpha
                        total += w * standardise(returns[i][t], members, normalize, ddof, epsilon, "zero")
                        weight += w
                row.append(total / weight if weight else 0.0)
            rows.append(row)
        result.append(rows)
    return result


def entropy(t):
    return float(np.mean(np.array(t["h"], dtype=np.float64)))


def table(batch, f):
    return [[[f(t) for t in tr["turns"]] for tr in group] for group in batch]


def letters(text):
    return np.array([text.count(c) for c in "abcdefghijklmnopqrstuvwxyz0123456789"], dtype=np.float64)


def clusters(rule, threshold):
    """A function from texts to names: the text itself, or the number of its cluster."""
    names, centres = {}, []

    def name(text):
        if rule == "exact":
            return text
        if text not in names:
            v = letters(text)
            v = v / np.linalg.norm(v) if np.linalg.norm(v) > 0 else v
            cosines = [float(c @ v) for c in centres]
            if cosines and max(cosines) > threshold:
                names[text] = int(np.argmax(cosines))
            else:
                centres.append(v)
                names[text] = len(centres) - 1
        return names[text]

    return name


def salt(batch, adv, history=3, matching="exact", actions="exact", threshold=0.8, count="occurrences"):
    result = []
    for group, rows in zip(batch, adv):
        observation, action = clusters(matching, threshold), clusters(actions, threshold)

        edges = {}
        for i, tr in enumerate(group):
            # One pass in reading order, so that clusters form in the same order.
            seen = [observation(t["o"]) for t in tr["turns"]] + [observation(tr["final"])]
            acts = [action(t["a"]) for t in tr["turns"]]
            pairs = list(zip([None] + acts, seen))
            for t in range(len(tr["turns"])):
                before = tuple(pairs[max(0, t + 1 - history) : t + 1])
                after = tuple(pairs[max(0, t + 2 - history) : t + 2])
                edge = (before, acts[t], after, t + 1 == len(tr["turns"]))
                edges.setdefault(edge, []).append((i, t))
        out = [list(row) for row in rows]
        for places in edges.values():
            if len(places) < 2:
                continue
            if count == "occurrences":
                mean = np.mean([rows[i][t] for i, t in places])
            else:
                owners = sorted({i for i, _ in places})
                mean = np.mean([np.mean([rows[i][t] for i, t in places if i == o]) for o in owners])
            for i, t in places:
                out[i][t] = float(mean)
        result.append(out)
    return result


def aem(batch, adv, **kwargs):
    lam, eps = kwargs.get("lambda", 1.0), kwargs.get("epsilon", 1e-8)
    spread, mode, scope = kwargs.get("min_spread", 0.1), kwargs.get("mode", "normal"), kwargs.get("scope", "group")
    lam = -lam if mode == "reverse" else lam
    H = table(batch, entropy)

    def alpha(h, population):
        if max(population) - min(population) < spread or lam == 0.0 or constant(population):
            return 1.0
        low, high = min(population), max(population)
        f = lambda x: np.exp(-lam * (x - low) / (high - low + eps))
        return f(h) / (np.mean([f(x) for x in population]) + eps)

    result = []
    for g, (rows, hs) in enumerate(zip(adv, H)):
        out = []
        for a, h in zip(rows, hs):
            population = {
                "trajectory": h,
                "group": [x for row in hs for x in row],
                "batch": [x for rows2 in H for row in rows2 for x in row],
            }[scope]
            coefficients = [alpha(x, population) for x in h]
            if mode == "mask-positive":
                out.append([0.0 if y * (c - 1) > 0 else y for c, y in zip(coefficients, a)])
            elif mode == "mask-negative":
                out.append([0.0 if y * (c - 1) < 0 else y for c, y in zip(coefficients, a)])
            else:
                out.append([float(c * y) for c, y in zip(coefficients, a)])
        result.append(out)
    return result


def empg(batch, adv, k=1.0, k_future=1.0, zeta=0.05, epsilon=1e-8):
    H = table(batch, entropy)
    every = [x for rows in H for row in rows for x in row]
    low, high = min(every), max(every)
    norm = lambda x: 0.0 if low == high else (x - low) / (high - low + epsilon)
    mean = np.mean([np.exp(-k * norm(x)) for x in every])
    out = [
        [
            [
                float(np.exp(-k * norm(h[t])) / mean * a[t])
                + (zeta * float(np.exp(-k_future * norm(h[t + 1]))) if t + 1 < len(h) else 0.0)
                for t in range(len(h))
            ]
            for a, h in zip(rows, hs)
        ]
        for rows, hs in zip(adv, H)
    ]
    centre = np.mean([x for rows in out for row in rows for x in row])
    return [[[float(x - centre) for x in row] for row in rows] for rows in out]


def has(batch, adv, alpha=0.5, signal="level", baseline="z-score", epsilon=1e-6):
    result = []
    for group, rows in zip(batch, adv):
        returns = [outcome(tr, 0.0, "turn") for tr in group]
        if alpha == 1.0 or constant(returns):
            result.append(rows)
            continue
        levels = [[t["p"] for t in tr["turns"]] for tr in group]
        credits = levels if signal == "level" else [list(np.diff([0.0] + row)) for row in levels]
        out = []
        for row, credit in zip(rows, credits):
            new = []
            for t, a in enumerate(row):
                if baseline == "z-score":
                    column = [c[t] for c in credits if len(c) > t]
                    z = standardise(credit[t], column, "mean-std", 0, epsilon, "zero")
                else:
                    others = [c[t] if len(c) > t else 0.0 for c in credits if c is not credit]
                    z = credit[t] - np.mean(others) if others else 0.0
                new.append(float(alpha * a + (1 - alpha) * z))
            out.append(new)
        result.append(out)
    return result


def outliers(batch, locate="normalized", single_visit_entropy="raw", literal=False, ddof=1, epsilon=1e-6, **kwargs):
    lam = kwargs.get("lambda", 1.5)
    scores = []
    for group in batch:
        states = {}
        for tr in group:
            for t in tr["turns"]:
                states.setdefault(t["o"], []).append(entropy(t))
        rows = []
        for tr in group:
            row = []
            for t in tr["turns"]:
                members = states[t["o"]]
                if locate == "shannon":
                    row.append(entropy(t))
                elif len(members) == 1:
                    row.append({"raw": entropy(t), "zero": 0.0, "exclude": None}[single_visit_entropy])
                else:
                    row.append(standardise(entropy(t), members, "mean-std", ddof, epsilon, "zero"))
            rows.append(row)
        scores.append(rows)
    every = [s for rows in scores for row in rows for s in row if s is not None]
    q1, q3 = np.percentile(every, [25, 75])
    low, high = q1 - lam * (q3 - q1), q3 + lam * (q3 - q1)
    point = q3 - q1 < 1e-8 and not literal
    mask = [[[bool(s is not None and not point and (s < low or s > high)) for s in row] for row in rows] for rows in scores]
    return scores, mask, [float(low), float(high)], bool(point)


def ppo(batch, values, gamma=1.0, bootstrap_across_turns=True, whiten=True, invalid_penalty=0.1, **kwargs):
    lam = kwargs.get("lambda", 1.0)
    advantages, returns = [], []
    for group, vs in zip(batch, values):
        arows, rrows = [], []
        for tr, v in zip(group, vs):
            owner = [t for t, x in enumerate(tr["turns"]) for _ in x["h"]]
            n = len(owner)
            last = [i + 1 == n or owner[i + 1] != owner[i] for i in range(n)]
            r = [
                (tr["turns"][owner[i]]["r"] - (0.0 if tr["turns"][owner[i]]["v"] else invalid_penalty)) if last[i] else 0.0
                for i in range(n)
            ]
            ends = [i + 1 == n or (last[i] and not bootstrap_across_turns) for i in range(n)]
            a = [0.0] * n
            for i in range(n):
                # The explicit sum of discounted deltas up to the end of the chain.
                factor, j = 1.0, i
                while True:
                    delta = r[j] + (0.0 if ends[j] else gamma * v[j + 1]) - v[j]
                    a[i] += factor * delta
                    if ends[j]:
                        break
                    factor *= gamma * lam
                    j += 1
            arows.append(a)
            rrows.append([x + y for x, y in zip(a, v)])
        advantages.append(arows)
        returns.append(rrows)
    if whiten:
        every = np.array([x for rows in advantages for row in rows for x in row])
        mean, var = every.mean(), every.var(ddof=1)
        advantages = [[[float((x - mean) / np.sqrt(var + 1e-8)) for x in row] for row in rows] for rows in advantages]
    return advantages, returns


# ---- the cases

ESTIMATORS = {"grpo": grpo, "rloo": rloo, "gigpo": gigpo, "hgpo": hgpo, "rtmc": functools.partial(rtmc, step_returns)}
REFINEMENTS = {"salt": salt, "aem": aem, "empg": empg, "has": has, "turn-credit": turn_credit}
configs = []
for normalize in ("mean-std", "mean"):
    for population in ("trajectory", "turn"):
        for singleton in ("zero", "raw"):
            common = {"population": population, "single_sample_advantage": singleton}
            configs.append(({"kind": "grpo", "normalize": normalize, "ddof": 1 if singleton == "raw" else 0, **common}, []))
            configs.append(({"kind": "gigpo", "normalize": normalize, "single_step_advantage": singleton, **common}, []))
            if normalize == "mean":
                configs.append(({"kind": "rloo", **common}, []))
configs += [
    ({"kind": "grpo", "invalid_penalty_target": "return", "invalid_penalty": 0.01}, []),
    ({"kind": "rloo", "invalid_penalty_target": "return"}, []),
    ({"kind": "gigpo", "invalid_penalty_target": "return", "omega": 0.5, "gamma": 0.9}, []),
    ({"kind": "hgpo"}, []),
    ({"kind": "hgpo", "levels": 2, "alpha": 0.5, "normalize": "mean", "ddof": 1}, []),
    ({"kind": "grpo"}, [{"kind": "salt"}]),
    ({"kind": "grpo"}, [{"kind": "salt", "history": 1}]),
    ({"kind": "rloo"}, [{"kind": "salt", "history": 2, "count": "trajectories"}]),
    ({"kind": "rloo"}, [{"kind": "salt", "history": 1, "count": "trajectories"}]),
    ({"kind": "gigpo"}, [{"kind": "salt", "history": 1, "matching": "embedding", "threshold": 0.9}]),
    ({"kind": "grpo"}, [{"kind": "aem"}]),
    ({"kind": "gigpo"}, [{"kind": "aem", "mode": "reverse", "lambda": 0.5}]),
    ({"kind": "rloo"}, [{"kind": "aem", "scope": "trajectory", "min_spread": 0.25}]),
    ({"kind": "grpo"}, [{"kind": "aem", "scope": "batch"}]),
    ({"kind": "grpo"}, [{"kind": "aem", "mode": "mask-positive"}]),
    ({"kind": "gigpo"}, [{"kind": "aem", "mode": "mask-negative"}]),
    ({"kind": "grpo"}, [{"kind": "empg"}]),
    ({"kind": "grpo"}, [{"kind": "empg", "k": 0.5, "k_future": 2.0, "zeta": 0.2}]),
    ({"kind": "grpo", "ddof": 0}, [{"kind": "has"}]),
    ({"kind": "grpo", "ddof": 0}, [{"kind": "has", "signal": "change", "alpha": 0.25}]),
    ({"kind": "gigpo"}, [{"kind": "salt", "history": 1}, {"kind": "aem"}, {"kind": "has", "alpha": 0.75}]),
    ({"kind": "gigpo"}, [{"kind": "salt", "history": 1, "matching": "embedding", "actions": "embedding", "threshold": 0.9}]),
    ({"kind": "grpo", "normalize": "mean"}, [{"kind": "has", "baseline": "leave-one-out"}]),
    ({"kind": "rloo"}, [{"kind": "has", "baseline": "leave-one-out", "signal": "change", "alpha": 0.25}]),
    ({"kind": "grpo", "normalize": "mean", "invalid_penalty": 0.0}, [{"kind": "turn-credit"}]),
    ({"kind": "grpo"}, [{"kind": "turn-credit", "gamma": 1.0, "beta": 0.5, "net_progress": False, "first_turn": True}]),
    ({"kind": "rloo"}, [{"kind": "turn-credit", "gamma": 0.0}, {"kind": "aem"}]),
    ({"kind": "rtmc"}, []),
    ({"kind": "rtmc", "prior": 0.0, "invalid_penalty": 0.0}, []),
    ({"kind": "rtmc", "gamma": 0.9, "prior": 2.5, "invalid_penalty_target": "return"}, [{"kind": "aem"}]),
]
cases = []
for estimator, refinements in configs:
    for name, batch in BATCHES.items():
        kwargs = {k: v for k, v in estimator.items() if k != "kind"}
        adv = ESTIMATORS[estimator["kind"]](batch, **kwargs)
        for refinement in refinements:
            kwargs = {k: v for k, v in refinement.items() if k != "kind"}
            adv = REFINEMENTS[refinement["kind"]](batch, adv, **kwargs)
        expected = [[[float(x) for x in row] for row in rows] for rows in adv]
        cases.append({"batch": name, "config": {"estimator": estimator, "refinements": refinements}, "expected": expected})

located = []
for config in (
    {},
    {"single_visit_entropy": "zero"},
    {"single_visit_entropy": "exclude", "lambda": 0.5},
    {"locate": "shannon", "lambda": 1.0},
    {"lambda": 0.0, "literal": True},
):
    for name, batch in BATCHES.items():
        if name == "fences" and config.get("single_visit_entropy") == "exclude":
            continue
        scores, mask, bounds, point = outliers(batch, **config)
        located.append({"batch": name, "config": config, "scores": scores, "mask": mask, "bounds": bounds, "degenerate": point})

def critic_cases(method, configs):
    """Cases of a method that reads random values of a critic."""
    found = []
    for config in configs:
        for name in ("mixed", "long", "ties"):
            batch = BATCHES[name]
            values = [[[float(rng.normal()) for t in tr["turns"] for _ in t["h"]] for tr in group] for group in batch]
            advantages, returns = method(batch, values, **config)
            found.append({"batch": name, "config": config, "values": values, "advantages": advantages, "returns": returns})
    return found

tokens = critic_cases(ppo, ({}, {"gamma": 0.99, "lambda": 0.9, "whiten": False}, {"lambda": 0.95, "bootstrap_across_turns": False}))
turns = critic_cases(turn_ppo, ({}, {"gamma": 1.0, "lambda": 1.0, "whiten": False, "invalid_penalty": 0.0}, {"gamma": 0.9, "lambda": 0.0}))

measured = []
for config in ({}, {"gamma": 0.9, "whiten": False}, {"gamma": 0.0, "invalid_penalty": 0.0}, {"continuations": 1, "invalid_penalty": 1.0}):
    for name in ("mixed", "long", "ties"):
        batch = BATCHES[name]
        values = [[[float(rng.normal()) for t in tr["turns"]] for tr in group] for group in batch]
        kwargs = {k: v for k, v in config.items() if k != "continuations"}
        advantages = monte_carlo(batch, values, **kwargs)
        measured.append({"batch": name, "config": config, "values": values, "advantages": advantages})

print(json.dumps({"batches": BATCHES, "cases": cases, "outliers": located, "ppo": tokens, "turn_ppo": turns, "monte_carlo": measured, "scored": scored.cases(BATCHES, grpo, rng)}))
