"""Writes lora.json, what PEFT computes on transformers' Qwen2, and `peft/`, an adapter as PEFT saves it.

    pip install torch transformers peft
    python make.py

Weights come from a formula that the Rust test repeats, so that lora.json holds results only:
element i (counted from 0 in row-major order) of tensor number t is
    sin(0.37 i + 1.7 t + 0.3 sin(0.011 i)) * scale,   scale 0.25 for matrices and biases,
and 1 + 0.2 of the sine for norms. t counts the names in alphabetical order: those of the base from 0,
those of the adapter from 100. Everything runs in float64.
"""

import json
import pathlib
import shutil

import torch
from peft import LoraConfig, get_peft_model
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

SHAPE = dict(vocab=29, hidden=16, inner=22, layers=2, heads=4, kv=2)
CASES = {
    "all-linear": dict(rank=3, alpha=6, rslora=False, targets=["all-linear"]),
    "some, rslora": dict(rank=2, alpha=5, rslora=True, targets=["q_proj", "v_proj", "up_proj", "down_proj"]),
}


def formula(t, shape):
    count = int(torch.tensor(shape).prod())
    i = torch.arange(count)
    return torch.sin(0.37 * i + 1.7 * t + 0.3 * torch.sin(0.011 * i)).reshape(shape)


def base():
    config = Qwen2Config(
        vocab_size=SHAPE["vocab"],
        hidden_size=SHAPE["hidden"],
        intermediate_size=SHAPE["inner"],
        num_hidden_layers=SHAPE["layers"],
        num_attention_heads=SHAPE["heads"],
        num_key_value_heads=SHAPE["kv"],
        max_position_embeddings=128,
        rope_theta=10000.0,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    model = Qwen2ForCausalLM(config).double().eval()
    tensors = dict(model.named_parameters())
    with torch.no_grad():
        for t, name in enumerate(sorted(tensors)):
            values = formula(t, tensors[name].shape)
            tensors[name].copy_(1 + 0.2 * values if name.endswith("norm.weight") else 0.25 * values)
    return model


def adapted(settings):
    targets = settings["targets"]
    model = get_peft_model(
        base(),
        LoraConfig(
            r=settings["rank"],
            lora_alpha=settings["alpha"],
            use_rslora=settings["rslora"],
            target_modules=targets[0] if targets == ["all-linear"] else targets,
            task_type="CAUSAL_LM",
        ),
        autocast_adapter_dtype=False,
    ).double()
    # Under the names that PEFT's files have.
    tensors = {
        name.replace(".default.", "."): tensor for name, tensor in model.named_parameters() if "lora_" in name
    }
    with torch.no_grad():
        for t, name in enumerate(sorted(tensors)):
            tensors[name].copy_(0.25 * formula(100 + t, tensors[name].shape))
    return model, tensors


def case(settings):
    model, tensors = adapted(settings)
    length = 40
    tokens = [(7 * i + i * i // 3) % SHAPE["vocab"] for i in range(length)]
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
    assert all(tensor.grad is None for name, tensor in model.named_parameters() if "lora_" not in name)
    gradients = {}
    for name, tensor in tensors.items():
        gradient = tensor.grad.flatten()
        middle = gradient.numel() // 2
        gradients[name] = {
            "norm": gradient.norm().item(),
            "entries": {str(k): gradient[k].item() for k in (0, middle, gradient.numel() - 1)},
        }
    merged = {}
    for name, tensor in model.merge_and_unload().named_parameters():
        values = tensor.detach().flatten()
        middle = values.numel() // 2
        merged[name] = {str(k): values[k].item() for k in (0, middle, values.numel() - 1)}
    return {
        "config": SHAPE,
        "lora": settings,
        "tokens": tokens,
        "spans": spans,
        "temperature": temperature,
        "logprobs": taken.tolist(),
        "entropies": entropy.tolist(),
        "loss": loss.item(),
        "gradients": gradients,
        "merged": merged,
    }


def rounded(value):
    """Twelve digits are more than the test can see."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    return [rounded(entry) for entry in value] if isinstance(value, list) else value


def saved():
    """An adapter as PEFT saves it, in float32."""
    folder = HERE / "peft"
    shutil.rmtree(folder, ignore_errors=True)
    model, _ = adapted(CASES["some, rslora"])
    model.peft_config["default"].base_model_name_or_path = "some/model"
    model.to(torch.float32).save_pretrained(folder)
    (folder / "README.md").unlink()


if __name__ == "__main__":
    found = {name: case(settings) for name, settings in CASES.items()}
    (HERE / "lora.json").write_text(json.dumps(rounded(found), separators=(",", ":")) + "\n")
    saved()
