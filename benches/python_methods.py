"""Time of credit methods that are Python functions, beside the built-in ones: python3 benches/python_methods.py

Needs the Python package (pip install ./bindings/python). Prints milliseconds of CPU time a batch, the best of several.
"""

from __future__ import annotations

import time

import numpy as np

import turnwise


@turnwise.estimator
def own_grpo(batch, *, epsilon=1e-6):
    returns = batch.sums(batch.reward)
    count = np.bincount(batch.groups)
    mean = np.bincount(batch.groups, returns) / count
    centred = returns - mean[batch.groups]
    deviation = np.sqrt(np.bincount(batch.groups, centred**2) / np.maximum(count - 1, 1))
    return batch.to_turns(centred / (deviation[batch.groups] + epsilon))


@turnwise.refinement
def same(batch, advantages):
    return advantages


@turnwise.refinement(texts=True)
def same_with_texts(batch, advantages):
    return advantages


def made(groups: int, samples: int, turns: int) -> list[dict]:
    draw = np.random.default_rng(0)
    words = " ".join(["word"] * 60)
    return [
        {
            "group": group,
            "turns": [
                {"observation": f"{words} {draw.integers(5)}", "action": "go", "reward": float(turn == turns - 1 and draw.random() < 0.5)}
                for turn in range(turns)
            ],
        }
        for group in range(groups)
        for _ in range(samples)
    ]


def best(batch: list[dict], method: object, repeats: int = 7) -> float:
    found = []
    for _ in range(repeats):
        start = time.process_time()
        turnwise.credit(batch, method)
        found.append(time.process_time() - start)
    return 1e3 * min(found)


METHODS = {
    "grpo": "grpo",
    "own_grpo": own_grpo,
    "grpo, same": ["grpo", same],
    "grpo, same_with_texts": ["grpo", same_with_texts],
    "gigpo": "gigpo",
}

if __name__ == "__main__":
    print(f"{'turns':>8}" + "".join(f"{name:>24}" for name in METHODS))
    for groups, samples, turns in ((16, 8, 8), (64, 8, 16), (128, 16, 32)):
        batch = made(groups, samples, turns)
        times = "".join(f"{best(batch, method):>21.2f} ms" for method in METHODS.values())
        print(f"{groups * samples * turns:>8}{times}")
