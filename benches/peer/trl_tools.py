#!/usr/bin/env python3
"""One step of GRPO with LoRA on a multi-turn tool environment: TRL's `environment_factory` beside a Turnwise process world.

    python benches/peer/trl_tools.py MODEL --prepare OUT        # once
    python benches/peer/trl_tools.py OUT [--compute f32|bf16] [--groups 2] [--size 8] [--steps 2] [--repeats 1]

MODEL is a small chat model with ChatML's tokens, such as SmolLM2. `--prepare` gives it Qwen2.5's chat template, which takes
tools, teaches it the calls by supervised updates on episodes of an expert, and writes it to OUT. In both, an episode has pages that the model reads with
the tool `read`, one call a turn, and ends with words instead of a call or after five turns. Both sides get the same tools,
prompts and pages, sample at most 48 tokens a turn at temperature 1, and make one update of an adapter of rank 16 a step.
The reward is the parity of the last words. Both sides run all sequences through the update, whatever their advantages. The
first step of each run is not measured.

Episodes are sampled, so their lengths differ a little: the script prints turns and tokens of both sides, and the ratio for a
step and for a trained token. Needs torch, transformers, peft, trl, datasets, and `cargo build --release`.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

import grpo_trainer

HERE = os.path.dirname(os.path.abspath(__file__))
TURNS, TOKENS, PAGES = 5, 48, 8
WORDS = "river stone lamp garden window paper bridge winter market letter island forest".split()

READ = {
    "name": "read",
    "description": "Returns the text of a page.",
    "parameters": {
        "type": "object",
        "properties": {"page": {"type": "integer", "description": "The number of the page, from 1."}},
        "required": ["page"],
    },
}


def book(seed):
    """Returns the pages of a book: eight texts of 40 words and a number."""
    rng = random.Random(seed)
    return [f"{' '.join(rng.choices(WORDS, k=40))}. The number is {rng.randint(1, 9)}." for _ in range(PAGES)]


def goal(seed):
    first = first_page(seed)
    return f"Read the pages {first} to {first + 3} of book {seed}, one at a time, and answer with the sum of their numbers."


def first_page(seed):
    return random.Random(seed).randint(1, PAGES - 3)


def page(pages, number):
    return pages[number - 1] if isinstance(number, int) and 1 <= number <= len(pages) else "There is no such page."


def parity(text):
    return float(sum(map(ord, text)) % 2)


def world_side():
    """Serves the environment to Turnwise."""
    sys.path.insert(0, os.path.join(HERE, "..", "..", "examples", "python_environment"))
    from turnwise_env import serve

    class Book:
        def reset(self, *, seed=None, options=None):
            self.book = options["task"]["metadata"]["seed"]
            self.pages, self.turn = book(self.book), 0
            return goal(self.book)

        def step(self, action):
            self.turn += 1
            if isinstance(action, dict):
                return page(self.pages, action["arguments"].get("page")), 0.0, False, False, {}
            return "", parity(action), True, False, {}

    def expert(world, observation, info):
        first = first_page(world.book)
        if world.turn < 4:
            return {"name": "read", "arguments": {"page": first + world.turn}}
        read = world.pages[first - 1 : first + 3]
        return f"The sum is {sum(int(text.split()[-1][:-1]) for text in read)}."

    def tasks(seeds):
        return [{"id": str(seed), "goal": goal(seed), "metadata": {"seed": seed}} for seed in seeds]

    serve(Book, tasks={"train": tasks(range(200)), "test": tasks(range(200, 204))}, tools=[READ], expert=expert)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--compute", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2, help="measured steps of a run")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each side")
    parser.add_argument("--micro", type=int, default=4, help="sequences of a micro-batch in TRL")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turnwise", default="target/release/turnwise")
    parser.add_argument("--prepare", metavar="OUT", help="write a model that calls the tool, made from MODEL, and stop")
    parser.add_argument("--trl-side", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def trl_side(options):
    """Trains with TRL; prints medians of its steps as one line of JSON."""
    grpo_trainer.forget_this_folder()
    tokenizer = grpo_trainer.load_tokenizer(options)
    batch, steps = options.groups * options.size, options.steps + 1
    turns, tokens = [], []

    class Pages:
        def reset(self, seed=0, **_):
            self.pages = book(seed)

        def read(self, page: int) -> str:
            """
            Returns the text of a page.

            Args:
                page: The number of the page, from 1.
            """
            return _page(self.pages, page)

    def reward(prompts, completions, completion_ids, **_):
        turns.extend(sum(message["role"] == "assistant" for message in completion) for completion in completions)
        for prompt, ids in zip(prompts, completion_ids):
            shown = tokenizer.apply_chat_template(prompt, tools=[READ], add_generation_prompt=True)
            tokens.append(len(shown["input_ids"] if "input_ids" in shown else shown) + len(ids))
        return [parity(completion[-1].get("content") or "") for completion in completions]

    rows = [{"prompt": [{"role": "user", "content": goal(seed)}], "seed": seed} for seed in range(options.groups * steps)]
    settings = {
        "max_completion_length": 1536,
        "max_tool_calling_iterations": TURNS - 1,
        "generation_kwargs": {"max_new_tokens": TOKENS},
    }
    seconds = grpo_trainer.train(options, tokenizer, rows, reward, steps, 16, 1e-6, settings, environment_factory=Pages)
    assert len(turns) == batch * steps, len(turns)
    print(json.dumps(summary(seconds[1:], turns[batch:], tokens[batch:], batch)), flush=True)


# The tool of TRL's environment has a parameter of this name.
_page = page


def summary(seconds, turns, tokens, batch):
    return {
        "step_s": statistics.median(seconds),
        "steps": seconds,
        "turns": statistics.mean(turns),
        "tokens": statistics.mean(tokens),
        "per_token_s": sum(seconds) / (statistics.mean(tokens) * batch * len(seconds)),
    }


CONFIG = """
name = "run"
[env]
kind = "process"
command = {command}
max_turns = {turns}
[prompt]
template = {template}
layout = "concatenated"
[policy]
model = {model}
compute = "{compute}"
lora = {{ rank = 16, alpha = 32.0 }}
[rollout]
tasks_per_step = {groups}
group_size = {size}
max_response_tokens = {tokens}
max_model_len = 2048
[credit]
estimator = {{ kind = "grpo" }}
[train]
learning_rate = 1e-6
num_minibatches = 1
# TRL runs every sequence through its update, whatever its advantage.
skip_zero_advantage = false
num_workers = {lanes}
[eval]
splits = ["test"]
tasks = 1
"""

SFT = ["sft.steps=24", "sft.demonstrations=48", "sft.invalid_action_prob=0.0", "sft.batch_tokens=3000", "sft.learning_rate=5e-4", "sft.warmup=6"]


def train(options, folder, model, changes):
    """Runs `turnwise train`; returns the run's folder."""
    template = os.path.join(folder, "template.toml")
    with open(template, "w") as file:
        file.write('base = "tools"\n[response]\ntext_answer = true\n')
    config = os.path.join(folder, "run.toml")
    with open(config, "w") as file:
        file.write(
            CONFIG.format(
                command=json.dumps([sys.executable, os.path.abspath(__file__), "--world"]),
                template=json.dumps(template),
                model=json.dumps(os.path.abspath(model)),
                compute=options.compute,
                groups=options.groups,
                size=options.size,
                lanes=options.threads,
                turns=TURNS,
                tokens=TOKENS,
            )
        )
    subprocess.run([options.turnwise, "train", config, *changes, "--runs", folder], check=True, stdout=sys.stderr)
    return os.path.join(folder, "run")


