"""What transformers computes with a small decoder of any family, for golden files.

Weights come from a formula that the Rust test repeats, so that the files hold results only: element i
(counted from 0 in row-major order) of tensor number t (in the order of the model's own parameters, which
the file lists) is
    sin(0.37 i + 1.7 t + 0.3 sin(0.011 i)) * scale,   scale 0.25 for matrices and biases,
and 1 + 0.2 of the sine for norms. Everything runs in float64.
"""

import json
import pathlib

import torch
from transformers import modeling_rope_utils


class DoubleTorch:
    """torch with another idea of what float32 is."""

    float32 = torch.float64
    float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def in_double(modeling):
    """transformers takes norms, softmax and rotary angles in float32 even where the model is float64."""
    modeling.torch = DoubleTorch()
    modeling_rope_utils.torch = DoubleTorch()
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)


def formula(t, count):
    i = torch.arange(count)
    return torch.sin(0.37 * i + 1.7 * t + 0.3 * torch.sin(0.011 * i))


def greedy(model, tokens, count):
    """A prompt and its likeliest continuation: the liveliest of those in which no other token is nearly as
    likely anywhere."""
    lively = {"prompt": [], "response": []}
    for start in range(len(tokens) - 4):
        prompt, found = tokens[start : start + 4], []
        while len(found) < count:
            best = model(torch.tensor([prompt + found])).logits[0, -1].topk(2)
            if best.values[0] - best.values[1] < 1e-3:
                break
            found.append(best.indices[0].item())
        if len(found) == count and len(set(found)) > len(set(lively["response"])):
            lively = {"prompt": prompt, "response": found}
    assert len(set(lively["response"])) > 1, "nothing is generated that could tell; change the case"
    return lively


def case(config, architecture):
    model = architecture._from_config(config, attn_implementation="eager").double().eval()
    assert model.model.rotary_emb.inv_freq.dtype == torch.float64
    tensors = dict(model.named_parameters())
    with torch.no_grad():
        for t, (name, tensor) in enumerate(tensors.items()):
            values = formula(t, tensor.numel()).reshape(tensor.shape)
            tensor.copy_(1 + 0.2 * values if name.endswith("norm.weight") else 0.25 * values)

    length = 40
    tokens = [(7 * i + i * i // 3) % config.vocab_size for i in range(length)]
    spans = [[1, 4], [11, 20], [30, 40]]
    temperature = 0.8
    raw = model(torch.tensor([tokens])).logits[0]
    logprobs = torch.log_softmax(raw / temperature, -1)
    entropies = -(logprobs.exp() * logprobs).sum(-1)
    positions = [p for start, end in spans for p in range(start, end)]
    taken = torch.stack([logprobs[p - 1, tokens[p]] for p in positions])
    entropy = torch.stack([entropies[p - 1] for p in positions])
    index = torch.arange(len(positions))
    loss = (torch.sin(0.7 * index) * taken).sum() + (torch.cos(0.3 * index) * entropy).sum()
    loss.backward()
    gradients = {}
    for name, tensor in tensors.items():
        gradient = tensor.grad.flatten()
        middle = gradient.numel() // 2
        gradients[name] = {
            "norm": gradient.norm().item(),
            "entries": {str(k): gradient[k].item() for k in (0, middle, gradient.numel() - 1)},
        }
    entries = json.loads(config.to_json_string(use_diff=False))
    kept = {key: value for key, value in entries.items() if key in KEYS and value is not None}
    return {
        "config": kept,
        "names": list(tensors),
        "tokens": tokens,
        "spans": spans,
        "temperature": temperature,
        "logits": raw[-1].tolist(),
        "greedy": greedy(model, tokens, 24),
        "logprobs": taken.tolist(),
        "entropies": entropy.tolist(),
        "loss": loss.item(),
        "gradients": gradients,
    }


# What of config.json says how the model computes.
KEYS = {
    "model_type", "architectures", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "max_position_embeddings",
    "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "tie_word_embeddings", "attention_bias",
    "mlp_bias", "use_sliding_window", "layer_types", "initializer_range",
}


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return value


def write(script, content):
    """Writes <folder of the script>/<its name>.json."""
    folder = pathlib.Path(script).parent
    path = folder / f"{folder.name}.json"
    path.write_text(json.dumps(rounded(content), separators=(",", ":")) + "\n")
