"""The other side of main.rs.

    python peer.py score FOLDER...   reads models that Turnwise wrote and prints what they compute
    python peer.py write FOLDER      writes small models of every family into it, single and sharded, in float32,
                                     bfloat16 and float16, and prints what they compute

Prints one JSON object: for each folder the logits after every token of TOKENS and a greedy continuation.
"""

import json
import pathlib
import sys

import torch
from transformers import (
    AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
)

TOKENS = [3, 17, 40, 8, 25, 61, 2, 33, 9, 50]
NEW = 12

BASE = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=256, initializer_range=0.2, bos_token_id=1, eos_token_id=None, pad_token_id=None,
)
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
MODELS = {
    "qwen2": Qwen2ForCausalLM(Qwen2Config(**BASE, tie_word_embeddings=False)),
    "qwen2-tied": Qwen2ForCausalLM(Qwen2Config(**BASE, tie_word_embeddings=True)),
    "qwen3": Qwen3ForCausalLM(Qwen3Config(**BASE, head_dim=16, tie_word_embeddings=True)),
    "llama": LlamaForCausalLM(LlamaConfig(**BASE, rope_parameters=LLAMA3, tie_word_embeddings=False)),
    "llama-biased": LlamaForCausalLM(LlamaConfig(**BASE, attention_bias=True, mlp_bias=True)),
}
# Folder: model, number type, size of a shard.
FOLDERS = {
    "qwen2-single": ("qwen2", torch.float32, "5GB"),
    "qwen2-shards": ("qwen2", torch.float32, "20KB"),
    "qwen2-tied-bf16": ("qwen2-tied", torch.bfloat16, "10KB"),
    "qwen3-bf16": ("qwen3", torch.bfloat16, "5GB"),
    "qwen3-f16-shards": ("qwen3", torch.float16, "20KB"),
    "llama-single": ("llama", torch.float32, "5GB"),
    "llama-bf16-shards": ("llama", torch.bfloat16, "20KB"),
    "llama-biased": ("llama-biased", torch.float32, "30KB"),
}


def computed(model):
    model = model.float().eval()
    tokens = torch.tensor([TOKENS])
    with torch.no_grad():
        logits = model(tokens).logits[0]
        greedy = model.generate(
            tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=NEW, temperature=None,
            top_p=None, top_k=None, pad_token_id=0,
        )[0, len(TOKENS) :]
    return {"logits": logits.tolist(), "greedy": greedy.tolist()}


def randomize(model, seed):
    """Biases and norms too, which are 0 and 1 in a fresh model."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            values = torch.randn(tensor.shape, generator=generator)
            tensor.copy_(1 + 0.2 * values if name.endswith("norm.weight") else 0.25 * values)
    return model


def main():
    torch.set_num_threads(1)
    command, *folders = sys.argv[1:]
    found = {}
    if command == "score":
        for folder in folders:
            model, info = AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
            )
            wrong = {key: sorted(map(str, value)) for key, value in info.items() if value}
            assert not wrong, f"{folder}: {wrong}"
            found[pathlib.Path(folder).name] = computed(model)
    else:
        for seed, (name, (model, dtype, size)) in enumerate(FOLDERS.items()):
            folder = pathlib.Path(folders[0]) / name
            randomize(MODELS[model].float(), seed).to(dtype).save_pretrained(folder, max_shard_size=size)
            found[name] = computed(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))
            found[name]["files"] = sorted(path.name for path in folder.iterdir())
    json.dump(found, sys.stdout)


main()
