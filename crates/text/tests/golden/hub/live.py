"""Ids of conversations as `transformers` gives them for a model folder.

    echo '{"folder": "..", "conversations": [[{"role": .., "content": ..}, ..], ..]}' | python3 live.py
"""

import json
import sys

from transformers import AutoTokenizer

asked = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(asked["folder"])
texts = [
    tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    for messages in asked["conversations"]
]
json.dump([tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts], sys.stdout)
