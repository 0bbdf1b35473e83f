#!/usr/bin/env python3
"""The servers and programs of `kills_scenes.py`: `kills_servers.py KIND [PORT]`, with the standard library only.

| kind | what it is |
|---|---|
| `agent` | an agent that asks the endpoint twice per episode, for `env.kind = "agent"` |
| `mcp` | an MCP server, over HTTP at PORT or else over stdin and stdout |
| `openenv` | an OpenEnv server at PORT |
| `tasks` | writes `train.jsonl` and `test.jsonl` with tasks for all three |
| `template` | adds a chat template to the model in the folder `model` |

An environment asks for one of four words, and the reward depends only on the words that were said. So a run's numbers do not depend on
timing. The MCP program does not end when its stdin is closed: only a kill ends it.
"""

import base64
import hashlib
import json
import os
import pathlib
import socketserver
import struct
import sys
import time
import urllib.request
import uuid
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = ["red", "blue", "black", "white"]
TEMPLATE = "{% for m in messages %}{{ m.content }}~\n{% endfor %}{% if add_generation_prompt %}>{% endif %}"


def reward(text, word):
    """Returns 1 for the word, and else a number that depends on the text, so that groups have different rewards."""
    return 1.0 if text.strip() == word else zlib.crc32(text.encode()) % 8 / 16


def write_tasks():
    for split, count in {"train": 48, "test": 8}.items():
        with open(f"{split}.jsonl", "w") as out:
            for number in range(count):
                word = WORDS[zlib.crc32(f"{split} {number}".encode()) % len(WORDS)]
                line = {"id": f"{split}/{number}", "seed": number, "kind": "word", "goal": f"say {word}", "word": word}
                # Tasks with the same text would be the same task, and those of training and tests must differ.
                line["goal"] += f", {split} task {number}"
                out.write(json.dumps(line) + "\n")


def write_mcp_tasks():
    for split in ("train", "test"):
        with open(f"mcp-{split}.jsonl", "w") as out:
            for line in map(json.loads, open(f"{split}.jsonl")):
                said = json.dumps({"word": line["word"]}, separators=(",", ":"))
                task = {"id": line["id"], "instruction": line["goal"]}
                task["verify"] = {"tool": "judge", "arguments": {"word": line["word"]}}
                task["demonstration"] = [f"say({said})", 'answer({"answer":""})']
                out.write(json.dumps(task) + "\n")


def write_openenv_tasks():
    for split in ("train", "test"):
        with open(f"openenv-{split}.jsonl", "w") as out:
            for line in map(json.loads, open(f"{split}.jsonl")):
                task = {"id": line["id"], "seed": line["seed"], "goal": line["goal"], "reset": {"word": line["word"]}}
                out.write(json.dumps(task | {"demonstration": [line["word"]]}) + "\n")


def agent():
    for episode in map(json.loads, sys.stdin):
        word = episode["task"]["word"]
        messages, said = [{"role": "user", "content": f"say {word}"}], []
        try:
            for _ in range(2):
                body = json.dumps({"model": "policy", "messages": messages, "max_tokens": 4}).encode()
                headers = {"content-type": "application/json", "authorization": f"Bearer {episode['api_key']}"}
                request = urllib.request.Request(episode["base_url"] + "/chat/completions", body, headers)
                message = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
                said.append(message["content"] or "")
                messages += [message, {"role": "user", "content": "again"}]
        except OSError as error:
            print(json.dumps({"error": str(error)}), flush=True)
            continue
        print(json.dumps({"reward": sum(reward(text, word) for text in said) / 2}), flush=True)


