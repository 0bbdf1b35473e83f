#!/usr/bin/env python3
"""GRPO with LoRA on a pretrained model: `transformers` and PEFT beside Turnwise, on the same model folder and batch.

    python benches/peer/pretrained.py MODEL [--compute f32|bf16] [--rounds 3] [--turnwise target/release/examples/grpo_speed]

One round samples `groups` prompts of 256 random tokens, `size` responses of 32 tokens to each, and makes one update of the
adapter with PPO's clipped surrogate. Python's side is what a user writes first: `generate` on the batch with its cache,
`num_return_sequences` samples of each prompt, then forward and backward over padded sequences in micro-batches, gradient
clipping, AdamW on the adapter; logits are taken at response positions only. No scoring pass on either side: with one update
a round the sampled log-probabilities, or the detached new ones, are the old ones (as in TRL).

Both sides are run in turns, `--repeats` times, and the medians are compared. Needs torch, transformers, peft, and

    cargo build --release -p turnwise-model --example grpo_speed
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
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
    parser.add_argument("--micro", type=int, default=8, help="sequences of a micro-batch in Python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds of a run")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each side")
    parser.add_argument("--turnwise", default="target/release/examples/grpo_speed")
    parser.add_argument("--python-side", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def python_side(options):
    """The rounds in Python; prints the medians as one line of JSON."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    # `dtype=` is the newer name; both sides keep the base in f32 unless bf16 is asked for.
    dtype = torch.bfloat16 if options.compute == "bf16" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype, attn_implementation="sdpa")
    config = LoraConfig(r=options.rank, lora_alpha=2 * options.rank, target_modules=TARGETS, lora_dropout=0.0)
    model = get_peft_model(model, config)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, weight_decay=0.0, fused=True)
    vocabulary = model.config.vocab_size
    count = options.groups * options.size
    sampling, updating = [], []
    for round_number in range(options.rounds + 1):
        prompts = torch.randint(vocabulary, (options.groups, options.prompt))
        start = time.perf_counter()
        model.eval()
        with torch.inference_mode():
            sampled = model.generate(
                input_ids=prompts,
                attention_mask=torch.ones_like(prompts),
                num_return_sequences=options.size,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=options.response,
                min_new_tokens=options.response,
                use_cache=True,
                pad_token_id=0,
            )
        took = time.perf_counter() - start
        assert sampled.shape == (count, options.prompt + options.response)
        ids = sampled.clone()
        advantages = torch.tensor([1.0, -1.0]).repeat(count // 2)

        start = time.perf_counter()
        model.train()
        optimizer.zero_grad()
        for first in range(0, count, options.micro):
            part = ids[first : first + options.micro]
            logits = model(input_ids=part, use_cache=False, logits_to_keep=options.response + 1).logits[:, :-1].float()
            targets = part[:, options.prompt :].unsqueeze(-1)
            new = torch.log_softmax(logits, -1).gather(-1, targets).squeeze(-1)
            ratio = (new - new.detach()).exp()
            advantage = advantages[first : first + options.micro, None]
            surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
            (-surrogate.sum() / (count * options.response)).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        if round_number > 0:
            sampling.append(took)
            updating.append(time.perf_counter() - start)
    iterations = [sampled + updated for sampled, updated in zip(sampling, updating)]
    values = {"sample_s": sampling, "update_s": updating, "iteration_s": iterations}
    print(json.dumps({name: statistics.median(seconds) for name, seconds in values.items()}), flush=True)


def last_line(command, environment=None):
    made = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(made.stdout.strip().splitlines()[-1])


def main():
    options = arguments()
    if options.python_side:
        return python_side(options)
    sizes = {name: getattr(options, name) for name in ("groups", "size", "prompt", "response", "rank", "rounds")}
    ours = [options.turnwise, f"model={options.model}", f"compute={options.compute}", f"lanes={options.threads}"]
    ours += [f"{name}={value}" for name, value in sizes.items()]
    theirs = [sys.executable, __file__, *sys.argv[1:], "--python-side"]
    environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads), TOKENIZERS_PARALLELISM="false")
    rows = {"turnwise": [], "python": []}
    for _ in range(options.repeats):
        rows["turnwise"].append(last_line(ours))
        rows["python"].append(last_line(theirs, environment))
    tokens = options.groups * options.size * (options.prompt + options.response)
    print(
        f"{options.groups} prompts of {options.prompt} tokens, {options.size} x {options.response} new tokens each, "
        f"LoRA of rank {options.rank}, {options.compute} ({rows['turnwise'][0]['compute']}), {options.threads} threads"
    )
    for name, meaning in (("sample_s", "sampling"), ("update_s", "update"), ("iteration_s", "iteration")):
        mine, peer = (statistics.median(row[name] for row in rows[side]) for side in ("turnwise", "python"))
        print(f"{meaning:10} {mine:8.2f} s  transformers + PEFT {peer:8.2f} s  {peer / mine:5.2f} times as fast")
    computed = rows["turnwise"][0]["update_tokens_computed"]
    print(f"the update computes {computed} of {tokens} tokens, because a group shares its prompt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
