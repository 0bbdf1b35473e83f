"""Conversations with calls of tools as ids, by `transformers`' `apply_chat_template(messages, tools=..)`.

    python3 make.py     writes grown.json (templates of ours with the small tokenizer of ../hub) and, where TURNWISE_DATA is
                        set, hashes.json (templates of hub models, whose text is not kept here, with Qwen2.5's tokenizer)

`replies` are the texts of the model's turns as the template writes them: a test samples these and lets the conversation grow.
Made with transformers 5.23.0 and Jinja2 3.1.6.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerFast

here = Path(__file__).parent
sys.path.insert(0, str(here.parent / "chat"))
from cases import TOOLS, said  # noqa: E402

QUESTION = said("user", "Where is the mug?")
# The names that Llama's tokens have in the small tokenizer's place.
LLAMA = {"<|im_start|>": "<|start_header_id|>", "<think>": "<|end_header_id|>", "<|im_end|>": "<|eot_id|>", "<|endoftext|>": "<|begin_of_text|>"}


def called(number, name, **arguments):
    return {"type": "function", "id": f"call_{number}", "function": {"name": name, "arguments": arguments}}


def result(number, name, content):
    return said("tool", content, name=name, tool_call_id=f"call_{number}")


def calls(content, *made):
    return said("assistant", content, tool_calls=list(made))


CONVERSATIONS = {
    "one call": [QUESTION, calls("", called(0, "search", words="mug \"blue\"", most=1.5)), result(0, "search", "[]")],
    "several calls": [
        QUESTION,
        calls("", called(0, "search", words="mug")),
        result(0, "search", "<shelf 1>\nempty"),
        calls("", called(1, "search", words="é 🦙</x>", most=None)),
        result(1, "search", ""),
        calls("", called(2, "stop")),
        result(2, "stop", "{\"done\": true}"),
    ],
    "parallel calls": [
        QUESTION,
        calls("", called(0, "search", words="mug"), called("0_1", "stop")),
        result(0, "search", "one"),
        result("0_1", "stop", "two"),
        calls("Again.", called(1, "stop"), called("1_1", "stop"), called("1_2", "search", words="x")),
        result(1, "stop", "a"),
        result("1_1", "stop", "b"),
        result("1_2", "search", "c"),
    ],
    "thoughts between": [
        QUESTION,
        calls("<think>\nIt may be on the shelf.\n\nOr not.\n</think>\n\n", called(0, "search", words="shelf")),
        result(0, "search", "nothing"),
        calls("<think>\nThen the fridge.\n</think>\n\nI look again.", called(1, "search", words="fridge"), called("1_1", "stop")),
        result(1, "search", "a mug"),
        result("1_1", "stop", "ok"),
        calls("<think>\nDone.\n</think>\n\n", called(2, "stop")),
        result(2, "stop", "ok"),
    ],
    "words between": [
        QUESTION,
        calls("", called(0, "search", words="mug")),
        result(0, "search", "shelf 1"),
        said("assistant", "On the shelf."),
        said("user", "And the pan? "),
        calls("", called(2, "search", words="pan")),
        result(2, "search", "fridge 1"),
        said("user", "Be quick."),
        calls("", called(3, "stop")),
        result(3, "stop", "ok"),
    ],
    "system": [said("system", "Be brief."), QUESTION, calls("", called(0, "stop")), result(0, "stop", "no")],
}


def recorded(tokenizer, template, close):
    """The cases that the template renders: replies and ids."""
    cases = {}
    for name, messages in CONVERSATIONS.items():
        def render(count, tokenize=False):
            rendered = tokenizer.apply_chat_template(
                messages[:count], tools=TOOLS, chat_template=template, add_generation_prompt=True, tokenize=tokenize
            )
            return rendered["input_ids"] if tokenize else rendered

        try:
            whole = render(len(messages))
        except Exception as error:
            cases[name] = None
            print("refused:", name, error)
            continue
        replies = []
        for count, message in enumerate(messages):
            if message["role"] == "assistant":
                before = render(count)
                assert whole.startswith(before), name
                replies.append(whole[len(before) : whole.index(close, len(before))])
        ids = render(len(messages), tokenize=True)
        assert ids == tokenizer(whole, add_special_tokens=False)["input_ids"], name
        cases[name] = {"replies": replies, "ids": ids}
    return cases


def small(folder, names):
    """The small tokenizer, its tokens renamed."""
    for path in (here.parent / "hub/whole").iterdir():
        text = path.read_text(encoding="utf-8")
        for old, new in names.items():
            text = text.replace(old, new)
        (Path(folder) / path.name).write_text(text, encoding="utf-8")
    return AutoTokenizer.from_pretrained(folder)


def main():
    ours = {}
    with tempfile.TemporaryDirectory() as folder:
        hermes = (here / "hermes.jinja").read_text(encoding="utf-8")
        ours["hermes"] = recorded(small(folder, {}), hermes, "<|im_end|>")
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = small(folder, LLAMA)
        tokenizer.bos_token = "<|begin_of_text|>"
        llama = os.environ.get("LLAMA_TEMPLATE", here / "llama.jinja")
        ours["llama"] = recorded(tokenizer, Path(llama).read_text(encoding="utf-8"), "<|eot_id|>")
    conversations = {name: [json.dumps(message, ensure_ascii=False) for message in messages] for name, messages in CONVERSATIONS.items()}
    tools = [json.dumps(tool, ensure_ascii=False) for tool in TOOLS]
    document = {"tools": tools, "conversations": conversations, "templates": ours}
    (here / "grown.json").write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    data = os.environ.get("TURNWISE_DATA")
    if data:
        folder = Path(data) / "tokenizers"
        with tempfile.TemporaryDirectory() as unpacked:
            os.system(f"zstd -q -d --long=27 {folder}/qwen2.5/tokenizer.reconstructed.json.zst -o {unpacked}/tokenizer.json")
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{unpacked}/tokenizer.json")
        def hashed(case):
            if case is None:
                return None
            digest = hashlib.sha256(",".join(map(str, case["ids"])).encode()).hexdigest()[:16]
            return {"replies": case["replies"], "count": len(case["ids"]), "hash": digest}

        hashes = {}
        # QwQ's template opens a thought before each reply and shows none of an earlier one: what grows differs from it.
        for name in ["Qwen-Qwen2.5-7B-Instruct.jinja", "Qwen-Qwen3-0.6B.jinja"]:
            path = folder / "chat_templates" / name
            cases = recorded(tokenizer, path.read_text(encoding="utf-8"), "<|im_end|>")
            hashes[path.name] = {name: hashed(case) for name, case in cases.items()}
        (here / "hashes.json").write_text(json.dumps(hashes, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


main()
