#!/usr/bin/env python3
"""A real sentence encoder in Turnwise and in `transformers`: the same cosines, the same rankings.

    python benches/real/sentence_encoder.py MODEL PASSAGES.jsonl [--queries QUERIES.jsonl] [--turnwise target/release/turnwise]

MODEL is a folder with a BERT (E5, all-MiniLM-L6-v2): config.json, model.safetensors, tokenizer.json. PASSAGES are JSON lines
with `id` and `contents`, QUERIES with `query` (by default the titles of the first passages). Needs torch and transformers.

Vectors are made by the model card's recipe: the mean of the last hidden states over the tokens, divided by its length, with
E5's prefixes. `turnwise index build --encoder --f32-vectors` and `index query --kind dense` must give the same scores to 1e-4
and the same order wherever scores differ by more than that. With half precision the best passage is compared.

Exits 1 where they differ, and prints the largest difference and both speeds.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
from transformers import AutoModel, AutoTokenizer

TOP = 10
TOLERANCE = 1e-4


def encode(model, tokenizer, texts, longest):
    vectors = []
    for start in range(0, len(texts), 32):
        batch = tokenizer(
            texts[start : start + 32], max_length=longest, padding=True, truncation=True, return_tensors="pt"
        )
        with torch.no_grad():
            states = model(**batch).last_hidden_state
        mask = batch["attention_mask"][..., None]
        vectors.append(torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1))
    return torch.cat(vectors)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("passages", type=pathlib.Path)
    parser.add_argument("--queries", type=pathlib.Path)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--turnwise", default="target/release/turnwise")
    arguments = parser.parse_args()
    passages = [json.loads(line) for line in arguments.passages.read_text().splitlines() if line.strip()]
    if arguments.queries:
        queries = [json.loads(line)["query"] for line in arguments.queries.read_text().splitlines() if line.strip()]
    else:
        queries = [passage["contents"].split("\n")[0].strip('"') for passage in passages[:50]]
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModel.from_pretrained(arguments.model).eval()
    start = time.time()
    longest = arguments.max_tokens
    found = encode(model, tokenizer, ["passage: " + passage["contents"] for passage in passages], longest)
    theirs = time.time() - start
    asked = encode(model, tokenizer, ["query: " + query for query in queries], longest)
    scores = asked @ found.T

    worst, wrong, other_best = 0.0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "queries.jsonl").write_text("".join(json.dumps({"query": query}) + "\n" for query in queries))
        for precision in [["--f32-vectors"], []]:
            index = folder / ("f32" if precision else "f16")
            encoder = ["--encoder", arguments.model, "--max-tokens", str(longest)]
            start = time.time()
            command = [arguments.turnwise, "index", "build", index, "--passages", arguments.passages, "--without-terms"]
            subprocess.run([*command, *encoder, *precision], check=True, stdout=subprocess.DEVNULL)
            ours = time.time() - start
            command = [arguments.turnwise, "index", "query", index, "--kind", "dense", "-k", str(TOP)]
            files = ["--queries", folder / "queries.jsonl", "--output", folder / "out.jsonl"]
            subprocess.run([*command, *encoder, *files], check=True, stdout=subprocess.DEVNULL)
            number = {passage["id"]: index for index, passage in enumerate(passages)}
            rows = [json.loads(line)["hits"] for line in (folder / "out.jsonl").read_text().splitlines()]
            for row, exact in zip(rows, scores):
                best = exact.topk(min(TOP, len(passages))).values
                if not precision:
                    other_best += exact[number[row[0]["id"]]].item() < best[0].item() - 2e-3
                    continue
                for hit, expected in zip(row, best):
                    difference = max(
                        abs(hit["score"] - expected.item()), abs(hit["score"] - exact[number[hit["id"]]].item())
                    )
                    worst = max(worst, difference)
                    wrong += difference > TOLERANCE
    print(f"{len(passages)} passages, {len(queries)} queries: largest difference of a score {worst:.1e}, {wrong} beyond {TOLERANCE}")
    print(f"half precision: {other_best} queries have a best passage that is not one of the best")
    print(f"passages/s: transformers {len(passages) / theirs:.1f}, turnwise {len(passages) / ours:.1f} (start and files included)")
    sys.exit(bool(wrong or other_best))


if __name__ == "__main__":
    main()
