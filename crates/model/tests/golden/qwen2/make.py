"""Writes qwen2.json and adamw.json: what transformers' Qwen2 and torch's AdamW compute.

    pip install torch transformers
    python make.py

Weights come from a formula that the Rust test repeats, so that the file holds results only:
element i (counted from 0 in row-major order) of tensor number t (in the order of `names`) is
    sin(0.37 i + 1.7 t + 0.3 sin(0.011 i)) * scale,   scale 0.25 for matrices and biases,
and 1 + 0.2 of the sine for norms. Everything runs in float64.
"""

import json
import math
import pathlib

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2 import modeling_qwen2


class DoubleTorch:
    """torch with another idea of what float32 is."""

    float32 = torch.float64
    float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


# transformers takes norms, softmax and rotary angles in float32 even where the model is float64.
modeling_qwen2.torch = DoubleTorch()
torch.Tensor.float = torch.Tensor.double

HERE = pathlib.Path(__file__).parent
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)

SHAPES = {
    "tied": dict(vocab=29, hidden=16, inner=22, layers=2, heads=4, kv=2, tied=True, theta=10000.0),
    "untied": dict(vocab=31, hidden=24, inner=20, layers=3, heads=3, kv=1, tied=False, theta=1000000.0),
}


def names(shape):
    """Tensors in the order of the formula's t."""
    yield "model.embed_tokens.weight"
    for layer in range(shape["layers"]):
        for name in [
            "input_layernorm.weight",
            "self_attn.q_proj.weight",
            "self_attn.k_proj.weight",
            "self_attn.v_proj.weight",
            "self_attn.q_proj.bias",
            "self_attn.k_proj.bias",
            "self_attn.v_proj.bias",
            "self_attn.o_proj.weight",
            "post_attention_layernorm.weight",
            "mlp.gate_proj.weight",
            "mlp.up_proj.weight",
            "mlp.down_proj.weight",
        ]:
            yield f"model.layers.{layer}.{name}"
    yield "model.norm.weight"
    if not shape["tied"]:
        yield "lm_head.weight"


def formula(t, count):
    i = torch.arange(count)
    return torch.sin(0.37 * i + 1.7 * t + 0.3 * torch.sin(0.011 * i))


def case(shape):
    config = Qwen2Config(
        vocab_size=shape["vocab"],
        hidden_size=shape["hidden"],
        intermediate_size=shape["inner"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv"],
        max_position_embeddings=128,
        rms_norm_eps=1e-6,
        rope_theta=shape["theta"],
        rope_parameters={"rope_type": "default", "rope_theta": shape["theta"]},
        tie_word_embeddings=shape["tied"],
        attn_implementation="eager",
    )
    model = Qwen2ForCausalLM(config).double().eval()
    assert model.model.rotary_emb.inv_freq.dtype == torch.float64
    tensors = dict(model.named_parameters())
    with torch.no_grad():
        for t, name in enumerate(names(shape)):
            values = formula(t, tensors[name].numel()).reshape(tensors[name].shape)
            tensors[name].copy_(1 + 0.2 * values if name.endswith("norm.weight") else 0.25 * values)
    assert set(names(shape)) == set(tensors)

    length = 40
    tokens = [(7 * i + i * i // 3) % shape["vocab"] for i in range(length)]
    spans = [[1, 4], [11, 20], [30, 40]]
    temperature = 0.8
    logits = model(torch.tensor([tokens])).logits[0] / temperature
    logprobs = torch.log_softmax(logits, -1)
    entropies = -(logprobs.exp() * logprobs).sum(-1)
    positions = [p for start, end in spans for p in range(start, end)]
    taken = torch.stack([logprobs[p - 1, tokens[p]] for p in positions])
    entropy = torch.stack([entropies[p - 1] for p in positions])
    index = torch.arange(len(positions))
    loss = (torch.sin(0.7 * index) * taken).sum() + (torch.cos(0.3 * index) * entropy).sum()
    loss.backward()
    gradients = {}
    for name in names(shape):
        gradient = tensors[name].grad.flatten()
        middle = gradient.numel() // 2
        gradients[name] = {
            "norm": gradient.norm().item(),
            "entries": {str(k): gradient[k].item() for k in (0, middle, gradient.numel() - 1)},
        }
    return {
        "config": shape,
        "tokens": tokens,
        "spans": spans,
        "temperature": temperature,
        "logprobs": taken.tolist(),
        "entropies": entropy.tolist(),
        "loss": loss.item(),
        "gradients": gradients,
    }


def adamw():
    """Five steps of a matrix that decays and a bias that does not, with clipping in some steps."""
    matrix = torch.nn.Parameter(formula(0, 12).float().reshape(3, 4).clone())
    bias = torch.nn.Parameter(formula(1, 4).float().clone())
    settings = dict(beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.1, clip_norm=2.0)
    optimizer = torch.optim.AdamW(
        [dict(params=[matrix], weight_decay=settings["weight_decay"]), dict(params=[bias], weight_decay=0.0)],
        betas=(settings["beta1"], settings["beta2"]),
        eps=settings["epsilon"],
        foreach=False,
        fused=False,
    )
    steps = []
    for step in range(5):
        rate = 0.01 * (step + 1)
        for group in optimizer.param_groups:
            group["lr"] = rate
        scale = [0.5, 3.0, 0.1, 10.0, 1.0][step]
        matrix.grad = (scale * formula(2 + step, 12)).float().reshape(3, 4)
        bias.grad = (scale * formula(20 + step, 4)).float()
        norm = torch.nn.utils.clip_grad_norm_([matrix, bias], settings["clip_norm"], foreach=False)
        optimizer.step()
        steps.append(dict(
            learning_rate=rate,
            scale=scale,
            norm=norm.item(),
            matrix=matrix.detach().flatten().double().tolist(),
            bias=bias.detach().double().tolist(),
        ))
    return dict(settings=settings, steps=steps)


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return value


if __name__ == "__main__":
    assert math.isclose(formula(0, 3)[1].item(), math.sin(0.37 + 0.3 * math.sin(0.011)))
    for file, content in [
        ("qwen2.json", {name: case(shape) for name, shape in SHAPES.items()}),
        ("adamw.json", adamw()),
    ]:
        (HERE / file).write_text(json.dumps(rounded(content), separators=(",", ":")) + "\n")
