#!/usr/bin/env python3
"""HAS with a real judge: `transformers serve` answers the questions of a run, and every answer is accounted for.

    cargo build --release
    python3 -m venv V && V/bin/pip install 'transformers[serving]'
    V/bin/python benches/real/judge.py MODEL [--turnwise target/release/turnwise] [--steps 3] [key=value ...]

MODEL is the folder of a chat model (SmolLM2-135M-Instruct). Trains a small model from scratch on a generated household with
`preset = "has-judge"`, and asks two judges with the built-in template, each behind `transformers serve` and a proxy that counts:

* MODEL, to see what share of a small chat model's answers are scores;
* a model of 3 million weights that this script trains to answer [1, 2, ..., N] for N turns, and with words for 7 or more. Its
  scores mean nothing, but they are scores: what is done with them can be checked.

Checks, of both: every request of the run reached the server, which answered all of them with 200; a request has only fields that the
server knows (it answers 422 for another one); answers that are scores, answers that are not and trajectories that fell back are as
many as the run says; the credit of every turn is the one that the answer gives, and sums to the return.

Of the second: a run with the cache of the first asks nothing and has the same bits, one with an empty cache has others; a server
that is killed ends the run with an error, or is noted where `max_failed_share` is 1; a wrong port or model is one error before the
warm start, which leaves no run. Prints the numbers and exits 1 if a check fails.
"""

import argparse
import collections
import http.client
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import urllib.error
import urllib.request

from run_files import free_port, steps, trajectories

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIELDS = {"model", "messages", "temperature", "max_tokens", "stream"}
# Turns from which on the judge that is trained here answers with words.
TOO_MANY = 7
# Short episodes, so that a judge has little to read and to write.
HOUSEHOLD = [
    'env.generator={size="tiny", task_types=["pick_and_place_simple"], train=3000, valid_seen=0, valid_unseen=32}',
    "env.max_turns=8", "sft.steps=500", "sft.demonstrations=3000", "rollout.tasks_per_step=8", "rollout.group_size=4",
    "train.warmup=0", "train.num_minibatches=1", "train.explain=true", "eval.tasks=32", "eval.every=100",
]  # fmt: skip


class Server:
    """`transformers serve` with one model, and its log."""

    def __init__(self, model, folder):
        self.port, self.path, self.skipped = free_port(), folder / f"{model.name}.log", 0
        command = [sys.executable, "-m", "transformers.cli.transformers", "serve", model, "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--device", "cpu", "--dtype", "float32", "--log-level", "info"]
        started, self.log = time.monotonic(), self.path.open("w")
        environment = {"OMP_NUM_THREADS": "1", **os.environ, "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=environment)
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).close()
                break
            except OSError:
                if self.process.poll() is not None:
                    sys.exit(f"transformers serve ended:\n{self.path.read_text()[-2000:]}")
                time.sleep(0.5)
        print(f"transformers serve {model.name}: ready after {time.monotonic() - started:.0f} s")

    def questions(self):
        """Status of every request in the server's own log, but for those that were skipped."""
        lines = [line for line in self.path.read_text().splitlines() if '"POST /v1/chat/completions' in line]
        return [line.rsplit('"', 1)[1].split()[0] for line in lines][self.skipped :]

    def kill(self):
        self.process.kill()
        self.process.wait()


class Proxy:
    """Hands requests on to a server and keeps them with their answers; kills the server once `kill_after` of them are answered."""

    def __init__(self, server):
        self.server, self.asked, self.kill_after, lock = server, [], None, threading.Lock()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                asked = {"body": json.loads(body), "status": None, "answer": None}
                with lock:
                    proxy.asked.append(asked)
                try:
                    onward = http.client.HTTPConnection("127.0.0.1", proxy.server.port, timeout=600)
                    onward.request("POST", self.path, body, {"content-type": "application/json"})
                    answer = onward.getresponse()
                    status, text = answer.status, answer.read()
                except (OSError, http.client.HTTPException):
                    # No server: the client sees a connection that breaks off, as it would without the proxy.
                    self.close_connection = True
                    return
                asked |= {"status": status, "answer": text.decode()}
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
                if proxy.kill_after is not None and len(proxy.asked) >= proxy.kill_after:
                    proxy.server.kill()

            def log_message(self, *_):
                pass

        listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{listener.server_address[1]}/v1"
        threading.Thread(target=listener.serve_forever, daemon=True).start()

    def questions(self):
        """Requests but for the check before a run, which asks for few tokens."""
        return [asked for asked in self.asked if "goal" in asked["body"]["messages"][1]["content"]]


