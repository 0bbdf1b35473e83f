"""Writes similarity.json: pairs of texts with the answers of Python's own difflib.

Run: python3 similarity.py > similarity.json
"""

import difflib
import json
import random

random.seed(20)
WORDS = "you are in the middle of a room . looking around see cabinet drawer 1 2 3 apple pan ñandú 漢字 😀 \n".split(" ")


def prose(words):
    return " ".join(random.choice(WORDS) for _ in range(words))


def edited(text):
    symbols = list(text)
    for _ in range(random.randrange(1, 8)):
        at = random.randrange(len(symbols) + 1)
        kind = random.randrange(3)
        if kind == 0:
            symbols.insert(at, random.choice("xyz"))
        elif at < len(symbols):
            if kind == 1:
                del symbols[at]
            else:
                symbols = symbols[at:] + symbols[:at]
    return "".join(symbols)


pairs = [("", ""), ("a", ""), ("", "a"), ("abcd", "bcde"), ("abxcd", "abcd"), ("b" * 250, "b" * 250 + "a")]
pairs += [("ab" * 60, "ba" * 110), ("ab" * 150, "xab" * 100), ("é" * 210, "e" * 210)]
for count in (3, 10, 30, 60):
    for _ in range(15):
        base = prose(count)
        pairs.append((base, edited(base)))
        pairs.append((base, prose(count)))

lines = []
for a, b in pairs:
    ratios = [difflib.SequenceMatcher(None, a, b, autojunk=junk).ratio() for junk in (False, True)]
    lines.append(json.dumps([a, b, *ratios], ensure_ascii=False))
print("[" + ",\n".join(lines) + "]")
