"""Writes calls.json: responses in three formats of calls of tools, and the calls that Python reads in them.

JSON is read by `json`, Python-style calls by `ast`. `null` in place of the calls: malformed. Run: python3 make.py
"""

import ast
import json
import pathlib
import random

OPEN, CLOSE = "<tool_call>", "</tool_call>"
VALUES = [
    "a", "it's", 'say "so"', "é 🦙", "tab\tand\nbreak", "back\\slash", "</think>", "f(x=1)", "[1, {2}]", "", 0, -7, 12345678901, 1.5,
    -2e-3, 1e20, True, False, None, [], {}, [1, "b", [True]], {"k": "v", "n": {"m": [None, 0.25]}},
]
NAMES = ["f", "search", "get_weather", "math.add", "cd"]
KEYS = ["n", "query", "unit_2", "path"]
BROKEN = ["{", "}", "[", "]", "(", ")", ",", '"', "'", ":", "=", "\\", " x ", OPEN, CLOSE, "name", ";", "\n"]


def drawn(draw):
    count = draw.choice([1, 1, 1, 2, 3])
    return [
        {"name": draw.choice(NAMES), "arguments": {key: draw.choice(VALUES) for key in draw.sample(KEYS, draw.randrange(4))}}
        for _ in range(count)
    ]


def called(value, key):
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"].strip():
        raise ValueError(value)
    return {"name": value["name"].strip(), "arguments": value.get(key, {})}


def strict(text):
    """JSON without Python's NaN and Infinity."""
    return json.loads(text, parse_constant=lambda word: json.loads(""))


def read_hermes(text):
    calls = []
    while OPEN in text:
        before, text = text.split(OPEN, 1)
        if CLOSE in before:
            raise ValueError(text)
        decoder = json.JSONDecoder(parse_constant=lambda word: json.loads(""))
        text = text.lstrip(" \n\t\r")
        value, end = decoder.raw_decode(text)
        rest = text[end:].lstrip(" \n\t\r")
        if not rest.startswith(CLOSE):
            raise ValueError(rest)
        text = rest[len(CLOSE) :]
        calls.append(called(value, "arguments"))
    if CLOSE in text:
        raise ValueError(text)
    return calls


def read_llama(text):
    text = text.strip()
    if not text.startswith("{"):
        return []
    calls = []
    decoder = json.JSONDecoder(parse_constant=lambda word: json.loads(""))
    while text:
        value, end = decoder.raw_decode(text)
        calls.append(called(value, "parameters"))
        text = text[end:].strip().removeprefix(";").strip()
    return calls


def read_python(text):
    # The compiler alone refuses an argument that is given twice.
    compile(text.strip(), "response", "eval")
    tree = ast.parse(text.strip(), mode="eval").body
    if not isinstance(tree, ast.List):
        raise ValueError(text)
    calls = []
    for call in tree.elts:
        if not isinstance(call, ast.Call) or call.args or any(part.arg is None for part in call.keywords):
            raise ValueError(text)
        calls.append({"name": ast.unparse(call.func), "arguments": {part.arg: ast.literal_eval(part.value) for part in call.keywords}})
    return calls


def write_hermes(calls):
    return "\n".join(f"{OPEN}\n{json.dumps(call, ensure_ascii=False)}\n{CLOSE}" for call in calls)


def write_llama(calls):
    return "; ".join(json.dumps({"name": call["name"], "parameters": call["arguments"]}, ensure_ascii=False) for call in calls)


def write_python(calls):
    return "[" + ", ".join(f"{c['name']}({', '.join(f'{k}={v!r}' for k, v in c['arguments'].items())})" for c in calls) + "]"


FORMATS = {"hermes": (write_hermes, read_hermes), "llama": (write_llama, read_llama), "python": (write_python, read_python)}
BY_HAND = {
    "hermes": ["", "No call.", "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\nThen.", "<tool_call>{\"name\": \"f\"}"],
    "llama": ["", "No call.", '{"name": "f", "parameters": {"a": 1}} {"name": "g"}', '{"name": "f"} and so on', '{"name": ""}', '{"parameters": {}}'],
    "python": [
        "[f()]", "[f(a=1,)]", "[ f ( a = 'x' 'y' ) , ]", "[f(a=(1, 2), b=(3), c=(4,))]", "[f(a='''l\n\"o\"'''), g(b='\\x41\\u00e9\\U0001f999\\101\\q')]",
        "[f(a=1_000, b=+2, c=.5, d=1e3)]", "[f(1)]", "[f(a=b)]", "[f(a=1", "[f(a=1) g()]", "[f(a='x)]", "[f(a=1, a=2)]", "[f(**{'a': 1})]",
        "[f(a=1)] done", "[f(a={'k': 1, 'l': [2, None]})]", "[f(a=-1)]", "[f(a=open('x'))]",
    ],
}


def main():
    draw = random.Random(0)
    document = {}
    for name, (write, read) in FORMATS.items():
        texts = list(BY_HAND[name])
        for number in range(200):
            text = write(drawn(draw))
            for _ in range(0 if number % 2 else draw.choice([1, 1, 2])):
                at = draw.randrange(len(text) + 1)
                text = text[:at] + draw.choice(BROKEN) + text[at + draw.randrange(3) :]
            texts.append(text)
        cases = []
        for text in texts:
            # What does not begin like a call has none in ours, and is an error or a plain list in Python's.
            if name == "python" and not text.startswith(tuple(f"[{n}(" for n in [*NAMES, "g"]) + ("[ f (",)):
                continue
            if name == "llama" and text and not text.startswith("{") and text != "No call.":
                continue
            try:
                calls = read(text)
            except (ValueError, SyntaxError, RecursionError):
                calls = None
            cases.append({"text": text, "calls": calls})
        document[name] = cases
        print(name, len(cases), "cases,", sum(case["calls"] is None for case in cases), "malformed")
    pathlib.Path(__file__).with_name("calls.json").write_text(json.dumps(document, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


main()
