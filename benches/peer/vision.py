"""A vision tower in PyTorch and in Turnwise, in one run: forward, and forward with backward, in f32 on the CPU.

    python benches/peer/vision.py [--threads 2] [--repeats 5] [--only tower-3b]

Both sides load the same folder with random weights and read the same pictures with the same text; the sums of their
log-probs and the norms of their gradients must agree. The decoder has one small layer, so the tower takes nearly all of
the time. `tower-3b` has the shapes of Qwen2.5-VL-3B's tower at a depth of 4, one of them with full attention. The last
lines repeat pictures, as Sokoban repeats states: Turnwise encodes a picture once.

Needs torch, transformers and numpy, and `cargo`, which builds the example `vision_speed`.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

import torch
from peer_common import set_up, timed
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMAGE, START, END, TEXT = 60, 58, 59, 6
MEAN, STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]

TOWERS = {
    "tower-3b": dict(
        depth=4, hidden_size=1280, intermediate_size=3420, num_heads=16, patch_size=14, window_size=112,
        out_hidden_size=2048, fullatt_block_indexes=[3],
    ),
    "small": dict(
        depth=4, hidden_size=64, intermediate_size=160, num_heads=4, patch_size=4, window_size=32, out_hidden_size=64,
        fullatt_block_indexes=[3],
    ),
}
# Name, tower, pictures, sequences, pixels of a side.
CASES = [
    ("one picture", "tower-3b", 1, 1, 252),
    ("4 pictures", "tower-3b", 4, 4, 252),
    ("32 pictures", "small", 32, 32, 96),
    ("2 pictures, each 4 times", "tower-3b", 2, 8, 252),
    ("8 pictures, each 8 times", "small", 8, 64, 96),
]


def new_model(tower):
    hidden = tower["out_hidden_size"]
    config = Qwen2_5_VLConfig(
        text_config=dict(
            vocab_size=64, hidden_size=hidden, intermediate_size=hidden // 4, num_hidden_layers=1,
            num_attention_heads=hidden // 16 if hidden < 128 else hidden // 128, num_key_value_heads=2,
            max_position_embeddings=4096, rms_norm_eps=1e-6, bos_token_id=1, eos_token_id=2,
            rope_parameters=dict(
                rope_theta=1e6, rope_type="default", mrope_section=[2, 3, 3] if hidden < 128 else [16, 24, 24]
            ),
        ),
        vision_config=tower, image_token_id=IMAGE, video_token_id=61, vision_start_token_id=START,
        vision_end_token_id=END, tie_word_embeddings=True,
    )
    return Qwen2_5_VLForConditionalGeneration._from_config(config, attn_implementation="sdpa").float().eval()


def patches(index, pixels, side):
    """A picture as the image processor gives it."""
    y, x, c = torch.meshgrid(torch.arange(pixels), torch.arange(pixels), torch.arange(3), indexing="ij")
    levels = (37 * y + 11 * x + 50 * c + 61 * index) % 256
    image = ((levels / 255 - torch.tensor(MEAN)) / torch.tensor(STD)).permute(2, 0, 1)
    merged = pixels // side // 2
    image = image.reshape(3, merged, 2, side, merged, 2, side).permute(1, 4, 2, 5, 0, 3, 6)
    image = image.reshape(merged * merged * 4, 3, 1, side, side).expand(-1, -1, 2, -1, -1)
    return image.reshape(merged * merged * 4, -1), merged


def pytorch(model, tower, pictures, sequences, pixels, repeats):
    found = [patches(index, pixels, tower["patch_size"]) for index in range(pictures)]
    merged = found[0][1]
    tokens = [
        [START] + [IMAGE] * merged**2 + [END] + [(position + index) % 50 for position in range(TEXT)]
        for index in range(sequences)
    ]
    ids = torch.tensor(tokens)
    inputs = dict(
        input_ids=ids, mm_token_type_ids=(ids == IMAGE).int(), use_cache=False,
        pixel_values=torch.cat([found[index % pictures][0] for index in range(sequences)]),
        image_grid_thw=torch.tensor([[1, 2 * merged, 2 * merged]] * sequences),
    )

    def logprobs():
        logits = model(**inputs).logits[:, -TEXT:-1]
        scores = torch.log_softmax(logits, -1).gather(2, ids[:, 1 - TEXT :, None])
        return scores.sum()

    def training():
        model.zero_grad()
        (-logprobs()).backward()

    with torch.no_grad():
        total = logprobs().item()
        forward = timed(logprobs, 1, repeats)
    seconds = timed(training, 1, repeats)
    gradient = sum(p.grad.double().square().sum() for p in model.parameters() if p.grad is not None).sqrt().item()
    return {"forward_s": forward, "training_s": seconds, "logprobs": total, "gradient": gradient}


def turnwise(program, folder, pictures, sequences, pixels, repeats, threads):
    arguments = dict(
        model=folder, pictures=pictures, sequences=sequences, side=pixels, text=TEXT, repeats=repeats, lanes=threads
    )
    words = [program] + [f"{key}={value}" for key, value in arguments.items()]
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
    return json.loads(subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=TOWERS)
    parser.add_argument("--program", help="a built example `vision_speed`, instead of building it")
    options = parser.parse_args()
    program = options.program
    if program is None:
        build = ["cargo", "build", "--release", "-p", "turnwise-model", "--example", "vision_speed"]
        subprocess.run(build, cwd=ROOT, check=True)
        program = ROOT / "target/release/examples/vision_speed"
    set_up(options.threads)
    print("| tower | batch | pass | PyTorch | Turnwise | times as fast |\n|---|---|---|---|---|---|")
    for name, kind, pictures, sequences, pixels in CASES:
        if options.only not in (None, kind):
            continue
        tower = TOWERS[kind]
        model = new_model(tower)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            settings = dict(min_pixels=64, max_pixels=1 << 24, image_mean=MEAN, image_std=STD)
            (pathlib.Path(folder) / "preprocessor_config.json").write_text(json.dumps(settings))
            own = turnwise(program, folder, pictures, sequences, pixels, options.repeats, options.threads)
        peer = pytorch(model, tower, pictures, sequences, pixels, options.repeats)
        for key in ("logprobs", "gradient"):
            assert abs(own[key] - peer[key]) <= 2e-3 * abs(peer[key]), (name, key, own[key], peer[key])
        for key, label in (("forward_s", "forward"), ("training_s", "forward and backward")):
            ours, theirs = (statistics.median(side[key]) for side in (own, peer))
            print(f"| {kind} | {name} | {label} | {theirs:.3f} s | {ours:.3f} s | {theirs / ours:.2f} |", flush=True)


if __name__ == "__main__":
    main()
