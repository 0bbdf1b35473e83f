"""Numbers of the benchmark's statistics, from their definitions with NumPy and SciPy: writes benchmark.json beside this file.

python3 -m venv venv && venv/bin/pip install scipy && venv/bin/python golden_benchmark.py
"""

import json
import pathlib

import numpy as np
from scipy import stats

rng = np.random.default_rng(7)
tasks, turns = [], []
trajectory = 0
for task in range(5):
    for _ in range(3):
        length = int(rng.integers(2, 6))
        level = rng.normal()
        for place in range(length):
            true = rng.normal() * 0.3
            halves = true + rng.normal(size=2) * 0.2
            advantage = np.round(0.5 * level + true + rng.normal() * 0.3, 2)
            turns.append(
                dict(task=task, trajectory=trajectory, place=place, success=bool(level > 0), halves=halves.tolist(),
                     truth=float(halves.mean()), error=0.14, advantage=float(advantage))
            )
        trajectory += 1

x = np.array([turn["advantage"] for turn in turns])
y = np.array([turn["truth"] for turn in turns])
h = np.array([turn["halves"] for turn in turns])
e = np.array([turn["error"] for turn in turns])
group = np.array([turn["trajectory"] for turn in turns])


def within(values):
    return np.array([value - values[group == at].mean() for value, at in zip(values, group)])


def reliability(first, second):
    r = np.corrcoef(first, second)[0, 1]
    return 2 * r / (1 + r)


def rank_reliability(first, second):
    r = stats.spearmanr(first, second).statistic
    return 2 * r / (1 + r)


rel = reliability(h[:, 0], h[:, 1])
rel_within = reliability(within(h[:, 0]), within(h[:, 1]))
r, r_within = np.corrcoef(x, y)[0, 1], np.corrcoef(within(x), within(y))[0, 1]
clear = np.abs(y) > 2 * e
right = np.where(x == 0, 0.5, (np.sign(x) == np.sign(y)).astype(float))
factor = (x * y).sum() / (x * x).sum()
solved = np.array([turn["success"] for turn in turns])
first = np.array([turn["place"] == 0 for turn in turns])


def error(part):
    return np.sqrt((((factor * x - y) ** 2 - e**2)[part].sum()) / ((y**2 - e**2)[part].sum()))


X, Y = np.array([1.0, 2, 3, 4, 7, 2]), np.array([2.0, 1.5, 4, 3, 9.5, 1.5])
often = [2, 0, 1, 3, 1, 1]
XR, YR = np.repeat(X, often), np.repeat(Y, often)
correlations = []
for a, b in [(X, Y), (XR, YR)]:
    correlations += [stats.pearsonr(a, b).statistic, stats.spearmanr(a, b).statistic, stats.linregress(a, b).slope]

golden = dict(
    turns=turns,
    pearson=r,
    pearson_corrected=r / np.sqrt(rel),
    spearman=stats.spearmanr(x, y).statistic,
    within=r_within,
    within_corrected=r_within / np.sqrt(rel_within),
    within_spearman=stats.spearmanr(within(x), within(y)).statistic,
    spearman_corrected=stats.spearmanr(x, y).statistic / np.sqrt(rank_reliability(h[:, 0], h[:, 1])),
    within_spearman_corrected=stats.spearmanr(within(x), within(y)).statistic
    / np.sqrt(rank_reliability(within(h[:, 0]), within(h[:, 1]))),
    signs=right[clear].mean(),
    signed_turns=int(clear.sum()),
    slope=stats.linregress(x, y).slope,
    reliability=rel,
    within_reliability=rel_within,
    deviation=y.std(),
    error_solved=error(solved),
    error_first=error(first),
    against_second=dict(
        pearson=np.corrcoef(x, h[:, 1])[0, 1],
        pearson_corrected=np.corrcoef(x, h[:, 1])[0, 1] / np.sqrt(np.corrcoef(h[:, 0], h[:, 1])[0, 1]),
    ),
    correlations=[float(number) for number in correlations],
)
path = pathlib.Path(__file__).with_name("benchmark.json")
path.write_text(json.dumps(golden, indent=1, default=float) + "\n")
