"""Writes token_set_ratio.json: random pairs of texts and thefuzz's score of them.

Needs the packages thefuzz (0.20 or later) and rapidfuzz. Run: python3 token_set_ratio.py
"""

import json
import pathlib
import random

from thefuzz import fuzz

WORDS = [
    "machine", "wash", "washable", "long", "short", "sleeve", "sleeves", "cotton", "cottons", "easy", "clean", "to", "non",
    "slip", "anti", "water", "proof", "waterproof", "x-large", "xx-large", "3x-large", "5.5", "6 wide", "black", "dark-grey",
    "it's", "men's", "a_b", "60\" x 40\"", "('color', 'navy')", "100%", "caf\u00e9", "na\u00efve", "\u0130stanbul",
    "\u03a3igma", "\u4e00\u4e8c", "\ud55c\uad6d", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u2160", "\u00bd", "\u0660", "\t", "\xa0",
    "...", "-", "", "extraordinarilylongwordthatkeepsgoingandgoingandgoingpastsixtyfourcharactersofit",
]


def text(draw):
    words = [draw.choice(WORDS) for _ in range(draw.choice([0, 1, 1, 2, 2, 3, 4, 6]))]
    if words and draw.random() < 0.3:  # a misspelling
        word = words[-1]
        at = draw.randrange(len(word) + 1)
        words[-1] = word[:at] + draw.choice("abe -") + word[at + draw.randrange(2) :]
    return draw.choice([" ", " ", "  ", ", "]).join(words)


def main():
    draw = random.Random(0)
    cases = []
    for _ in range(1500):
        left = text(draw)
        right = text(draw) if draw.random() < 0.6 else " ".join(reversed(left.split(" "))) + draw.choice(["", "s", " navy", "!"])
        cases.append([left, right, fuzz.token_set_ratio(left, right)])
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    print(len(cases), "cases,", sum(case[2] > 85 for case in cases), "above 85")


main()
