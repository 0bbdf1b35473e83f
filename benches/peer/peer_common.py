"""What the PyTorch scripts share: threads, the model, timing."""

import json
import time

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM


def set_up(threads, seed=0):
    torch.set_num_threads(threads)
    torch.manual_seed(seed)


def new_model(shape):
    """A Qwen2 with random weights, in f32, with PyTorch's fused attention."""
    config = Qwen2Config(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.ffn,
        vocab_size=shape.vocab,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    return Qwen2ForCausalLM(config).float()


def timed(step, warmup, repeats):
    """Seconds of each of `repeats` calls, after `warmup` calls that are not counted."""
    for _ in range(warmup):
        step()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds


def report(**values):
    """The one line of output that `compare.py` reads."""
    print(json.dumps(values), flush=True)
