"""Encode texts.json with Python's `tokenizers` and `transformers`, reading the tokenizer.json beside it.

Made with tokenizers 0.23.3 and transformers 5.23.0:

    TURNWISE_WRITE_GOLDEN=1 cargo test -p turnwise-text --test it tokenizer_file
    python3 make.py
"""

import json
from pathlib import Path

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

here = Path(__file__).parent
texts = json.loads((here / "texts.json").read_text(encoding="utf-8"))
tokenizer = Tokenizer.from_file(str(here / "tokenizer.json"))
wrapped = PreTrainedTokenizerFast(tokenizer_file=str(here / "tokenizer.json"))
ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
for text, encoded in zip(texts, ids, strict=True):
    assert wrapped(text, add_special_tokens=False)["input_ids"] == encoded
    assert tokenizer.decode(encoded, skip_special_tokens=False) == text
(here / "ids.json").write_text("[\n" + ",\n".join(json.dumps(encoded) for encoded in ids) + "\n]\n", encoding="utf-8")
