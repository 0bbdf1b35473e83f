"""BM25 search as one would write it in Python, beside `turnwise env search`, on the 1,000 official products.

The peer is dictionaries of postings and a heap, standard library only. It is given the recorded terms of documents and
queries, so its time has no analysis of text; Turnwise's time has it, and the writing of the answers as JSON. Pyserini,
which the original calls, is not measured here: it needs a JVM and Anserini's jar. The two sides must list the same
products.

Run: TURNWISE_DATA=... python3 benches/peer/webshop_search.py [target/release/turnwise]
Needs the `zstd` program.
"""

import heapq
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict

LIMIT, REPEATS = 50, 200
DATA = os.path.join(os.environ["TURNWISE_DATA"], "webshop")
TURNWISE = sys.argv[1] if len(sys.argv) > 1 else "target/release/turnwise"


def lines(name):
    text = subprocess.run(["zstd", "-dc", os.path.join(DATA, name)], check=True, capture_output=True).stdout
    return [json.loads(line) for line in text.splitlines()]


def decoded_length(length):
    """The length that Lucene's one-byte norm keeps: exact to 40, then five bits."""
    rest = length - 24
    if rest < 16:
        return length
    shift = rest.bit_length() - 4
    return 24 + (rest >> shift << shift)


documents = lines("lucene_doc_tokens.jsonl.zst")
queries = [query for query in lines("bm25_reference.jsonl.zst") if 3 <= len(query["query"].split()) <= 8]
postings = defaultdict(list)
average = sum(len(document["tokens"]) for document in documents) / len(documents)
norms = []
for number, document in enumerate(documents):
    norms.append(0.9 * (0.6 + 0.4 * decoded_length(len(document["tokens"])) / average))
    for term, count in Counter(document["tokens"]).items():
        postings[term].append((number, count))


def search(terms):
    scores = defaultdict(float)
    for term, times in Counter(terms).items():
        found = postings.get(term, ())
        if not found:
            continue
        weight = times * math.log(1 + (len(documents) - len(found) + 0.5) / (len(found) + 0.5))
        for number, count in found:
            scores[number] += weight * count / (count + norms[number])
    return heapq.nsmallest(LIMIT, scores.items(), key=lambda item: (-item[1], documents[item[0]]["id"]))


start = time.perf_counter()
for _ in range(max(REPEATS // 20, 1)):
    answers = [search(query["tokens"]) for query in queries]
python = len(queries) * max(REPEATS // 20, 1) / (time.perf_counter() - start)

with tempfile.TemporaryDirectory() as folder:
    asked, dump = os.path.join(folder, "queries.jsonl"), os.path.join(folder, "answers.jsonl")
    with open(asked, "w") as file:
        for _ in range(REPEATS):
            file.writelines(json.dumps({"query": query["query"]}) + "\n" for query in queries)
    output = subprocess.run(
        [TURNWISE, "env", "search", "webshop", "--queries", asked, "--output", dump, "--data", DATA, "-k", str(LIMIT)],
        check=True, capture_output=True, text=True).stdout
    with open(dump) as file:
        found = [json.loads(line) for line in file][: len(queries)]
count, seconds = re.match(r"(\d+) queries in ([\d.]+) s", output).groups()
turnwise = int(count) / float(seconds)

same = sum(
    [documents[number]["id"] for number, _ in answer] == [hit[0] for hit in other["hits"]]
    for answer, other in zip(answers, found)
)
print(f"{len(queries)} recorded queries of 3 to 8 words, top {LIMIT}, one thread")
print(f"Python   {python:10.0f} queries/s")
print(f"Turnwise {turnwise:10.0f} queries/s   {turnwise / python:.1f} times as many")
print(f"{same} of {len(queries)} rankings are the same (near ties may differ: Python adds in double precision)")
