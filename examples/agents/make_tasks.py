"""Writes the tasks of the examples: `python3 examples/agents/make_tasks.py FOLDER`."""

import json
import pathlib
import random
import sys

COLOURS = ["red", "blue", "black", "white", "yellow", "brown", "pink", "grey"]
TRAIN = "cup boat lamp coat bell drum kite sock ring desk ball fork".split()
TEST = "shoe vase clock bowl chair knife glove brush".split()


def goods(rng, things):
    return {thing: {"colour": rng.choice(COLOURS), "price": rng.randint(2, 99)} for thing in things}


def questions(rng, things, count):
    """Questions after a colour and a price by turns, each about goods of its own."""
    for number in range(count):
        store = goods(rng, rng.sample(things, 3))
        thing = rng.choice(sorted(store))
        kind = ["colour", "price"][number % 2]
        question = f"What colour is the {thing}?" if kind == "colour" else f"What does the {thing} cost?"
        yield {
            "id": f"{things[0]}/{number}",
            "kind": kind,
            "goal": question,
            "question": question,
            "goods": store,
            "answer": str(store[thing][kind]),
        }


def numbers(split, repeats):
    for number in range(5 * repeats):
        secret = number % 5 + 1
        yield {"id": f"{split}/{number}", "kind": "guess", "goal": "Find the number.", "secret": secret, "game": f"{split} {number}"}


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
rng = random.Random(0)
write(folder / "goods-train.jsonl", questions(rng, TRAIN, 200))
write(folder / "goods-test.jsonl", questions(rng, TEST, 40))
write(folder / "guess-train.jsonl", numbers("train", 28))
write(folder / "guess-test.jsonl", numbers("test", 8))
