#!/usr/bin/env python3
"""Search-R1's retrieval protocol between Turnwise and programs in Python that speak it as the original does.

    python benches/real/search_r1_protocol.py [--turnwise target/release/turnwise]

Needs requests, fastapi and uvicorn. Makes a small collection and checks:

1. clients against `turnwise index serve`: one that posts as Search-R1's generation loop does (`queries`, `topk`,
   `return_scores`), one as verl-agent's and SkyRL's (`query`), on new and on kept connections, many at once;
2. a FastAPI server with the original's request model and answer against Turnwise's client (`turnwise index query --server`):
   a dense one (documents with `id`) and a lexical one (`title`, `text`, `contents`, no `id`), with and without a first failure;
3. what both sides say to requests that are none.

Exits 1 if anything differs, and prints every check.
"""

import argparse
import concurrent.futures
import json
import math
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import requests
from run_files import free_port
import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

PASSAGES = [
    {"id": str(number), "contents": f'"{title}"\n{text}'}
    for number, (title, text) in enumerate(
        [
            ("Kettle", "A kettle is a vessel of steel that boils water."),
            ("Shoe", "Running shoes are made for running, in blue or red."),
            ("Citibank", "Citibank was founded in 1812 as the City Bank of New York."),
            ("Uranus", "Voyager 2 was launched on a Titan IIIE and flew by Uranus, in caf\u00e9 time \u2014 1986."),
        ]
    )
]
QUERIES = ["who founded Citibank?", "blue running shoes", "caf\u00e9 Uranus", "zebra"]
failed = []


def check(name, right):
    print(f"{'ok    ' if right else 'FAILED'} {name}")
    if not right:
        failed.append(name)


class Body(BaseModel):
    """The original's request: `queries` is demanded, the rest has defaults."""

    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


def original(lexical):
    """A server with the original's answers: words shared with the query are the score."""
    app = FastAPI()
    app.failures = 0
    app.requests = []

    @app.post("/retrieve")
    def retrieve(request: Body):
        app.requests.append(request)
        if app.failures:
            app.failures -= 1
            raise HTTPException(status_code=503, detail="warming up")
        result = []
        for query in request.queries:
            words = set(query.lower().replace("?", "").split())
            scored = [(len(words & set(p["contents"].lower().replace('"', " ").split())), p) for p in PASSAGES]
            scored = sorted((s for s in scored if s[0]), key=lambda s: -s[0])[: request.topk or 3]
            items = []
            for score, passage in scored:
                document = dict(passage)
                if lexical:
                    title, text = passage["contents"].split("\n", 1)
                    document = {"title": title.strip('"'), "text": text, "contents": passage["contents"]}
                items.append({"document": document, "score": float(score)} if request.return_scores else document)
            result.append(items)
        return {"result": result}

    return app


class Served:
    def __init__(self, app):
        self.port = free_port()
        config = uvicorn.Config(app, host="127.0.0.1", port=self.port, log_level="error")
        self.server = uvicorn.Server(config)
        threading.Thread(target=self.server.run, daemon=True).start()
        while not self.server.started:
            time.sleep(0.05)

    def url(self):
        return f"http://127.0.0.1:{self.port}/retrieve"


