"""Writes verl_agent_parsing.json: random responses and how Python reads them by verl-agent's rule for ALFWorld.

The rule is the one that `ActionParser::parse` documents; what is recorded here is Python's own idea of lower case,
of white space and of the last 30 characters. Run: python3 verl_agent_parsing.py
"""

import json
import pathlib
import random
import re

PIECES = [
    "<think>", "</think>", "<Think>", "</THINK>", "<action>", "</action>", "<ACTION>", "</Action>", "<action", "think>",
    " ", "\n", "\t", "\x1c", "\x1f", "\x85", "\xa0", "\u2003", "\u200b", "\u3000", "\ufeff",
    "go to desk 1", "Take Mug 2 from shelf 3", "LOOK", "I am not sure. ", "x",
    "\u4e00", "\u9fff", "\u4dff", "\ua000", "\u597d", "\u3042", "\ud55c",
    "\u0130", "\u00df", "\u1e9e", "\u03a3", "\u03a3 ", "A\u03a3", "\u01c5", "\u00c9", "\U0001f600", "\U00010400",
]


def read(response):
    text = response.lower()
    start, end = text.find("<action>"), text.find("</action>")
    if start < 0 or end < 0:
        return text[-30:], False
    valid = "<think>" in response and "</think>" in response and not re.search("[\u4e00-\u9fff]", response)
    return text[start + len("<action>") : end].strip(), valid


def main():
    draw = random.Random(0)
    cases = [["", *read("")]]
    for number in range(600):
        pieces = [draw.choice(PIECES) for _ in range(draw.randrange(1, 14))]
        if number % 3 == 0:  # well formed at heart
            pieces[len(pieces) // 2 : 0] = ["<think>", draw.choice(PIECES), "</think>", "<action>", draw.choice(PIECES), "</action>"]
        response = "".join(pieces)
        cases.append([response, *read(response)])
    lines = ",\n".join(json.dumps(case) for case in cases)
    pathlib.Path(__file__).with_suffix(".json").write_text(f"[\n{lines}\n]\n")
    print(len(cases), "cases,", sum(case[2] for case in cases), "valid")


main()
