"""Training and decoding on an NVIDIA GPU, beside PyTorch: one command, one table.

    python benches/peer/gpu.py                 # needs torch, transformers and peft with CUDA, and a Rust toolchain
    python benches/peer/gpu.py --program PATH  # with an example that was built elsewhere

Shapes are those of Qwen2.5-0.5B and 1.5B with random weights. Training: 8 sequences of 1024 tokens, forward,
backward, clipping by the norm, AdamW; of all weights, and of an adapter of rank 16 on all linear layers. PyTorch's side is
SDPA under bfloat16 autocast, compiled by torch.compile, with fused AdamW and its loss in chunks so that logits of 151,936
tokens fit; its weights and moments are f32, the base of its adapter bfloat16. Model FLOP utilisation counts 6 FLOP for
every weight and token (4 under an adapter, whose base has no gradient), and attention's products at half the square
(causal), against the peak given with --tflops. Decoding: sequences after prompts of 512 tokens; the memory limit is the
time to read the bfloat16 weights and the keys and values once, at --bandwidth.

Each row is printed, and written to --output, as soon as it is measured.
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
SEQUENCES, LENGTH, RANK = 8, 1024, 16
PROMPT, NEW = 512, 128


def weights_of(shape):
    """Weights of the layers and of the tied embedding."""
    head = shape["hidden"] // shape["heads"]
    qkv = shape["hidden"] * (shape["heads"] + 2 * shape["kv"]) * head
    layer = qkv + shape["hidden"] ** 2 + 3 * shape["hidden"] * shape["ffn"]
    return shape["layers"] * layer, shape["vocab"] * shape["hidden"]


def train_flops(shape, adapter=False):
    """FLOP of a training step: products of weights, and causal attention's four forward and eight backward."""
    layers, output = weights_of(shape)
    tokens = SEQUENCES * LENGTH
    attention = shape["layers"] * 12 * shape["hidden"] * LENGTH / 2
    return tokens * ((4 if adapter else 6) * (layers + output) + attention)


def decode_bytes(shape, slots):
    """Bytes that a decoding step cannot do without: bfloat16 weights, and keys and values of half the new tokens."""
    layers, output = weights_of(shape)
    head = shape["hidden"] // shape["heads"]
    cached = slots * (PROMPT + NEW / 2) * shape["layers"] * 2 * shape["kv"] * head
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


def lines(command, env=None):
    """The JSON lines of a program. Its errors go to this process's stderr."""
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout
    return [json.loads(line) for line in output.splitlines() if line.startswith(("{", "["))]


def ours(command, mode, name, **numbers):
    words = [f"{key}={value}" for key, value in numbers.items()]
    return lines([*command, mode, f"shape={name}", *words], environment())


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


def torch_train(shape, compiled, adapter, steps):
    import torch
    import torch.nn.functional as F

    torch.set_float32_matmul_precision("high")
    model = model_of(shape, torch.bfloat16 if adapter else torch.float32).train()
    if adapter:
        from peft import LoraConfig, get_peft_model

        linear = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        model = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=linear)).base_model.model
        # As PEFT has it with autocast_adapter_dtype: an adapter's weights are f32.
        for weight in model.parameters():
            if weight.requires_grad:
                weight.data = weight.data.float()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
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
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
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


def torch_decode(shape, slots):
    import torch

    model = model_of(shape, torch.bfloat16).eval()
    prompts = torch.randint(shape["vocab"], (slots, PROMPT), device="cuda")

    def run(new):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.no_grad():
            options = dict(do_sample=True, temperature=1.0, top_k=0, max_new_tokens=new, min_new_tokens=new)
            model.generate(prompts, attention_mask=torch.ones_like(prompts), pad_token_id=0, **options)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    # A step of generate takes tens of milliseconds, of which some tokens tell enough.
    few = NEW // 4
    run(few)
    prompt, whole = run(1), run(few)
    return (whole - prompt) / (few - 1)


def child(what, name, *more):
    """Runs a PyTorch side in its own process, so that it has the whole device; None if it fails."""
    try:
        return lines([sys.executable, __file__, "--child", what, "--shape", name, *more])[-1]["seconds"]
    except (subprocess.CalledProcessError, IndexError) as error:
        print(f"PyTorch's {what} of {name} failed: {error}", file=sys.stderr)
        return None


