"""Golden numbers of crates/eval/src/statistics, from SciPy and rliable.

python3 -m venv venv && venv/bin/pip install scipy rliable 'pandas<3' && venv/bin/python golden_statistics.py > statistics.json
"""

import json

import numpy as np
from rliable import library, metrics
from scipy import stats

X = np.array([[0.10, 0.55, 0.30, 0.80], [0.35, 0.60, 0.20, 0.95], [0.25, 0.40, 0.55, 0.90]])
Y = np.array([[0.15, 0.45, 0.30, 0.70], [0.05, 0.60, 0.10, 0.85], [0.20, 0.30, 0.25, 0.90], [0.30, 0.35, 0.15, 0.60]])
D = [0.5, -0.25, 0.75, 1.0, 0.0, 0.25, -0.5, 0.25, 0.5, 1.0, -0.25, 0.75]


def interval(function, reps=50_000):
    _, found = library.get_interval_estimates({"x": X}, function, reps=reps, random_state=np.random.RandomState(1))
    return found["x"].ravel().tolist()


np.random.seed(1)
_, improvement = library.get_interval_estimates(
    {"xy": (X, Y)}, metrics.probability_of_improvement, reps=5_000, random_state=np.random.RandomState(1)
)
permutation = stats.permutation_test(
    (np.array(D), np.zeros(len(D))),
    lambda a, b: np.mean(a - b),
    permutation_type="samples",
    n_resamples=np.inf,
    alternative="two-sided",
)
print(
    json.dumps(
        {
            "x": X.tolist(),
            "y": Y.tolist(),
            "iqm": [metrics.aggregate_iqm(X), metrics.aggregate_iqm(Y)],
            "mean": [metrics.aggregate_mean(X), metrics.aggregate_mean(Y)],
            "iqm_interval": interval(lambda x: np.array([metrics.aggregate_iqm(x)])),
            "mean_interval": interval(lambda x: np.array([metrics.aggregate_mean(x)])),
            "improvement": metrics.probability_of_improvement(X, Y),
            "improvement_interval": improvement["xy"].ravel().tolist(),
            "mcnemar": [[b, c, stats.binomtest(b, b + c, 0.5).pvalue] for b, c in [(0, 6), (3, 11), (15, 30), (120, 160)]],
            "differences": D,
            "permutation": float(permutation.pvalue),
            "percentiles": [[q, float(np.quantile(D, q))] for q in [0.025, 0.3, 0.5, 0.975]],
        },
        indent=1,
    )
)
