"""Credit as one would write it in NumPy, and difflib grouping, timed.

The peer of `cargo bench -p turnwise-credit`: the same shapes, other random numbers.
Needs NumPy. Run: python3 benches/peer/credit.py
"""

import difflib
import random
import time
from collections import defaultdict

import numpy as np

random.seed(1)
rng = np.random.default_rng(1)


def page(characters):
    """A page of words of two or three syllables, as the Rust bench has it."""
    syllables = ["ka", "ri", "to", "men", "sal", "ve", "dor", "in", "plo", "es", "ta", "un"]
    text = ""
    while len(text) < characters:
        word = random.randrange(400)
        text += syllables[word % 12] + syllables[word // 12 % 12]
        text += syllables[word // 34 % 12] if word % 3 == 0 else ""
        text += "." if random.random() < 0.1 else " "
    return text


def batch(groups, size, length, states):
    out = []
    for _ in range(groups):
        texts = [page(200) for _ in range(states)]
        group = []
        for _ in range(size):
            rewards = np.zeros(length)
            rewards[-1] = 10.0 * (random.random() < 0.5)
            group.append({
                "o": [random.choice(texts) for _ in range(length)],
                "a": [f"action {random.randrange(8)}" for _ in range(length)],
                "valid": rng.random(length) < 0.9,
                "r": rewards,
                "h": rng.random((length, 32), dtype=np.float32),
            })
        out.append(group)
    return out


def credit(groups, gamma=0.95, history=3):
    """GiGPO, then SALT, then AEM, one group at a time."""
    for group in groups:
        totals = np.array([t["r"].sum() for t in group])
        mean, std = totals.mean(), totals.std(ddof=1)
        states = defaultdict(list)
        returns = []
        for i, t in enumerate(group):
            g, row = 0.0, np.zeros(len(t["r"]))
            for k in range(len(row) - 1, -1, -1):
                g = t["r"][k] + gamma * g
                row[k] = g
            row -= 0.1 * ~t["valid"]
            returns.append(row)
            for k, o in enumerate(t["o"]):
                states[o].append((i, k))
        adv = [(totals[i] - 0.1 * ~t["valid"] - mean) / (std + 1e-6) for i, t in enumerate(group)]
        for places in states.values():
            values = np.array([returns[i][k] for i, k in places])
            if len(values) > 1:
                z = (values - values.mean()) / (values.std(ddof=1) + 1e-6)
                for (i, k), x in zip(places, z):
                    adv[i][k] += x
        edges = defaultdict(list)
        for i, t in enumerate(group):
            pairs = list(zip([None] + t["a"], t["o"] + [""]))
            for k in range(len(t["o"])):
                edge = (tuple(pairs[max(0, k + 1 - history) : k + 1]), t["a"][k], tuple(pairs[max(0, k + 2 - history) : k + 2]))
                edges[edge].append((i, k))
        for places in edges.values():
            if len(places) > 1:
                m = np.mean([adv[i][k] for i, k in places])
                for i, k in places:
                    adv[i][k] = m
        entropies = [t["h"].astype(np.float64).mean(axis=1) for t in group]
        every = np.concatenate(entropies)
        low, high = every.min(), every.max()
        if high - low >= 0.1:
            scale = np.exp(-(every - low) / (high - low + 1e-8)).mean() + 1e-8
            for a, h in zip(adv, entropies):
                a *= np.exp(-(h - low) / (high - low + 1e-8)) / scale


def best(function, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


for name, shape in (("128x50", (16, 8, 50, 40)), ("1280x4", (256, 5, 4, 12))):
    data = batch(*shape)
    print(f"gigpo+salt+aem {name}: {1e3 * best(lambda: credit(data), 5):.1f} ms")


def group_states(texts, autojunk):
    representatives = []
    for text in texts:
        ratios = [difflib.SequenceMatcher(None, text, r, autojunk=autojunk).ratio() for r in representatives]
        if not ratios or max(ratios) < 0.9:
            representatives.append(text)


texts = [page(1500) for _ in range(20)]
for autojunk in (True, False):
    start = time.process_time()
    group_states(texts, autojunk)
    spent = time.process_time() - start
    print(f"similarity, one group of 20 states of 1500 characters, autojunk={autojunk}: {spent:.3f} s; 256 groups: {256 * spent:.0f} s")
