"""Training tokens per second of PyTorch: forward, backward and AdamW on one batch after another."""

import argparse
import contextlib
import statistics

import torch
import torch.nn.functional as F

from peer_common import new_model, report, set_up, timed
from shapes import NUMBERS, SHAPES


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--compute", choices=NUMBERS, default="f32", help="bf16: PyTorch's autocast, weights stay f32")
    parser.add_argument("--compile", action="store_true", help="compile the model with TorchInductor first")
    arguments = parser.parse_args()

    set_up(arguments.threads)
    shape = SHAPES[arguments.shape]
    model = new_model(shape).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.01, fused=True)

    def autocast():
        if arguments.compute == "f32":
            return contextlib.nullcontext()
        return torch.autocast("cpu", dtype=torch.bfloat16)

    def loss_of(ids):
        # All sequences have one length, so there is no padding and SDPA takes its causal kernel.
        with autocast():
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits
            return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    if arguments.compile:
        loss_of = torch.compile(loss_of)

    def step():
        ids = torch.randint(shape.vocab, (shape.sequences, shape.length + 1))
        loss_of(ids).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    seconds = statistics.median(timed(step, arguments.warmup, arguments.steps))
    report(tokens_per_s=shape.tokens / seconds, parameters=sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    main()
