"""What transformers computes with small BERTs, for bert.json: `python make.py > bert.json`.

Weights come from a formula that the Rust test repeats, so that the file holds results only: element i (row-major, from 0)
of tensor number t (in the order that the file lists) is sin(0.37 i + 1.7 t + 0.3 sin(0.011 i)) * 0.25, and 1 + 0.2 of the
sine for weights of LayerNorm. Everything runs in float64. `hidden` are the states of every sequence, `vectors` what
E5's model card computes of them: the mean over a sequence's tokens, divided by its length.
"""

import json

import torch
from transformers import BertConfig, BertForMaskedLM, BertModel

torch.set_default_dtype(torch.float64)
SEQUENCES = [[2, 7, 19, 4, 3], [2, 11, 3], [2, 30, 5, 30, 5, 9, 14, 3], [2, 3]]


def formula(t, count):
    i = torch.arange(count).double()
    return torch.sin(0.37 * i + 1.7 * t + 0.3 * torch.sin(0.011 * i))


def case(architecture, **changes):
    settings = dict(
        vocab_size=31,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=12,
        hidden_act="gelu",
    )
    settings.update(changes)
    config = BertConfig(**settings)
    model = architecture._from_config(config, attn_implementation="eager").double().eval()
    tensors = []
    for t, (name, parameter) in enumerate(model.named_parameters()):
        values = formula(t, parameter.numel()).reshape(parameter.shape)
        norm = name.endswith("LayerNorm.weight")
        parameter.data = 1 + 0.2 * values if norm else 0.25 * values
        tensors.append([name, list(parameter.shape)])
    longest = max(map(len, SEQUENCES))
    tokens = torch.tensor([s + [0] * (longest - len(s)) for s in SEQUENCES])
    mask = torch.tensor([[1] * len(s) + [0] * (longest - len(s)) for s in SEQUENCES])
    encoder = getattr(model, "bert", model)
    with torch.no_grad():
        states = encoder(input_ids=tokens, attention_mask=mask).last_hidden_state
    mean = (states * mask[..., None]).sum(1) / mask.sum(1)[..., None]
    vectors = torch.nn.functional.normalize(mean, p=2, dim=1)
    return {
        "config": {**settings, "model_type": "bert", "layer_norm_eps": config.layer_norm_eps},
        "tensors": tensors,
        "hidden": [states[k, : len(s)].flatten().tolist() for k, s in enumerate(SEQUENCES)],
        "vectors": vectors.tolist(),
    }


print(
    json.dumps(
        {
            "sequences": SEQUENCES,
            "cases": {
                "gelu": case(BertModel),
                "gelu_new": case(BertModel, hidden_act="gelu_new", num_hidden_layers=1),
                "with_a_head": case(BertForMaskedLM, num_hidden_layers=3, num_attention_heads=2, hidden_act="relu"),
            },
        }
    )
)