class Words:
    """Answers MCP requests; a session keeps the word that was said last."""

    def __init__(self):
        self.said = {}

    def answer(self, message, session):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "initialize":
            return {
                "protocolVersion": parameters["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "words", "version": "1"},
            }
        if method == "tools/list":
            word = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
            return {"tools": [{"name": name, "inputSchema": word} for name in ("say", "judge")]}
        word = parameters["arguments"]["word"]
        if parameters["name"] == "say":
            self.said[session] = word
            return {"content": [{"type": "text", "text": "said"}], "isError": False}
        number = reward(self.said.get(session, ""), word)
        return {"content": [], "structuredContent": {"result": number}, "isError": False}


def mcp_program():
    words = Words()
    for message in map(json.loads, sys.stdin):
        if "id" in message:
            result = words.answer(message, None)
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    while True:
        time.sleep(1)


def mcp_server(port):
    words = Words()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def reply(self, status, body=b"", **headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.reply(405)

        def do_DELETE(self):
            words.said.pop(self.headers["mcp-session-id"], None)
            self.reply(200)

        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            session, more = self.headers["mcp-session-id"], {}
            if "id" not in message:
                return self.reply(202)
            if message["method"] == "initialize":
                more["mcp_session_id"] = session = uuid.uuid4().hex
                words.said[session] = ""
            elif session not in words.said:
                return self.reply(404)
            body = {"jsonrpc": "2.0", "id": message["id"], "result": words.answer(message, session)}
            self.reply(200, json.dumps(body).encode(), content_type="application/json", **more)

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


class OpenEnv(socketserver.StreamRequestHandler):
    """One connection: a request for the schema, or an episode over a WebSocket."""

    SCHEMA = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}

    def handle(self):
        try:
            self.serve()
        except (OSError, EOFError):
            pass

    def serve(self):
        _, path, _ = (self.rfile.readline() or self.read(1)).split(maxsplit=2)
        headers = {}
        while line := self.rfile.readline().strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        if path == b"/ws":
            key = headers["sec-websocket-key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            accept = base64.b64encode(hashlib.sha1(key).digest())
            self.wfile.write(
                b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
                b"sec-websocket-accept: " + accept + b"\r\n\r\n"
            )
            return self.play()
        body = {"action": self.SCHEMA, "observation": {}, "state": {}} if path == b"/schema" else {"name": "words"}
        body = json.dumps(body | {"description": "say the word"}).encode()
        self.wfile.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )

    def read(self, count):
        data = self.rfile.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def messages(self):
        """Yields the client's texts; a client sends each in one frame, masked."""
        while True:
            first, second = self.read(2)
            length = second & 127
            if length >= 126:
                length = int.from_bytes(self.read(2 if length == 126 else 8), "big")
            mask, data = self.read(4), self.read(length)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
            if first & 15 == 8:
                return
            if first & 15 == 1:
                yield json.loads(data)

    def send(self, text, given, done):
        seen = {"observation": {"text": text, "words": WORDS}, "reward": given, "done": done}
        data = json.dumps({"type": "observation", "data": seen}).encode()
        self.wfile.write(b"\x81" + (bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack(">H", len(data))) + data)

    def play(self):
        word, turns = "", 0
        for message in self.messages():
            if message["type"] == "reset":
                word, turns = message["data"]["word"], 0
                self.send(f"say {word}", None, False)
            elif message["type"] == "step":
                turns += 1
                given = reward(message["data"]["message"], word)
                self.send(f"say {word}", given, given == 1.0 or turns == 2)
            else:
                return


def openenv(port):
    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address, daemon_threads = True, True

    Server(("127.0.0.1", port), OpenEnv).serve_forever()


def template():
    path = pathlib.Path("model/tokenizer_config.json")
    path.write_text(json.dumps({"chat_template": TEMPLATE, "model_max_length": 512}))
    # A message ends with a sign that no text has, as a special token.
    tokenizer, config = pathlib.Path("model/tokenizer.json"), pathlib.Path("model/generation_config.json")
    content = json.loads(tokenizer.read_text())
    end = {"id": content["model"]["vocab"]["~"], "content": "~", "special": True}
    end |= {key: False for key in ("single_word", "lstrip", "rstrip", "normalized")}
    tokenizer.write_text(json.dumps(content | {"added_tokens": [*content["added_tokens"], end]}))
    config.write_text(json.dumps(json.loads(config.read_text()) | {"eos_token_id": end["id"]}))


def main():
    kind, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None
    if kind == "tasks":
        write_tasks()
        write_mcp_tasks()
        write_openenv_tasks()
    elif kind == "mcp":
        mcp_server(port) if port else mcp_program()
    else:
        {"agent": agent, "template": template, "openenv": lambda: openenv(port)}[kind]()


main()