class Table:
    """Rows that are printed and written as they come."""

    def __init__(self, arguments):
        self.arguments, self.found = arguments, []
        print(f"{'':34} {'Turnwise':>10} {'PyTorch':>10} {'ratio':>7}", flush=True)

    def add(self, name, tokens, mine, theirs, note, **numbers):
        beside = ("-", "-") if theirs is None else (f"{tokens / theirs:.0f}", f"{theirs / mine:.2f}")
        print(f"{name:34} {tokens / mine:10.0f} {beside[0]:>10} {beside[1]:>7}  {note}", flush=True)
        self.found.append(dict(name=name, tokens=tokens, seconds=mine, torch_seconds=theirs, **numbers))
        path = self.arguments.output
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w") as file:
            peaks = dict(tflops=self.arguments.tflops, bandwidth_tb_s=self.arguments.bandwidth)
            json.dump({**peaks, "rows": self.found}, file, indent=1)


def measure_training(table, command, name, adapter):
    """One row: tokens a second of ours beside torch.compile's, and eager's in the note."""
    arguments, tokens = table.arguments, SEQUENCES * LENGTH
    rank = RANK if adapter else 0
    sizes = dict(sequences=SEQUENCES, length=LENGTH, steps=arguments.steps, rank=rank)
    mine = ours(command, "train", name, **sizes)[-1]
    more = ["--steps", str(arguments.steps), *(["--adapter"] if adapter else [])]
    compiled = None if arguments.alone else child("train", name, *more)
    eager = None if arguments.alone or arguments.no_eager else child("eager", name, *more)
    used = train_flops(SHAPES[name], adapter) / (arguments.tflops * 1e12)
    note = f"MFU {used / mine['seconds']:.1%}"
    note += f", PyTorch {used / compiled:.1%}" if compiled else ""
    note += f", eager {tokens / eager:.0f} tokens/s" if eager else ""
    what = f"LoRA rank {RANK}" if adapter else "all weights"
    table.add(f"{name} training, {what}", tokens, mine["seconds"], compiled, note, ours=mine, eager=eager)


def measure_decoding(table, command, name):
    """A row for each number of sequences; PyTorch's generate at some of them."""
    arguments = table.arguments
    slots = ",".join(str(count) for count in arguments.slots)
    for mine in ours(command, "decode", name, slots=slots, prompt=PROMPT, new=NEW):
        count, step = mine["slots"], mine["step_seconds"]
        theirs = None
        if count in arguments.generate and not arguments.alone:
            theirs = child("decode", name, "--count", str(count))
        limit = decode_bytes(SHAPES[name], count) / (arguments.bandwidth * 1e12)
        note = f"{limit / step:.1%} of the memory limit"
        note += f", generate {limit / theirs:.1%}" if theirs else ""
        table.add(f"{name} decoding, {count} sequences", count, step, theirs, note, ours=mine, limit=limit)


def integers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="the example gpu_speed, already built")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="one shape; default both")
    parser.add_argument("--only", choices=["full", "lora", "decode"], action="append", help="one measurement; default all")
    parser.add_argument("--alone", action="store_true", help="without PyTorch's side")
    parser.add_argument("--no-eager", action="store_true", help="without PyTorch's training uncompiled")
    parser.add_argument("--slots", type=integers, default=[1, 8, 64, 128, 256], help="numbers of decoded sequences")
    parser.add_argument("--generate", type=integers, default=[64], help="those that PyTorch's generate decodes, too")
    parser.add_argument("--tflops", type=float, default=989.0, help="peak of dense bfloat16 products (H100, H200: 989)")
    parser.add_argument("--bandwidth", type=float, default=4.3, help="memory in TB/s (H200 4.3 as measured, H100 3.0)")
    parser.add_argument("--steps", type=int, default=10, help="steps of training, on both sides")
    parser.add_argument("--output", default="target/gpu.json")
    parser.add_argument("--child", choices=["train", "eager", "decode"], help=argparse.SUPPRESS)
    parser.add_argument("--adapter", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        shape = SHAPES[arguments.shape[0]]
        if arguments.child == "decode":
            seconds = torch_decode(shape, arguments.count)
        else:
            seconds = torch_train(shape, arguments.child == "train", arguments.adapter, arguments.steps)
        print(json.dumps({"seconds": seconds}))
        return

    command, table = program(arguments), Table(arguments)
    wanted = arguments.only or ["full", "lora", "decode"]
    for name in arguments.shape or SHAPES:
        for adapter in [adapter for word, adapter in [("full", False), ("lora", True)] if word in wanted]:
            measure_training(table, command, name, adapter)
        if "decode" in wanted:
            measure_decoding(table, command, name)


if __name__ == "__main__":
    main()
