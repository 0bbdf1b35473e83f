"""Writes turnrd.json: what PyTorch computes for TurnRD, its losses and its training.

    pip install torch
    python make.py

The network is put together from torch.nn.TransformerEncoderLayer and torch.nn.Linear, trajectories are padded and
masked as PyTorch users do it, derivatives come from autograd and updates from torch.optim.AdamW. Weights and inputs
come from a formula that the Rust test repeats:
element i (row-major) of tensor number t (in the order of `names`) is
    sin(0.37 i + 1.7 t + 0.3 sin(0.011 i)) * 0.35,   and 1 + 0.2 of the sine for norm weights;
entry k of the turn vectors of trajectory j is sin(0.9 k + 2.3 j + 0.2), of its goal cos(1.1 k + 0.7 j).
Everything runs in float64, without dropout.
"""

import json
import math
import pathlib

import torch
from torch import nn
from torch.nn import functional

HERE = pathlib.Path(__file__).parent
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)

DIM, HIDDEN, HEADS, LAYERS, FEED_FORWARD, MAX_TURNS = 5, 8, 2, 2, 4, 7
RANK_WEIGHT, RANK_MARGIN, PROGRESS_WEIGHT, VALUE_WEIGHT, VALUE_CLIP = 0.1, 0.1, 0.01, 1.0, 2.0

# turns, return, weight, progress after each turn (None: no signal)
TRAJECTORIES = [
    (4, 1.0, 1.0, [0.0, 0.5, 0.5, 1.0]),
    (1, 0.0, 0.5, [0.25]),
    (7, 0.3, 0.25, [None] * 7),
    (3, 1.0, 0.84, [0.1, None, 0.7]),
    (5, -2.0, 1.0, [0.0, 0.0, 0.2, 0.1, 0.1]),
]


class TurnRd(nn.Module):
    def __init__(self, film):
        super().__init__()
        self.input = nn.Linear(DIM, HIDDEN)
        self.positions = nn.Parameter(torch.zeros(MAX_TURNS, HIDDEN))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                HIDDEN,
                HEADS,
                FEED_FORWARD * HIDDEN,
                dropout=0.0,
                activation=lambda x: functional.gelu(x, approximate="tanh"),
                batch_first=True,
                norm_first=True,
            )
            for _ in range(LAYERS)
        )
        self.film = nn.Linear(DIM, 2 * HIDDEN) if film else None

        def head():
            return nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.GELU(approximate="tanh"), nn.Linear(HIDDEN, 1))

        self.attention, self.value = head(), head()

    def forward(self, turns, goals, padded):
        x = self.input(turns) + self.positions[: turns.shape[1]]
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padded)
        if self.film is not None:
            gamma, beta = self.film(goals).unsqueeze(1).chunk(2, dim=-1)
            x = x * (1 + gamma) + beta
        weights = self.attention(x).squeeze(-1).masked_fill(padded, -math.inf).softmax(-1)
        return weights, self.value(x).squeeze(-1)


def names(film):
    """Tensors in the order of the formula's t."""
    yield from ["input.weight", "input.bias", "positions"]
    for layer in range(LAYERS):
        for part in ["norm1", "self_attn.in_proj_", "self_attn.out_proj", "norm2", "linear1", "linear2"]:
            separator = "" if part.endswith("_") else "."
            yield from [f"layers.{layer}.{part}{separator}{kind}" for kind in ("weight", "bias")]
    for part in ["attention.0", "attention.2", "value.0", "value.2"] + (["film"] if film else []):
        yield from [f"{part}.weight", f"{part}.bias"]


def fill(model, film):
    parameters = dict(model.named_parameters())
    assert set(parameters) == set(names(film))
    for t, name in enumerate(names(film)):
        i = torch.arange(parameters[name].numel())
        base = torch.sin(0.37 * i + 1.7 * t + 0.3 * torch.sin(0.011 * i)).reshape(parameters[name].shape)
        norm = "norm" in name and name.endswith("weight")
        parameters[name].data = 1 + 0.2 * base if norm else 0.35 * base


