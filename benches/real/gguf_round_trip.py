#!/usr/bin/env python3
"""Exports a policy as GGUF, reads it with the package gguf and runs it with llama.cpp.

    python benches/real/gguf_round_trip.py POLICY [--turnwise target/release/turnwise]

POLICY is a chat model's folder or a run. Needs numpy, gguf, jinja2, safetensors, tokenizers and xllamacpp (llama.cpp with its server, on the CPU). Checks,
for f16 and q8_0:

1. every tensor equals that of `turnwise export` (merged, f32) within the rounding of its type, rows of Llama's queries and keys put back,
   and blocks of q8_0 have the bytes of gguf's `quantize`;
2. llama.cpp's prompts have as many tokens as the folder's chat template and tokenizer make;
3. with f16, its greedy answers are those of `turnwise chat`; with q8_0 they are only printed, because llama.cpp rounds activations too.

A file with its query rows in another order must give other answers. Exits with 1 if a check fails.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, dequantize, quantize
from jinja2 import Environment
from safetensors.numpy import load_file
from tokenizers import Tokenizer

QUESTIONS = ["What is the capital of France?", "Name three colours.", "What is 2 + 2?"]
LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def run(command, **options):
    return subprocess.run([str(part) for part in command], check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def ours(name):
    stem, end = name.rsplit(".", 1)
    if stem in TOP:
        return f"{TOP[stem]}.{end}"
    _, layer, part = stem.split(".", 2)
    return f"model.layers.{layer}.{LAYER[part]}.{end}"


def order(array, heads, half_apart):
    """Orders the rows of rotated pairs as neighbours, or half a head apart."""
    shape = (heads, 2, -1) if not half_apart else (heads, -1, 2)
    return array.reshape(*shape, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def heads_of(config, name):
    if config["model_type"] != "llama":
        return None
    return {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}.get(name.split(".")[-2])


def tensors_differ(path, config, weights):
    """Returns the largest ratio of a difference to the allowed one, over all tensors."""
    worst, seen = 0.0, set()
    for tensor in GGUFReader(path).tensors:
        value = dequantize(tensor.data, tensor.tensor_type).astype(np.float32).reshape(tensor.shape.tolist()[::-1])
        expected = weights[ours(tensor.name)]
        seen.add(ours(tensor.name))
        stored = expected
        if heads := heads_of(config, tensor.name):
            value, stored = order(value, heads, True), order(expected, heads, False)
        if tensor.tensor_type == GGMLQuantizationType.Q8_0:
            assert np.array_equal(quantize(np.ascontiguousarray(stored), tensor.tensor_type).ravel(), tensor.data.ravel()), tensor.name
            # Half a step of each block, and the rounding of its scale.
            blocks = np.abs(expected).reshape(-1, 32).max(axis=1, keepdims=True)
            allowed = np.broadcast_to(blocks * (0.5 / 127 + 2.0**-11) + 127 * 2.0**-25, (blocks.size, 32)).reshape(expected.shape)
        elif tensor.tensor_type == GGMLQuantizationType.F16:
            allowed = np.abs(expected) * 2.0**-11 + 2.0**-25
        else:
            allowed = np.zeros_like(expected)
        difference = np.abs(value - expected)
        worst = max(worst, float(np.max(np.where(difference == 0, 0, difference / np.maximum(allowed, 1e-45)))))
    assert seen == set(weights), f"missing: {set(weights) - seen}"
    return worst


def spoilt(path, config, to):
    """Writes the file with the rows of the first layer's queries reversed."""
    data = bytearray(path.read_bytes())
    tensor = next(tensor for tensor in GGUFReader(path).tensors if tensor.name == "blk.0.attn_q.weight")
    rows = tensor.data.reshape(tensor.shape.tolist()[1], -1)[::-1].tobytes()
    data[tensor.data_offset : tensor.data_offset + len(rows)] = rows
    to.write_bytes(data)
    return to


def chat_template(model):
    if (file := model / "chat_template.jinja").is_file():
        return file.read_text()
    return json.loads((model / "tokenizer_config.json").read_text())["chat_template"]


def answers(path):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = str(path), 512, 1, False
    server = xllamacpp.Server(params)
    found = []
    for question in QUESTIONS:
        request = {"messages": [{"role": "user", "content": question}], "temperature": 0.0, "max_tokens": 40}
        answer = server.handle_chat_completions(request)
        answer = json.loads(answer) if isinstance(answer, str) else answer
        found.append((answer["choices"][0]["message"]["content"].strip(), answer["usage"]["prompt_tokens"]))
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("policy", type=pathlib.Path)
    arguments.add_argument("--turnwise", type=pathlib.Path, default=pathlib.Path("target/release/turnwise"))
    options = arguments.parse_args()
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model = folder / "model"
        print(run([options.turnwise, "export", options.policy, model, "--merge"]).strip())
        config = json.loads((model / "config.json").read_text())
        weights = load_file(model / "model.safetensors")
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        template = Environment().from_string(chat_template(model))
        prompts = [
            template.render(messages=[{"role": "user", "content": question}], add_generation_prompt=True) for question in QUESTIONS
        ]
        lengths = [len(tokenizer.encode(prompt, add_special_tokens=False).ids) for prompt in prompts]
        chats = [run([options.turnwise, "chat", model, "--temperature", "0", "--max-tokens", "40"], input=f"{question}\n") for question in QUESTIONS]
        for kind in ("f16", "q8_0"):
            path = folder / f"{kind}.gguf"
            run([options.turnwise, "export", options.policy, path, "--gguf", kind])
            worst = tensors_differ(path, config, weights)
            print(f"{kind}: {path.stat().st_size / 2**20:.0f} MiB, largest difference {worst:.3f} of what rounding allows")
            failed += [f"{kind}: tensors"] if worst > 1.001 else []
            for (answer, tokens), chat, length in zip(answers(path), chats, lengths):
                failed += [f"{kind}: a prompt has {tokens} tokens instead of {length}"] if tokens != length else []
                equal = answer in chat
                print(f"  {'equal' if equal else 'DIFFERS'} ({tokens} prompt tokens): {answer!r}")
                failed += [f"{kind}: {answer!r} is not in {chat!r}"] if kind == "f16" and not equal else []
        spoilt_answers = answers(spoilt(folder / "f16.gguf", config, folder / "spoilt.gguf"))
        if all(answer in chat for (answer, _), chat in zip(spoilt_answers, chats)):
            failed.append("a file with wrong rows gives the same answers")
        print(f"with the rows of one matrix reversed: {spoilt_answers[0][0]!r}")
    for what in failed:
        print("failed:", what)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
