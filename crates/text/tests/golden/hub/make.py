"""A small model folder as the hub has them, in parts and whole, and what `transformers` reads in it.

Made with tokenizers 0.23.3 and transformers 5.23.0:

    python3 make.py
"""

import json
import shutil
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer

here = Path(__file__).parent
parts, whole = here / "parts", here / "whole"
for folder in (parts, whole):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()

corpus = [
    "You are in the middle of a room. You see a shelf 1, a shelf 2 and a fridge 1.",
    "You open the fridge. It's cold, isn't it? We'll take the mug 12 and put it on the shelf.",
    "The user asks, the assistant answers; the system only says how.\n\n\tThen they think again.\n",
    "Prix: 3,50 € für zwei Äpfel. Ça coûte déjà 1.234,56 naïvement.",
] * 8
pieces = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
tokenizer = Tokenizer(models.BPE())
tokenizer.normalizer = normalizers.NFC()
tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [pre_tokenizers.Split(pieces, behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
)
tokenizer.decoder = decoders.ByteLevel()
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False))
tokenizer.model.save(str(parts))
first = tokenizer.get_vocab_size()

special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
plain = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
added = {
    str(first + place): {
        "content": content,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": content in special,
    }
    for place, content in enumerate(special + plain)
}
settings = {
    "add_prefix_space": False,
    "added_tokens_decoder": added,
    "bos_token": None,
    "chat_template": (here.parent / "chat/templates/chatml.jinja").read_text(encoding="utf-8"),
    "eos_token": "<|im_end|>",
    "model_max_length": 4096,
    "pad_token": "<|endoftext|>",
    "tokenizer_class": "Qwen2Tokenizer",
    "unk_token": None,
}
(parts / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
generation = {"eos_token_id": [first + 2, first], "pad_token_id": first}
(parts / "generation_config.json").write_text(json.dumps(generation) + "\n", encoding="utf-8")

read = AutoTokenizer.from_pretrained(parts)
read.save_pretrained(whole)
(whole / "generation_config.json").write_text(json.dumps(generation) + "\n", encoding="utf-8")

texts = [
    "",
    " ",
    "\n\n\t \n",
    "You see a shelf 12, and it's WE'LL known.",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "<think>\nopen\n</think>\n\n<tool_call>{\"a\": 1}</tool_call> <|endoftext|><|im_end",
    "Zwei A\u0308pfel und \u212b: composed by NFC",
    "🦙 日本語 \u0000 \u200b mixed\r\nline",
    "   leading and trailing   ",
    "x" * 40 + "1234567890",
]
ids = [read(text, add_special_tokens=False)["input_ids"] for text in texts]
again = AutoTokenizer.from_pretrained(whole)
assert [again(text, add_special_tokens=False)["input_ids"] for text in texts] == ids
(here / "ids.json").write_text(
    json.dumps([{"text": text, "ids": own} for text, own in zip(texts, ids, strict=True)], indent=0) + "\n", encoding="utf-8"
)

# A conversation of several turns, as ids of the whole.
talk = [
    {"role": "user", "content": "You see a shelf 1."},
    {"role": "assistant", "content": "open the fridge"},
    {"role": "user", "content": "It's cold.\n\nAgain?"},
    {"role": "assistant", "content": "<think>\nthe shelf\n</think>\n\ntake the mug"},
    {"role": "user", "content": ""},
]
conversations = []
for length in (1, 3, 5):
    text = again.apply_chat_template(talk[:length], tokenize=False, add_generation_prompt=True)
    conversations.append({"messages": talk[:length], "ids": again(text, add_special_tokens=False)["input_ids"]})
(here / "conversations.json").write_text(json.dumps(conversations) + "\n", encoding="utf-8")
