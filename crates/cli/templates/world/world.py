"""NAME: a number is looked for with a tool. Replace it by a world of your own.

    python3 -m unittest discover NAME     tests it
    turnwise train NAME/train.toml        trains on it

`turnwise_env.py` beside this file speaks with the trainer; its first lines say what a world may do.
"""

from turnwise_env import serve

# What the policy may call. A chat model gets these as the `tools` of its chat template.
TOOLS = [
    {
        "name": "guess",
        "description": "Says if this is the number, or between which it lies.",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    }
]


class World:
    """One episode at a time."""

    def reset(self, *, seed=None, options=None):
        """Starts the task that the trainer asks for; draw from `seed` alone. Returns what the policy sees first."""
        task = options["task"]["metadata"]
        self.secret, self.low, self.high = task["secret"], 1, task["numbers"]
        return self.seen()

    def seen(self):
        return f"between {self.low} and {self.high}"

    def step(self, action):
        """Carries an action out: a call as a dict, words as text. Returns observation, reward, terminated, truncated, info."""
        n = action["arguments"].get("n") if isinstance(action, dict) and action["name"] == "guess" else None
        if not isinstance(n, int) or not self.low <= n <= self.high:
            # A bad action is answered; an exception would end the episode without teaching anything.
            return self.seen(), 0.0, False, False, {"understood": False}
        if n == self.secret:
            return "found", 1.0, True, False, {"success": True}
        if n < self.secret:
            self.low = n + 1
        else:
            self.high = n - 1
        return self.seen(), 0.0, False, False, {}


def expert(world, observation, info):
    """Plays the episodes that the warm start imitates: halves what is left. A world without an expert needs a pretrained model."""
    return {"name": "guess", "arguments": {"n": (world.low + world.high) // 2}}


def task(secret, numbers):
    return {"id": f"{secret}-of-{numbers}", "goal": "find the number", "metadata": {"secret": secret, "numbers": numbers}}


GAMES = [(secret, numbers) for numbers in range(9, 17) for secret in range(1, numbers + 1)]

# Every fifth game is kept for the test.
TASKS = {
    "train": [task(*game) for game in GAMES if sum(game) % 5],
    "test": [task(*game) for game in GAMES if sum(game) % 5 == 0],
}

if __name__ == "__main__":
    serve(
        World,
        tasks=TASKS,
        tools=TOOLS,
        expert=expert,
        # Pieces of text that a model made from scratch reads and writes as one token each.
        phrases=["between", "and", "found", '<tool_call>\n{"name": "guess", "arguments": {"n": ', "}}\n</tool_call>"],
    )
