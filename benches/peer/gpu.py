"""Training and decoding on an NVIDIA GPU, beside PyTorch: one command, one table.

    python benches/peer/gpu.py                 # needs torch and transformers with CUDA, and a Rust toolchain
    python benches/peer/gpu.py --program PATH  # with an example that was built elsewhere

Shapes are those of Qwen2.5-0.5B and 1.5B with random weights. Training: 8 sequences of 1024 tokens, forward,
backward, clipping by the norm, fused AdamW. PyTorch's side is SDPA under bfloat16 autocast with f32 weights
and moments, compiled by torch.compile, with its loss in chunks so that logits of 151,936 tokens fit. Model FLOP
utilisation counts 6 FLOP for every weight and token, and attention's products at half the square (causal), against
the peak given with --tflops. Decoding: 128 sequences after prompts of 512 tokens; the memory limit is the time to read
the bfloat16 weights and the keys and values once, at --bandwidth.
"""

import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import time

SHAPES = {
    "qwen2.5-0.5b": dict(hidden=896, layers=24, heads=14, kv=2, ffn=4864, vocab=151936),
    "qwen2.5-1.5b": dict(hidden=1536, layers=28, heads=12, kv=2, ffn=8960, vocab=151936),
}
SEQUENCES, LENGTH = 8, 1024
SLOTS, PROMPT, NEW = 128, 512, 128


def weights_of(shape):
    """Weights of the layers and of the tied embedding."""
    head = shape["hidden"] // shape["heads"]
    qkv = shape["hidden"] * (shape["heads"] + 2 * shape["kv"]) * head
    layer = qkv + shape["hidden"] ** 2 + 3 * shape["hidden"] * shape["ffn"]
    return shape["layers"] * layer, shape["vocab"] * shape["hidden"]


def train_flops(shape):
    """FLOP of a training step: products of weights, and causal attention's four forward and eight backward."""
    layers, output = weights_of(shape)
    tokens = SEQUENCES * LENGTH
    attention = shape["layers"] * 12 * shape["hidden"] * LENGTH / 2
    return tokens * (6 * (layers + output) + attention)


def decode_bytes(shape):
    """Bytes that a decoding step cannot do without: bfloat16 weights, and keys and values of half the new tokens."""
    layers, output = weights_of(shape)
    head = shape["hidden"] // shape["heads"]
    cached = SLOTS * (PROMPT + NEW / 2) * shape["layers"] * 2 * shape["kv"] * head
    return 2 * (layers + output) + 2 * cached


def environment():
    """This process's environment, with the folders of NVIDIA's wheels where TURNWISE_CUDA_PATH names none."""
    folders = [folder for root in sys.path for folder in sorted(glob.glob(os.path.join(root, "nvidia", "*", "lib")))]
    return {**os.environ, "TURNWISE_CUDA_PATH": os.environ.get("TURNWISE_CUDA_PATH") or os.pathsep.join(folders)}


def program(arguments):
    if arguments.program:
        return [arguments.program]
    command = ["cargo", "build", "--release", "-p", "turnwise-model", "--features", "cuda", "--example", "gpu_speed"]
    subprocess.run(command, check=True)
    folder = os.environ.get("CARGO_TARGET_DIR", "target")
    return [os.path.join(folder, "release", "examples", "gpu_speed")]


def last_line(command, env=None):
    """The JSON of a program's last line. What it says of a failure is seen: stderr stays this process's."""
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout
    return json.loads(output.strip().splitlines()[-1])


def ours(command, mode, shape, steps):
    numbers = dict(shape)
    if mode == "train":
        numbers.update(sequences=SEQUENCES, length=LENGTH, steps=steps)
    else:
        numbers.update(slots=SLOTS, prompt=PROMPT, new=NEW)
    words = [f"{key}={value}" for key, value in numbers.items()]
    return last_line([*command, mode, *words], environment())


def model_of(shape, dtype):
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=shape["vocab"], hidden_size=shape["hidden"], intermediate_size=shape["ffn"],
        num_hidden_layers=shape["layers"], num_attention_heads=shape["heads"], num_key_value_heads=shape["kv"],
        max_position_embeddings=4096, rope_theta=1e6, tie_word_embeddings=True, attn_implementation="sdpa",
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device("cuda"):
        return Qwen2ForCausalLM(config).to(dtype)