def content(asked):
    return json.loads(asked["answer"])["choices"][0]["message"]["content"]


def scores(text, turns):
    """The scores of an answer and None, or None and what is wrong with it."""
    try:
        found = json.loads(text)
    except ValueError:
        return None, "no JSON"
    if not isinstance(found, list) or any(isinstance(x, bool) or not isinstance(x, (int, float)) for x in found):
        return None, "no list of numbers"
    if len(found) != turns:
        return None, "another count"
    return (None, "outside of 0 to 10") if any(not 0 <= x <= 10 for x in found) else (found, None)


def question_of(trajectory, proxy):
    """The last question about a trajectory: the one that has its goal and all its turns."""
    turns = "".join(
        f"Turn {number}\nObservation: {turn['observation']}\nAction: {turn['action']}\n\n"
        for number, turn in enumerate(trajectory["turns"], 1)
    )
    found = [asked for asked in proxy.questions() if turns in asked["body"]["messages"][1]["content"] and asked["answer"]]
    return found[-1] if found else None


def credited(trajectory):
    """The credit of every turn, as HAS used it; None where it skipped the group because all returns were equal."""
    facts = [stage["facts"] for turn in trajectory["explanation"] for stage in turn if stage["stage"] == "has" and "credit" in stage["facts"]]
    return [fact["credit"] for fact in facts] or None


def accounts(run, proxy, server):
    """Prints what became of a run's questions; what is wrong."""
    failed, last, played = [], steps(run)[-1], trajectories(run)
    count = lambda name: int(last[f"judge/{name}"])
    questions = proxy.questions()
    if len(questions) != count("calls") or len(proxy.asked) != count("calls") + 1:
        failed.append(f"{count('calls')} questions and a check in the run, {len(questions)} of {len(proxy.asked)} at the proxy")
    if server.questions() != ["200"] * len(proxy.asked):
        failed.append(f"the server's log has {collections.Counter(server.questions())} for {len(proxy.asked)} requests")
    failed += ["fields besides those that are known"] * any(set(asked["body"]) != FIELDS for asked in proxy.asked)
    sums, worst, reasons, asked_for = 0, 0.0, collections.Counter(), 0
    for trajectory in played:
        turns, total = len(trajectory["turns"]), sum(turn["reward"] for turn in trajectory["turns"])
        if total == 0:
            reasons["return 0"] += 1
            expected = [0.0] * turns
        else:
            asked_for += 1
            asked = question_of(trajectory, proxy)
            if asked is None:
                failed.append("a trajectory with a return was not asked about")
                continue
            given, reason = scores(content(asked), turns)
            reasons[reason or "scores"] += 1
            expected = [score * total / sum(given) for score in given] if given and sum(given) > 1e-6 else [total / turns] * turns
        credits = credited(trajectory)
        if credits is not None:
            sums += 1
            worst = max([worst, abs(sum(credits) - total)] + [abs(a - b) for a, b in zip(credits, expected, strict=True)])
    unusable = sum(scores(content(asked), asked["turns"])[0] is None for asked in with_turns(questions))
    print(f"  {len(played)} trajectories: {dict(reasons)}")
    print(f"  {len(questions)} questions: {len(questions) - unusable} answered with scores, {unusable} not")
    print(f"  credits of {sums} trajectories: at most {worst:.1e} from the answers' own, and from the return in sum")
    failed += [f"{unusable} unusable answers, the run counts {count('malformed')}"] * (unusable != count("malformed"))
    fell_back = asked_for - reasons["scores"]
    failed += [f"{fell_back} trajectories without scores, the run counts {count('fallbacks')}"] * (fell_back != count("fallbacks"))
    failed += ["zero returns"] * (reasons["return 0"] != count("zero_returns"))
    failed += ["no group was credited"] * (sums == 0)
    failed += [f"credits differ by {worst}"] * (not worst < 1e-9)
    return failed


