"""Batched sampling tokens per second of `transformers`: `generate` with its key-value cache."""

import argparse
import statistics

import torch

from peer_common import new_model, report, set_up, timed
from shapes import NEW_TOKENS, NUMBERS, PROMPT_LENGTH, PROMPTS, SHAPES


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--compute", choices=NUMBERS, default="f32", help="bf16: the whole model is converted")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()

    set_up(arguments.threads)
    shape = SHAPES[arguments.shape]
    model = new_model(shape).eval()
    if arguments.compute == "bf16":
        model = model.to(torch.bfloat16)
    prompts = torch.randint(shape.vocab, (PROMPTS, PROMPT_LENGTH))
    mask = torch.ones_like(prompts)

    @torch.inference_mode()
    def step():
        ids = model.generate(
            prompts,
            attention_mask=mask,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=NEW_TOKENS,
            use_cache=True,
        )
        assert ids.shape == (PROMPTS, PROMPT_LENGTH + NEW_TOKENS)

    seconds = statistics.median(timed(step, arguments.warmup, arguments.steps))
    report(tokens_per_s=PROMPTS * NEW_TOKENS / seconds)


if __name__ == "__main__":
    main()