def prepare(options):
    """Writes a model that calls the tool."""
    grpo_trainer.forget_this_folder()
    from trl.chat_template_utils import qwen2_5_chat_template

    with tempfile.TemporaryDirectory() as folder:
        model = shutil.copytree(options.model, os.path.join(folder, "model"))
        settings = os.path.join(model, "tokenizer_config.json")
        with open(settings) as file:
            tokenizer = json.load(file)
        with open(settings, "w") as file:
            json.dump({**tokenizer, "chat_template": qwen2_5_chat_template}, file)
        run = train(options, folder, model, ["train.steps=0", *SFT])
        subprocess.run([options.turnwise, "export", run, options.prepare, "--merge"], check=True)


def turnwise_side(options):
    """Trains with Turnwise; returns medians of its steps."""
    with tempfile.TemporaryDirectory() as folder:
        run = train(options, folder, options.model, [f"train.steps={options.steps + 1}"])
        with open(os.path.join(run, "metrics.jsonl")) as file:
            rows = [json.loads(line) for line in file]
    rows = [row for row in rows if "perf/step_s" in row][1:]
    assert len(rows) == options.steps and all(row["perf/update_s"] > 0 for row in rows), rows
    trained = [row["perf/tokens_computed"] + row["perf/tokens_saved"] for row in rows]
    batch = options.groups * options.size
    seconds = [row["perf/step_s"] for row in rows]
    turns = [row["rollout/turns/mean"] for row in rows]
    return summary(seconds, turns, [tokens / batch for tokens in trained], batch)


def main():
    options = arguments()
    if options.trl_side:
        return trl_side(options)
    if options.prepare:
        return prepare(options)
    mine, peer = [], []
    for _ in range(options.repeats):
        mine.append(turnwise_side(options))
        print(f"  Turnwise {json.dumps(mine[-1])}", flush=True)
        peer.append(grpo_trainer.trl_side(options))
        print(f"  TRL      {json.dumps(peer[-1])}", flush=True)
    print(f"{options.groups} x {options.size} episodes, LoRA of rank 16, {options.compute}, {options.threads} threads")
    print(f"{'':<12} {'Turnwise':>10} {'TRL':>10} {'times':>7}")
    for name in ("step_s", "turns", "tokens", "per_token_s"):
        ours, other = (statistics.median(row[name] for row in side) for side in (mine, peer))
        print(f"{name:<12} {ours:>10.4g} {other:>10.4g} {other / ours:>7.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(world_side() if sys.argv[1:2] == ["--world"] else main())