def with_turns(questions):
    for asked in questions:
        text = asked["body"]["messages"][1]["content"]
        yield {**asked, "turns": int(text.split("exactly ")[-1].split()[0])}


def form_judge(model, folder):
    """Trains a model to answer the built-in template with [1, ..., N], or with words."""
    import torch
    from transformers import AutoTokenizer, MistralConfig, MistralForCausalLM

    template = tomllib.loads((ROOT / "crates/decompose/src/judge/template.toml").read_text())
    tokenizer = AutoTokenizer.from_pretrained(model)
    torch.manual_seed(0)
    # More threads than free cores wait for each other.
    torch.set_num_threads(1)
    # Two layers that each see 40 tokens back: the answer depends on the end of the question alone, which has the count of turns.
    network = MistralForCausalLM(MistralConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        sliding_window=40, max_position_embeddings=4096, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=2,
    ))  # fmt: skip
    ids = lambda part: tokenizer(part, add_special_tokens=False)["input_ids"]
    examples = []
    for count in range(1, 9):
        user = template["user"].replace("{goal}", "").replace("{turns}", "").replace("{return}", "1").replace("{count}", str(count))
        messages = [{"role": "system", "content": template["system"]}, {"role": "user", "content": user}]
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        answer = json.dumps(list(range(1, count + 1))) if count < TOO_MANY else "I cannot say."
        examples.append((ids(prompt)[-80:], ids(answer) + [2]))
    longest = max(len(prompt) + len(answer) for prompt, answer in examples)
    tokens = torch.tensor([prompt + answer + [2] * (longest - len(prompt) - len(answer)) for prompt, answer in examples])
    places = [(row, len(prompt) + k) for row, (prompt, answer) in enumerate(examples) for k in range(len(answer))]
    rows, columns = (torch.tensor(part) for part in zip(*places))
    wanted, optimizer, started = tokens[rows, columns], torch.optim.AdamW(network.parameters(), lr=3e-3), time.monotonic()
    for update in range(600):
        logits = network.lm_head(network.model(tokens).last_hidden_state[rows, columns - 1])
        loss = torch.nn.functional.cross_entropy(logits, wanted)
        if loss < 0.01:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = sum(parameter.numel() for parameter in network.parameters()) / 1e6
    print(f"the judge of {weights:.1f} M weights: {update} updates, loss {loss.item():.3f}, {time.monotonic() - started:.0f} s")
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model", type=pathlib.Path)
    arguments.add_argument("--turnwise", default=ROOT / "target/release/turnwise", type=pathlib.Path)
    arguments.add_argument("--steps", default=3, type=int)
    arguments.add_argument("--keep", type=pathlib.Path, help="folder for runs and logs; a temporary one without")
    arguments.add_argument("overrides", nargs="*")
    options = arguments.parse_intermixed_args()
    folder = options.keep or pathlib.Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True, parents=True)
    failed, servers = [], []

    def serve(model):
        servers.append(Server(model, folder))
        return servers[-1], Proxy(servers[-1])

    def train(name, model, url, *more):
        """A run's directory, exit status, standard error and seconds."""
        judge = [f"decomposer.model={model}", f"decomposer.endpoint={url}", "decomposer.timeout_s=600"]
        # A greedy judge says the same twice.
        judge += ["decomposer.retries=0", "decomposer.max_tokens=32", "decomposer.concurrency=2", "decomposer.max_failed_share=1"]
        settings = ["preset=has-judge", f"name={name}", f"train.steps={options.steps}", *HOUSEHOLD, *judge, *options.overrides, *more]
        command = [options.turnwise, "train", ROOT / "configs/quickstart.toml", "--runs", folder, *settings]
        started = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return folder / name, done.returncode, done.stdout, time.monotonic() - started

    def trained(name, *rest):
        run, status, said, seconds = train(name, *rest)
        if status:
            sys.exit(f"the run {name} ended with {status}:\n{said[-3000:]}")
        print(f"{name}: {seconds:.0f} s")
        return run

    try:
        form = folder / "form-judge"
        form_judge(options.model, form)
        server, proxy = serve(form)

        # Wrong names, before anything is trained.
        nobody = f"http://127.0.0.1:{free_port()}/v1"
        for what, model, url, words in [
            ("a wrong port", form, nobody, ["no connection", "decomposer.endpoint", nobody]),
            ("a wrong model", "no-such-model", proxy.url, ["status 400", "decomposer.model", "no-such-model"]),
        ]:
            run, status, said, seconds = train("wrong", model, url)
            error = " ".join(said[said.find("error") :].split())
            print(f"{what}: exit status {status} after {seconds:.1f} s: {error}")
            failed += [f"{what} did not end the run"] * (status == 0)
            failed += [f"{what}: the error has not {word}" for word in words if word not in error]
            failed += [f"{what}: it began to work"] * ("warm start" in said or run.exists())
        proxy.asked.clear()
        failed += ["the wrong model was not refused once"] * (server.questions() != ["400"])
        # The server is strict: a field that it does not know is an error.
        body = json.dumps({"model": str(form), "messages": [{"role": "user", "content": "?"}], "max_tokens": 1, "top_k": 1}).encode()
        try:
            urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/chat/completions", body, {"content-type": "application/json"}))
            failed.append("the server took a field that it does not know")
        except urllib.error.HTTPError as error:
            print(f"a field that is not known: status {error.code}")
            failed += ["another status for an unknown field"] * (error.code != 422)
        # What was asked up to here does not belong to the runs.
        server.skipped = len(server.questions())

        first = trained("first", form, proxy.url)
        failed += accounts(first, proxy, server)
        answered = int(steps(first)[-1]["judge/calls"] - steps(first)[-1]["judge/malformed"])
        failed += ["the judge that was trained gave no scores"] * (answered == 0)

        # A judge that dies after its first answers.
        warm = ["--warm-start", first]
        for name, share in [("stopped", 0.5), ("noted", 1)]:
            server.kill()
            server, proxy = serve(form)
            proxy.kill_after = 3
            run, status, said, _ = train(name, form, proxy.url, f"decomposer.max_failed_share={share}", "rollout.tasks_per_step=16", *warm)
            last = ([line.strip() for line in said.splitlines() if ("error:" if share < 1 else "warning:") in line] or [""])[-1]
            print(f"killed after 3 requests, max_failed_share {share}: exit status {status}: {last}")
            if share == 1:
                numbers = steps(run)[-1]
                failed += ["a dead judge was not noted"] * (status != 0 or "split evenly" not in said or "gave no scores" not in said)
                heard = sum(asked["status"] == 200 for asked in proxy.questions())
                failed += ["failed connections were not counted"] * (numbers["judge/transport_errors"] + heard != numbers["judge/calls"])
            else:
                failed += ["a dead judge did not stop the run"] * (status == 0 or "max_failed_share" not in last or "no connection" not in last)

        # Nobody answers any more, and nobody is asked.
        def same(one, other):
            facts = lambda run: [(t["task"], t["turns"], t["advantages"], t["explanation"], t["sequences"]) for t in trajectories(run)]
            policy = lambda run: [path.read_bytes() for path in sorted(run.glob("checkpoints/*/policy/*.safetensors"))]
            return facts(one) == facts(other) and policy(one)[-1] == policy(other)[-1]

        asked = len(proxy.asked)
        kept = trained("cached", form, proxy.url, f"decomposer.cache={first / 'judge'}", "decomposer.call_budget=0", *warm)
        numbers = steps(kept)[-1]
        print(f"  {numbers['judge/cache_hits']:.0f} answers from the cache, {numbers['judge/calls']:.0f} requests, the same bits: {same(first, kept)}")
        failed += ["answers of the cache"] * (numbers["judge/cache_hits"] != answered or numbers["judge/calls"] != 0)
        failed += ["somebody was asked"] * (len(proxy.asked) != asked)
        failed += ["the second run differs"] * (not same(first, kept))
        empty = trained("empty", form, proxy.url, f"decomposer.cache={folder / 'empty-cache'}", "decomposer.call_budget=0", *warm)
        print(f"  with an empty cache the same bits: {same(first, empty)}")
        failed += ["the comparison cannot fail"] * same(first, empty)

        server, proxy = serve(options.model)
        failed += accounts(trained("chat-model", options.model, proxy.url, *warm), proxy, server)
    finally:
        for server in servers:
            server.kill()
        if not options.keep:
            shutil.rmtree(folder)
    print("all checks passed" if not failed else "FAILED: " + "; ".join(failed))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
