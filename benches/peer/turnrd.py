"""TurnRD in PyTorch beside Turnwise's, on the same machine and shapes; prints turns per second and ratios.

    pip install torch
    cargo bench -p turnwise-decompose --bench turnrd
    python benches/peer/turnrd.py [--threads 2] [--target target]

64 trajectories of 20 turns, vectors of width 1536, hidden width 128, two layers, FiLM; one epoch in minibatches of 16 with
all four losses, dropout 0.1, gradient clipping and fused AdamW. All trajectories have one length, so that PyTorch wastes nothing on padding. The network is made of
torch.nn.TransformerEncoderLayer. Turnwise's numbers are read from criterion's files.
"""

import argparse
import json
import os
import pathlib
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

TRAJECTORIES, TURNS, WIDTH, HIDDEN, BATCH = 64, 20, 1536, 128, 16


class TurnRd(nn.Module):
    def __init__(self):
        super().__init__()
        self.input = nn.Linear(WIDTH, HIDDEN)
        self.positions = nn.Parameter(0.02 * torch.randn(50, HIDDEN))
        layer = nn.TransformerEncoderLayer(
            HIDDEN, 4, 4 * HIDDEN, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.film = nn.Linear(WIDTH, 2 * HIDDEN)
        nn.init.zeros_(self.film.weight)
        nn.init.zeros_(self.film.bias)

        def head():
            return nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, 1))

        self.attention, self.value = head(), head()

    def forward(self, turns, goals):
        x = self.encoder(self.input(turns) + self.positions[: turns.shape[1]])
        gamma, beta = self.film(goals).unsqueeze(1).chunk(2, dim=-1)
        x = x * (1 + gamma) + beta
        return self.attention(x).squeeze(-1).log_softmax(-1), self.value(x).squeeze(-1)


def loss_of(log_weights, values, returns, progress):
    weights = log_weights.exp()
    estimates = (weights * values).sum(-1)
    gap = estimates.unsqueeze(1) - estimates.unsqueeze(0)
    pairs = (returns.unsqueeze(1) > returns.unsqueeze(0)).float()
    hinge = (pairs * torch.relu(0.1 - gap)).sum() / pairs.sum().clamp(min=1)
    before = functional.pad(progress, (1, 0))[:, :-1]
    prior = (weights * (log_weights - (progress - before).log_softmax(-1))).sum(-1).mean()
    return functional.mse_loss(estimates, returns) + 0.1 * hinge + 0.01 * prior + functional.mse_loss(values, progress)


def credits_of(values, returns):
    clipped = values.clamp(-2, 2)
    return clipped - (clipped.sum(-1, keepdim=True) - returns.unsqueeze(1)) / TURNS


def median_seconds(work, repeats):
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--target", default=os.environ.get("CARGO_TARGET_DIR", "target"))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)
    turns, goals = torch.randn(TRAJECTORIES, TURNS, WIDTH), torch.randn(TRAJECTORIES, WIDTH)
    returns = (torch.arange(TRAJECTORIES) % 2).float()
    progress = (torch.arange(TURNS) / TURNS).repeat(TRAJECTORIES, 1)
    model = TurnRd()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)

    @torch.inference_mode()
    def credits():
        model.eval()
        _, values = model(turns, goals)
        return credits_of(values, returns)

    def train():
        model.train()
        for indices in torch.randperm(TRAJECTORIES).split(BATCH):
            optimizer.zero_grad()
            loss_of(*model(turns[indices], goals[indices]), returns[indices], progress[indices]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    print(f"torch {torch.__version__}, {arguments.threads} threads, {TRAJECTORIES} x {TURNS} turns of width {WIDTH}")
    for name, work in [("credits", credits), ("train", train)]:
        theirs = TRAJECTORIES * TURNS / median_seconds(work, arguments.repeats)
        path = pathlib.Path(arguments.target) / "criterion" / "turnrd" / name / "new" / "estimates.json"
        line = f"{name:8} PyTorch {theirs:9.0f} turns/s"
        if path.exists():
            ours = TRAJECTORIES * TURNS / (json.loads(path.read_text())["median"]["point_estimate"] * 1e-9)
            line += f"   Turnwise {ours:9.0f} turns/s   ratio {ours / theirs:.2f}"
        else:
            line += f"   ({path} is not there: run cargo bench -p turnwise-decompose --bench turnrd)"
        print(line)


if __name__ == "__main__":
    main()
