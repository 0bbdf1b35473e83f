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
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


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
    # This file has the package's name, and Python looks in its folder first.
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(options.threads)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    dtype = torch.bfloat16 if options.compute == "bf16" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype, attn_implementation="sdpa")
    batch, steps = options.groups * options.size, options.rounds + 1
    texts = prompts(tokenizer, options.groups * steps, options.prompt)
    lengths, seconds = [], []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.start = time.perf_counter()

        def on_step_end(self, *_, **__):
            seconds.append(time.perf_counter() - self.start)

    def reward(completion_ids, **_):
        lengths.extend(len(ids) for ids in completion_ids)
        return [float(index % 2) for index in range(len(completion_ids))]

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=options.compute == "bf16",
            per_device_train_batch_size=options.micro,
            gradient_accumulation_steps=batch // options.micro,
            num_generations=options.size,
            max_completion_length=options.response,
            generation_kwargs={"min_new_tokens": options.response},
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            beta=0.0,
            epsilon=0.2,
            epsilon_high=0.28,
            learning_rate=1e-5,
            max_steps=steps,
            gradient_checkpointing=False,
            dataloader_num_workers=0,
            logging_steps=1000,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(
            model=model,
            args=config,
            reward_funcs=reward,
            train_dataset=Dataset.from_dict({"prompt": texts}),
            processing_class=tokenizer,
            peft_config=LoraConfig(r=options.rank, lora_alpha=2 * options.rank, target_modules=TARGETS),
            callbacks=[Clock()],
        )
        trainer.train()
    assert len(seconds) == steps, seconds
    assert set(lengths) == {options.response} and len(lengths) == batch * steps, (set(lengths), len(lengths))
    print(json.dumps({"step_s": statistics.median(seconds[1:]), "steps": seconds[1:]}), flush=True)


def last_line(command, environment=None):
    made = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(made.stdout.strip().splitlines()[-1])


def main():
    options = arguments()
    if options.trl_side:
        return trl_side(options)
    sizes = {name: getattr(options, name) for name in ("groups", "size", "prompt", "response", "rank", "rounds")}
    ours = [options.turnwise, f"model={options.model}", f"compute={options.compute}", f"lanes={options.threads}"]
    ours += [f"{name}={value}" for name, value in sizes.items()]
    theirs = [sys.executable, __file__, *sys.argv[1:], "--trl-side"]
    environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads), TOKENIZERS_PARALLELISM="false")
    mine, peer = [], []
    for _ in range(options.repeats):
        mine.append(last_line(ours))
        peer.append(last_line(theirs, environment))
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
