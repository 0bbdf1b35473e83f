"""A world in Python: guess a number from what the world says of each guess."""

import random
import time

from turnwise_env import serve


class Guess:
    """One episode. The task names the secret number.

    numbers    how many there are to guess from
    broken     secrets whose episodes fail, to see what the trainer does then
    delay_ms   how long a step takes at most, to see that nothing but the time depends on it
    """

    def __init__(self, numbers=9, broken=(), delay_ms=0):
        self.numbers, self.broken, self.delay_ms = numbers, broken, delay_ms

    def reset(self, *, seed=None, options=None):
        self.secret = options["task"]["metadata"]["secret"]
        if self.secret in self.broken:
            raise RuntimeError(f"the world of {self.secret} is broken")
        self.low, self.high = 1, self.numbers
        return f"between {self.low} and {self.high}", self.info()

    def step(self, action):
        time.sleep(random.random() * self.delay_ms / 1000)
        guess = int(action) if action.isdigit() else None
        if guess is None or not self.low <= guess <= self.high:
            return f"between {self.low} and {self.high}", 0.0, False, False, {**self.info(), "understood": False}
        if guess == self.secret:
            return "found", 1.0, True, False, {"success": True, "progress": 1.0}
        if guess < self.secret:
            self.low = guess + 1
        else:
            self.high = guess - 1
        return f"between {self.low} and {self.high}", 0.0, False, False, self.info()

    def info(self):
        left = self.high - self.low + 1
        admissible = [str(number) for number in range(self.low, self.high + 1)]
        return {"admissible": admissible, "progress": (self.numbers - left) / self.numbers}


def expert(environment, observation, info):
    """Halves what is left."""
    return str((environment.low + environment.high) // 2)


def tasks(secrets):
    """One task for every secret number."""
    goal = "find the number"
    return [{"id": f"guess/{n}", "kind": "guess", "goal": goal, "metadata": {"secret": n}} for n in secrets]


if __name__ == "__main__":
    serve(
        Guess,
        tasks={"train": tasks([1, 2, 4, 5, 7, 8]), "test": tasks([3, 6, 9])},
        expert=expert,
        phrases=["between", "and", "found"] + [str(number) for number in range(1, 10)],
    )