def batch():
    longest = max(turns for turns, *_ in TRAJECTORIES)
    vectors = torch.zeros(len(TRAJECTORIES), longest, DIM)
    padded = torch.ones(len(TRAJECTORIES), longest, dtype=torch.bool)
    for j, (turns, *_) in enumerate(TRAJECTORIES):
        vectors[j, :turns] = torch.sin(0.9 * torch.arange(turns * DIM) + 2.3 * j + 0.2).reshape(turns, DIM)
        padded[j, :turns] = False
    goals = torch.stack([torch.cos(1.1 * torch.arange(DIM) + 0.7 * j) for j in range(len(TRAJECTORIES))])
    return vectors, goals, padded


def targets(progress, change):
    if not change:
        return progress
    before, found = 0.0, []
    for level in progress:
        found.append(None if before is None or level is None else level - before)
        before = level
    return found


def losses(weights, values, change):
    sample_weights = torch.tensor([weight for _, _, weight, _ in TRAJECTORIES])
    returns = torch.tensor([ret for _, ret, _, _ in TRAJECTORIES])
    estimates = (weights * values).sum(-1)
    prediction = (sample_weights * (estimates - returns) ** 2).sum() / sample_weights.sum()
    hinge, pairs = 0.0, 0.0
    for i, better in enumerate(returns):
        for j, worse in enumerate(returns):
            if better > worse:
                pair = sample_weights[i] * sample_weights[j]
                hinge = hinge + pair * torch.relu(RANK_MARGIN - (estimates[i] - estimates[j]))
                pairs = pairs + pair
    prior, value, supervised = 0.0, 0.0, 0.0
    for j, (turns, _, weight, progress) in enumerate(TRAJECTORIES):
        steps = targets(progress, True)
        if any(step is None for step in steps):
            steps = [(t + 1) / turns for t in range(turns)]
        wanted = torch.tensor(steps).softmax(0)
        own = weights[j, :turns]
        prior = prior + weight * functional.kl_div(wanted.log(), own, reduction="sum")
        for t, target in enumerate(targets(progress, change)):
            if target is not None:
                value = value + weight * (values[j, t] - target) ** 2
                supervised += weight
    parts = {
        "prediction": prediction,
        "rank": hinge / pairs,
        "prior": prior / sample_weights.sum(),
        "value": value / supervised,
    }
    parts["total"] = (
        parts["prediction"]
        + RANK_WEIGHT * parts["rank"]
        + PROGRESS_WEIGHT * parts["prior"]
        + VALUE_WEIGHT * parts["value"]
    )
    return parts, estimates


def case(film, change):
    model = TurnRd(film)
    fill(model, film)
    model.train()
    vectors, goals, padded = batch()
    parameters = dict(model.named_parameters())
    decays = [p for p in parameters.values() if p.ndim > 1]
    plain = [p for p in parameters.values() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": decays}, {"params": plain, "weight_decay": 0.0}], lr=5e-4, weight_decay=0.01)
    found = {"film": film, "change": change, "trajectories": [], "steps": []}
    for step in range(5):
        weights, values = model(vectors, goals, padded)
        parts, estimates = losses(weights, values, change)
        if step == 0:
            for j, (turns, ret, *_) in enumerate(TRAJECTORIES):
                clipped = values[j, :turns].clamp(-VALUE_CLIP, VALUE_CLIP)
                found["trajectories"].append(
                    {
                        "weights": weights[j, :turns].tolist(),
                        "values": values[j, :turns].tolist(),
                        "estimate": estimates[j].item(),
                        "credits": (clipped - (clipped.sum() - ret) / turns).tolist(),
                    }
                )
        optimizer.zero_grad()
        parts["total"].backward()
        if step == 0:
            found["gradients"] = {
                name: [parameters[name].grad.sum().item(), parameters[name].grad.norm().item()]
                for name in names(film)
            }
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found["steps"].append({name: part.item() for name, part in parts.items()} | {"grad_norm": norm.item()})
    return found


answer = {
    "input_dim": DIM,
    "trajectories": [
        {"turns": turns, "ret": ret, "weight": weight, "progress": progress}
        for turns, ret, weight, progress in TRAJECTORIES
    ],
    "names": {"film": list(names(True)), "blind": list(names(False))},
    "cases": [case(film, change) for film in (True, False) for change in (False, True)],
}
(HERE / "turnrd.json").write_text(json.dumps(answer, indent=1) + "\n")
