"""A world in Python: guess a number from what the world says of each guess."""

import random
import time

from turnwise_env import serve


class Guess:
    """One episode. The task names the secret number and how many numbers there are.

    broken     secrets whose episodes fail, to see what the trainer does then
    delay_ms   how long a step takes at most, to see that nothing but the time depends on it
    """

    def __init__(self, broken=(), delay_ms=0):
        self.broken, self.delay_ms = broken, delay_ms

    def reset(self, *, seed=None, options=None):
        task = options["task"]["metadata"]
        self.secret, self.numbers = task["secret"], task["numbers"]
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

    def save(self):
        return [self.secret, self.numbers, self.low, self.high]

    def restore(self, state, task):
        self.secret, self.numbers, self.low, self.high = state

    def info(self):
        left = self.high - self.low + 1
        admissible = [str(number) for number in range(self.low, self.high + 1)]
        return {"admissible": admissible, "progress": (self.numbers - left) / self.numbers}


def expert(environment, observation, info):
    """Halves what is left."""
    return str((environment.low + environment.high) // 2)


def task(secret, numbers):
    return {
        "id": f"guess/{secret}-of-{numbers}",
        "kind": "guess",
        "goal": "find the number",
        "metadata": {"secret": secret, "numbers": numbers},
    }


# Every fifth game is kept for the test: its number and its range are met in training, the two together are not.
GAMES = [(secret, numbers) for numbers in range(9, 17) for secret in range(1, numbers + 1)]

if __name__ == "__main__":
    serve(
        Guess,
        tasks={
            "train": [task(*game) for game in GAMES if sum(game) % 5],
            "test": [task(*game) for game in GAMES if sum(game) % 5 == 0],
        },
        expert=expert,
        phrases=["between", "and", "found"] + [str(number) for number in range(1, 17)],
    )
