#!/usr/bin/env python3
"""One step of GRPO with LoRA on a pretrained model: TRL's own GRPOTrainer beside Turnwise, on one machine, in turns.

    python benches/peer/trl.py MODEL [--compute f32|bf16] [--groups 8] [--size 8] [--rounds 2] [--repeats 2]

Each step samples `size` responses of 32 tokens to each of `groups` prompts of 256 tokens, computes the advantages, and makes
one update of the adapter. TRL runs as its users run it on a CPU: `GRPOTrainer` with PEFT, `generate` for its rollouts, no KL
term (so no pass of a reference), one optimizer step for each generation, gradients accumulated over micro-batches of
`--micro` sequences. Prompts are single-token words, so that both sides have the same number of tokens; the reward alternates
within a group. Responses end only at their length. The first step of each run is not measured.

Needs torch, transformers, peft, trl, datasets, and

    cargo build --release -p turnwise-model --example grpo_speed
"""

import argparse
import json
import random
import statistics
import sys

import grpo_trainer


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--compute", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--response", type=int, default=32)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--micro", type=int, default=8, help="sequences of a micro-batch in TRL")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2, help="measured steps of a run")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each side")
    parser.add_argument("--turnwise", default="target/release/examples/grpo_speed")
    parser.add_argument("--trl-side", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def prompts(tokenizer, count, length):
    """Texts of just so many tokens: words that are one token each, also next to each other."""
    words = [token for token in range(len(tokenizer)) if is_word(tokenizer.decode([token]))]
    rng, found = random.Random(0), []
    while len(found) < count:
        text = tokenizer.decode(rng.choices(words, k=length))
        if len(tokenizer(text, add_special_tokens=False)["input_ids"]) == length:
            found.append(text)
    return found


def is_word(text):
    return len(text) > 3 and text[0] == " " and text[1:].isascii() and text[1:].isalpha() and text[1:].islower()


def trl_side(options):
    """Trains with TRL; prints the median of its steps as one line of JSON."""
    grpo_trainer.forget_this_folder()
    tokenizer = grpo_trainer.load_tokenizer(options)
    batch, steps = options.groups * options.size, options.rounds + 1
    rows = [{"prompt": text} for text in prompts(tokenizer, options.groups * steps, options.prompt)]
    lengths = []

    def reward(completion_ids, **_):
        lengths.extend(len(ids) for ids in completion_ids)
        return [float(index % 2) for index in range(len(completion_ids))]

    settings = {
        "max_completion_length": options.response,
        "generation_kwargs": {"min_new_tokens": options.response},
        "epsilon": 0.2,
        "epsilon_high": 0.28,
    }
    seconds = grpo_trainer.train(options, tokenizer, rows, reward, steps, options.rank, 1e-5, settings)
    assert set(lengths) == {options.response} and len(lengths) == batch * steps, (set(lengths), len(lengths))
    print(json.dumps({"step_s": statistics.median(seconds[1:]), "steps": seconds[1:]}), flush=True)


def main():
    options = arguments()
    if options.trl_side:
        return trl_side(options)
    sizes = {name: getattr(options, name) for name in ("groups", "size", "prompt", "response", "rank", "rounds")}
    ours = [options.turnwise, f"model={options.model}", f"compute={options.compute}", f"lanes={options.threads}"]
    ours += [f"{name}={value}" for name, value in sizes.items()]
    mine, peer = [], []
    for _ in range(options.repeats):
        mine.append(grpo_trainer.last_line(ours))
        peer.append(grpo_trainer.trl_side(options))
        print(f"  Turnwise {mine[-1]['iteration_s']:.2f} s, TRL {peer[-1]['step_s']:.2f} s", flush=True)
    step = statistics.median(row["iteration_s"] for row in mine)
    theirs = statistics.median(row["step_s"] for row in peer)
    print(
        f"{options.groups} prompts of {options.prompt} tokens, {options.size} x {options.response} new tokens each, "
        f"LoRA of rank {options.rank}, {options.compute} ({mine[0]['compute']}), {options.threads} threads"
    )
    print(f"a step {step:.2f} s, TRL {theirs:.2f} s: {theirs / step:.2f} times as fast")
    return 0


if __name__ == "__main__":
    sys.exit(main())
