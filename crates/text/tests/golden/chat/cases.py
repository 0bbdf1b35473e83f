"""Conversations, and how `transformers` renders them.

    python3 cases.py            writes rendered.json (templates of ours) and, where TURNWISE_DATA is set, hashes.json
                                (templates of hub models, whose text is not kept here)
    python3 cases.py --live     reads {"templates": [..]} from standard input, prints the texts of every case

Made with transformers 5.23.0 and Jinja2 3.1.6.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template

here = Path(__file__).parent
NAMED = {"bos_token": "<|begin|>", "eos_token": "<|im_end|>"}


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def called(name, **arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Find products; <b>\"words\"</b> & 'prices' up to 50 €",
            "parameters": {
                "type": "object",
                "properties": {
                    "words": {"type": "string", "description": "  what to look for "},
                    "most": {"type": "number", "enum": [10, 20.5, 1e20], "default": None},
                    "fresh-only": {"type": "boolean", "x-order": {"by": "date", "up": False}},
                },
                "required": ["words"],
            },
        },
    },
    {"type": "function", "function": {"name": "stop", "description": "Ends it.", "parameters": {"type": "object", "properties": {}}}},
]

QUESTION = said("user", "Where is the mug?")
ANSWER = said("assistant", "On the shelf.")
THOUGHT = said("assistant", "<think>\nIt was on the shelf.\nOr was it?\n</think>\n\nOn the shelf.")
CONVERSATIONS = {
    "question": [QUESTION],
    "system": [said("system", "  Be brief.\n"), QUESTION],
    "turns": [QUESTION, ANSWER, said("user", "And\n\nthe pan? "), said("assistant", " In the\tfridge.\n"), said("user", "é 🦙")],
    "system and turns": [said("system", "s"), QUESTION, ANSWER, QUESTION],
    "reply last": [QUESTION, ANSWER],
    "thought last": [QUESTION, THOUGHT],
    "thought before": [QUESTION, THOUGHT, said("user", "Sure?"), THOUGHT, said("user", "Really?")],
    "reasoning": [QUESTION, said("assistant", "Yes.", reasoning_content="\nhm\n"), QUESTION, said("assistant", "No.", reasoning="or")],
    "tools": [
        QUESTION,
        said("assistant", "", tool_calls=[called("search", words="mug \"blue\"", most=1.5)]),
        said("tool", "[]"),
        said("assistant", "Again.", tool_calls=[called("search", words="é</x>"), called("stop")]),
        said("tool", "one"),
        said("tool", "two"),
        said("assistant", "Found."),
    ],
    "thinking tools": [QUESTION, said("assistant", "<think>\na\n</think>\n\nb", tool_calls=[called("stop")]), said("tool", "done")],
    "response as user": [QUESTION, THOUGHT, said("user", "<tool_response>\nx\n</tool_response>"), THOUGHT],
    "empty": [said("user", "")],
    "two questions": [QUESTION, QUESTION],
    "roles": [said("skip", "x"), said("user", {"k": 1, "t": [True, None]}), said("user", None, flag=True), said("stop", 1), QUESTION],
    "no messages": [],
}
CASES = [
    {"name": f"{name}, {asked}", "messages": messages, "tools": tools, "add_generation_prompt": prompt, "enable_thinking": thinking}
    for name, messages in CONVERSATIONS.items()
    for asked, tools, prompt, thinking in [
        ("plain", None, False, None),
        ("prompt", None, True, None),
        ("tools", TOOLS, True, None),
        ("thinking on", None, True, True),
        ("thinking off", None, True, False),
    ]
]


def render(template, case):
    """The text, or None where the template refuses."""
    more = {} if case["enable_thinking"] is None else {"enable_thinking": case["enable_thinking"]}
    try:
        texts, _ = render_jinja_template(
            [case["messages"]],
            tools=case["tools"],
            chat_template=template,
            add_generation_prompt=case["add_generation_prompt"],
            **NAMED,
            **more,
        )
    except Exception:
        return None
    return texts[0]


def as_text(case):
    """The case with messages and tools as JSON texts, whose keys keep their order whoever reads them."""
    write = lambda items: None if items is None else [json.dumps(item, ensure_ascii=False) for item in items]
    return {**case, "messages": write(case["messages"]), "tools": write(case["tools"])}


if __name__ == "__main__":
    if "--live" in sys.argv:
        templates = json.load(sys.stdin)["templates"]
        cases = CASES
        if render("{{ messages[0].reasoning_content }}", {**CASES[0], "messages": [said("assistant", "", reasoning="r")]}) != "r":
            print("skipped: cases of reasoning, which this version of transformers knows by one name alone", file=sys.stderr)
            cases = [case for case in CASES if not case["name"].startswith("reasoning,")]
        texts = [[render(template, case) for case in cases] for template in templates]
        json.dump({"cases": [as_text(case) for case in cases], "texts": texts}, sys.stdout)
        sys.exit()
    ours = sorted((here / "templates").glob("*.jinja"))
    rendered = {path.name: [render(path.read_text(encoding="utf-8"), case) for case in CASES] for path in ours}
    document = {"cases": [as_text(case) for case in CASES], "texts": rendered}
    (here / "rendered.json").write_text(json.dumps(document, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    data = os.environ.get("TURNWISE_DATA")
    if data:
        folder = Path(data) / "tokenizers"
        templates = {f"chat_templates/{path.name}": path.read_text(encoding="utf-8") for path in (folder / "chat_templates").glob("*")}
        for path in [folder / "qwen2.5/tokenizer_config.json", *(folder / "qwen3").glob("*.json")]:
            settings = json.loads(path.read_text(encoding="utf-8"))
            templates[f"{path.parent.name}/{path.name}"] = settings["chat_template"]
        digest = lambda text: None if text is None else hashlib.sha256(text.encode()).hexdigest()[:16]
        hashes = {name: [digest(render(template, case)) for case in CASES] for name, template in sorted(templates.items())}
        (here / "hashes.json").write_text(json.dumps(hashes, indent=0) + "\n", encoding="utf-8")