def torch_train(shape, compiled, steps):
    import torch
    import torch.nn.functional as F

    torch.set_float32_matmul_precision("high")
    model = model_of(shape, torch.float32).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    body = torch.compile(model.model) if compiled else model.model

    def chunk_loss(hidden, labels):
        return F.cross_entropy(F.linear(hidden, model.lm_head.weight).float(), labels, reduction="sum")

    chunk = torch.compile(chunk_loss) if compiled else chunk_loss
    ids = torch.randint(shape["vocab"], (SEQUENCES, LENGTH + 1), device="cuda")

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            hidden = body(input_ids=ids[:, :-1], use_cache=False).last_hidden_state.flatten(0, 1)
            labels, loss = ids[:, 1:].flatten(), 0.0
            for first in range(0, len(labels), 2048):
                part = slice(first, first + 2048)
                # The chunk's logits are made again in backward, as ours are.
                loss = loss + torch.utils.checkpoint.checkpoint(chunk, hidden[part], labels[part], use_reentrant=False)
        (loss / len(labels)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    seconds = []
    for index in range(steps + 5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        if index >= 5:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def torch_decode(shape):
    import torch

    model = model_of(shape, torch.bfloat16).eval()
    prompts = torch.randint(shape["vocab"], (SLOTS, PROMPT), device="cuda")

    def run(new):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.no_grad():
            options = dict(do_sample=True, temperature=1.0, top_k=0, max_new_tokens=new, min_new_tokens=new)
            model.generate(prompts, attention_mask=torch.ones_like(prompts), pad_token_id=0, **options)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    run(NEW)
    prompt = statistics.median(run(1) for _ in range(3))
    whole = statistics.median(run(NEW) for _ in range(3))
    return (whole - prompt) / (NEW - 1)


def child(what, shape, *more):
    """Runs a PyTorch side in a process of its own, so that it has the whole device."""
    return last_line([sys.executable, __file__, "--child", what, "--shape", shape, *more])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="the example gpu_speed, already built")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="one shape; default both")
    parser.add_argument("--tflops", type=float, default=989.0, help="peak of dense bfloat16 products (H100, H200: 989)")
    parser.add_argument("--bandwidth", type=float, default=4.3, help="memory in TB/s (H200 4.3 as measured, H100 3.0)")
    parser.add_argument("--steps", type=int, default=10, help="steps of training, on both sides")
    parser.add_argument("--output", default="target/gpu.json")
    parser.add_argument("--child", choices=["train", "eager", "decode"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        shape = SHAPES[arguments.shape[0]]
        if arguments.child == "decode":
            print(json.dumps(torch_decode(shape)))
        else:
            print(json.dumps(torch_train(shape, arguments.child == "train", arguments.steps)))
        return

    command, rows, found = program(arguments), [], {}
    for name in arguments.shape or SHAPES:
        shape, tokens = SHAPES[name], SEQUENCES * LENGTH
        mine = ours(command, "train", shape, arguments.steps)
        steps = ["--steps", str(arguments.steps)]
        theirs = {"compiled": child("train", name, *steps), "eager": child("eager", name, *steps)}
        used = train_flops(shape) / (arguments.tflops * 1e12)
        rows.append((f"{name} training", mine["tokens_per_s"], tokens / theirs["compiled"],
                     f"MFU {used / mine['seconds']:.1%}, PyTorch {used / theirs['compiled']:.1%}, "
                     f"eager {tokens / theirs['eager']:.0f} tokens/s"))  # fmt: skip
        decoded = ours(command, "decode", shape, arguments.steps)
        step = child("decode", name)
        limit = decode_bytes(shape) / (arguments.bandwidth * 1e12)
        rows.append((f"{name} decoding", SLOTS / decoded["step_seconds"], SLOTS / step,
                     f"{limit / decoded['step_seconds']:.1%} of the memory limit, generate {limit / step:.1%}"))  # fmt: skip
        found[name] = {"train": mine, "torch_train_seconds": theirs, "decode": decoded, "torch_decode_step_seconds": step,
                       "memory_limit_seconds": limit, "train_flops": train_flops(shape)}  # fmt: skip
    print(f"{'':26} {'Turnwise':>12} {'PyTorch':>12} {'ratio':>7}")
    for name, mine, theirs, note in rows:
        print(f"{name:26} {mine:12.0f} {theirs:12.0f} {mine / theirs:7.2f}  {note}")
    os.makedirs(os.path.dirname(arguments.output) or ".", exist_ok=True)
    with open(arguments.output, "w") as file:
        json.dump({"tflops": arguments.tflops, "bandwidth_tb_s": arguments.bandwidth, "found": found}, file, indent=1)


if __name__ == "__main__":
    main()