def clients_against_ours(turnwise, folder):
    index = folder / "index"
    lines = folder / "passages.jsonl"
    lines.write_text("".join(json.dumps(passage) + "\n" for passage in PASSAGES))
    subprocess.run([turnwise, "index", "build", index, "--passages", lines], check=True, stdout=subprocess.DEVNULL)
    port = free_port()
    server = subprocess.Popen(
        [turnwise, "index", "serve", index, "--address", f"127.0.0.1:{port}"], stdout=subprocess.PIPE, text=True
    )
    server.stdout.readline()
    url = f"http://127.0.0.1:{port}/retrieve"
    asked = []
    for query in QUERIES:
        out = subprocess.run(
            [turnwise, "index", "query", index, query, "--json"], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        asked.append([json.loads(line) for line in out.splitlines()])

    # As Search-R1's generation loop does: one post, `result`, then `document` and its `contents`.
    answer = requests.post(url, json={"queries": QUERIES, "topk": 3, "return_scores": True}).json()["result"]
    found = [[(item["document"]["id"], item["document"]["contents"]) for item in hits] for hits in answer]
    expected = [[(hit["id"], hit["contents"]) for hit in hits] for hits in asked]
    # Scores are single precision, which the two write with different numbers of digits.
    pairs = [(item["score"], hit["score"]) for left, right in zip(answer, asked) for item, hit in zip(left, right)]
    check("Search-R1's client: the scores of `index query`", all(math.isclose(a, b, rel_tol=1e-6) for a, b in pairs))
    check("Search-R1's client: the passages and contents of `index query`", found == expected and len(found[0]) > 0)
    titles = [item["document"]["contents"].split("\n")[0] for item in answer[1]]
    check("Search-R1's client: the title is the first line", titles[0] == '"Shoe"')
    check("a query without any passage has an empty list", answer[3] == [])

    # As verl-agent's and SkyRL's clients do: `query`, one text in a list, on a session.
    with requests.Session() as session:
        rows = [
            session.post(url, json={"query": [query], "topk": 1, "return_scores": True}, timeout=30).json()["result"][0]
            for query in QUERIES
        ]
    first = [row[0]["document"]["id"] if row else None for row in rows]
    check("`query` on a kept connection", first == [hits[0]["id"] if hits else None for hits in asked])
    bare = requests.post(url, json={"queries": QUERIES[:1], "topk": 2}).json()["result"]
    check("without return_scores the documents are bare", bare[0][0] == PASSAGES[2])
    default = requests.post(url, json={"queries": ["steel running founded launched"]}).json()["result"]
    check("without topk there are three", len(default[0]) == 3)

    def one(number):
        query = QUERIES[number % 3]
        return requests.post(url, json={"queries": [query], "topk": 1}).json()["result"][0][0]["id"]

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        ids = list(pool.map(one, range(300)))
    check("300 requests of 32 clients", ids == [asked[number % 3][0]["id"] for number in range(300)])
    for body, status in [("{", 422), ('{"texts": []}', 422), ('{"queries": "one text"}', 200)]:
        got = requests.post(url, data=body, headers={"content-type": "application/json"}).status_code
        check(f"{body} has status {status}", got == status)
    check("an unknown path has status 404", requests.get(f"http://127.0.0.1:{port}/docs").status_code == 404)

    start = time.time()
    with requests.Session() as session:
        for number in range(2000):
            session.post(url, json={"queries": [f"who founded Citibank {number}?"], "topk": 3, "return_scores": True})
    print(f"       {2000 / (time.time() - start):.0f} requests/s of one Python client on a kept connection")
    server.send_signal(signal.SIGINT)
    check("Ctrl-C ends the server", server.wait(timeout=10) == 0)


def ours_against_originals(turnwise, folder):
    for lexical in [False, True]:
        name = "lexical" if lexical else "dense"
        app = original(lexical)
        served = Served(app)

        def ask(*more):
            command = [turnwise, "index", "query", "--server", served.url(), *more]
            return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        out = ask(QUERIES[0], "--json")
        hits = [json.loads(line) for line in out.stdout.splitlines()]
        check(f"{name} server: the passage is found", hits and hits[0]["contents"] == PASSAGES[2]["contents"])
        check(f"{name} server: the score is passed on", hits[0]["score"] == 2.0)
        same = hits[0]["id"] == "2" if not lexical else len(hits[0]["id"]) == 16
        check(f"{name} server: the passage has an identifier", same)
        sent = app.requests[-1]
        as_sent = (sent.queries, sent.topk, sent.return_scores)
        check(f"{name} server: the request is the original's", as_sent == ([QUERIES[0]], 3, True))
        queries = folder / "queries.jsonl"
        queries.write_text("".join(json.dumps({"query": query}) + "\n" for query in QUERIES))
        out = ask("--queries", str(queries), "--output", str(folder / "out.jsonl"))
        rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
        check(f"{name} server: a file of queries", [len(row["hits"]) > 0 for row in rows] == [True, True, True, False])
        app.failures = 2
        out = ask(QUERIES[1], "--json")
        first = json.loads(out.stdout.splitlines()[0])["contents"] if out.returncode == 0 else None
        check(f"{name} server: two failures are got over", first == PASSAGES[1]["contents"])
        out = ask(QUERIES[1], "--json", "--request-key", "query")
        refused = out.returncode == 2 and "422" in out.stderr
        check(f"{name} server: a key that it does not read is an error with its words", refused)
        served.server.should_exit = True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--turnwise", default="target/release/turnwise", type=pathlib.Path)
    turnwise = str(parser.parse_args().turnwise)
    with tempfile.TemporaryDirectory() as folder:
        clients_against_ours(turnwise, pathlib.Path(folder))
        ours_against_originals(turnwise, pathlib.Path(folder))
    print(f"{len(failed)} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
