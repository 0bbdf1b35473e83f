#!/usr/bin/env python3
"""A real pretrained chat model in Turnwise and in `transformers`: the same text, the same log-probabilities, also after training.

    python benches/real/smollm2_round_trip.py MODEL [--run RUN] [--turnwise target/release/turnwise]

MODEL is a folder with a chat model (SmolLM2-135M-Instruct), RUN a run of Turnwise that trained an adapter on it
(configs/smollm2/). Needs torch, transformers and, with RUN, peft. Checks:

1. greedy answers of `turnwise chat` equal those of `generate`;
2. log-probabilities of sampled responses of `turnwise rollout`, prompted through the chat template, equal the model's;
3. with RUN: the same of the trained policy against the exported adapter in PEFT and the exported merged model.

Exits 1 if any of these fails, and prints the largest difference of each.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

QUESTIONS = ["What is the capital of France?", "Name three colours.", "What is 2 + 2?"]
# Sampling is in f32 here and there, so that only the order of sums differs.
TOLERANCE = 2e-3
# Every prompt is the observation alone: what the chat template makes of it can be said in one line of Python.
TEMPLATE = """base = "ezpoints"
[prompt]
first = "{current_observation}"
"""


def run(command, **options):
    return subprocess.run([str(part) for part in command], check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def ids_of(tokenizer, text):
    messages = [{"role": "user", "content": text}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tokenizer(prompt, add_special_tokens=False)["input_ids"]


def greedy_text(turnwise, folder, model, tokenizer):
    """Questions whose greedy answers differ."""
    wrong = []
    for question in QUESTIONS:
        ours = run([turnwise, "chat", folder, "--temperature", "0", "--max-tokens", "40"], input=question + "\n")
        ids = torch.tensor([ids_of(tokenizer, question)])
        with torch.no_grad():
            made = model.generate(ids, max_new_tokens=40, do_sample=False, temperature=None, top_p=None, top_k=None, repetition_penalty=1.0)
        theirs = tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True).strip()
        if theirs not in ours:
            wrong.append((question, ours.strip(), theirs))
    return wrong


def sampled(turnwise, policy, overrides, folder):
    """Observation, response ids and their log-probabilities of first turns that Turnwise sampled."""
    template, out = folder / "template.toml", folder / "rollout.jsonl"
    template.write_text(TEMPLATE)
    settings = [f"prompt.template={template}", "prompt.layout=windowed", "env.max_turns=1", "policy.compute=f32"]
    run([turnwise, "rollout", policy, "--output", out, "--tasks", "16", "--samples", "2", "--temperature", "1", *settings, *overrides])
    turns = []
    for line in out.read_text().splitlines():
        # Later prompts show what was played before.
        turn = json.loads(line)["turns"][0]
        turns.append((turn["observation"], turn["response_ids"], turn["old_logprobs"]))
    return turns


def largest_difference(model, tokenizer, turns):
    worst = 0.0
    for observation, response, expected in turns:
        prompt = ids_of(tokenizer, observation)
        with torch.no_grad():
            logits = model(torch.tensor([prompt + response])).logits[0].float()
        found = torch.log_softmax(logits[len(prompt) - 1 : -1], -1)[torch.arange(len(response)), torch.tensor(response)]
        worst = max(worst, (found - torch.tensor(expected)).abs().max().item())
    return worst


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model", type=pathlib.Path)
    arguments.add_argument("--run", type=pathlib.Path)
    arguments.add_argument("--turnwise", default="target/release/turnwise")
    options = arguments.parse_args()
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    load = lambda folder: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model, failed = load(options.model), False

    def report(name, worst, turns):
        nonlocal failed
        failed |= not worst < TOLERANCE
        print(f"{name}: largest difference of {sum(len(turn[1]) for turn in turns)} log-probabilities {worst:.1e}")

    wrong = greedy_text(options.turnwise, options.model, model, tokenizer)
    print(f"greedy answers: {len(QUESTIONS) - len(wrong)} of {len(QUESTIONS)} equal")
    for question, ours, theirs in wrong:
        print(f"  {question}\n    turnwise:     {ours!r}\n    transformers: {theirs!r}")
    failed |= bool(wrong)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        world = ["env.kind=ezpoints", "rollout.max_response_tokens=6", "rollout.max_model_len=512"]
        turns = sampled(options.turnwise, options.model, world, folder)
        report("pretrained", largest_difference(model, tokenizer, turns), turns)
        if options.run:
            from peft import PeftModel

            turns = sampled(options.turnwise, options.run, [], folder)
            # The check can fail: the model without its adapter is another one.
            untrained = largest_difference(model, tokenizer, turns)
            print(f"trained, held against the model without its adapter: {untrained:.1e}")
            failed |= untrained < TOLERANCE
            run([options.turnwise, "export", options.run, folder / "adapter"])
            run([options.turnwise, "export", options.run, folder / "merged", "--merge"])
            adapted = PeftModel.from_pretrained(load(options.model), folder / "adapter").eval()
            report("adapter in PEFT", largest_difference(adapted, tokenizer, turns), turns)
            report("merged model", largest_difference(load(folder / "merged"), tokenizer, turns), turns)
    sys.exit(failed)


if __name__ == "__main__":
    main()
