"""Writes qwen2_5_vl.json, qwen2_vl.json and processor.json: what transformers' Qwen2.5-VL, Qwen2-VL and their image
processor compute; and jpeg.json: JPEG files and the pixels that Pillow reads from them.

    pip install torch transformers pillow torchvision
    python make.py

Weights come from the formula of ../decoder.py, which the Rust test repeats, and pixels from
    (37 y + 11 x + 50 c + 7 ((x y) % 23)) % 256   for row y, column x, channel c.
The model runs in float64. The processor is the one of PIL; that of torchvision, which rounds its
coefficients differently, is at most two levels of 255 away (`torchvision` in processor.json).
"""

import io
import json
import pathlib
import sys

import numpy as np
import torch
from PIL import Image
from transformers import (
    Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLConfig, Qwen2VLForConditionalGeneration,
)
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl
from transformers.models.qwen2_vl import modeling_qwen2_vl
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from decoder import formula, in_double, rounded  # noqa: E402

MEAN = [0.48145466, 0.4578275, 0.40821073]
STD = [0.26862954, 0.26130258, 0.27577711]


def picture(height, width):
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    return ((37 * y + 11 * x + 50 * c + 7 * ((x * y) % 23)) % 256).astype(np.uint8)


def processor():
    """Sizes, levels after resizing, and normalised patches."""
    sizes = []
    for height, width, least, most in [
        (96, 96, 3136, 1003520), (256, 256, 3136, 1003520), (300, 300, 3136, 1003520), (14, 14, 3136, 1003520),
        (42, 70, 784, 1003520), (98, 126, 784, 1003520), (1, 200, 3136, 1003520), (3000, 2000, 3136, 1003520),
        (1000, 17, 3136, 12845056), (5000, 4000, 3136, 12845056), (30, 4000, 3136, 50000), (57, 55, 3136, 4000),
    ]:
        sizes.append([height, width, least, most, *smart_resize(height, width, 28, least, most)])
    cases = []
    for height, width, least, most in [(9, 13, 784, 100000), (101, 61, 784, 2500), (70, 40, 784, 3000), (56, 28, 784, 10000)]:
        image = Image.fromarray(picture(height, width))
        size = dict(shortest_edge=least, longest_edge=most)
        found = Qwen2VLImageProcessorPil(size=size)(image, return_tensors="pt")
        other = Qwen2VLImageProcessor(size=size)(image, return_tensors="pt")
        _, rows, columns = found["image_grid_thw"][0].tolist()
        levels = np.asarray(image.resize((columns * 14, rows * 14), Image.BICUBIC))
        apart = (found["pixel_values"] - other["pixel_values"]).abs().max().item() * 255 * max(STD)
        assert apart < 2.2, apart
        cases.append({
            "input": [height, width, least, most],
            "grid": [rows, columns],
            "levels": levels.tobytes().hex(),
            "torchvision": apart,
            "every_97th": found["pixel_values"].flatten()[::97].tolist(),
        })
    return {"sizes": sizes, "cases": cases}


def jpegs():
    """A smooth picture in every form of JPEG that is common, and one of a CMYK printer."""
    found = {}
    for name, mode, height, width, options in [
        ("444", "RGB", 17, 23, dict(subsampling=0)),
        ("422", "RGB", 32, 40, dict(subsampling=1)),
        ("420", "RGB", 17, 23, dict(subsampling=2)),
        ("grey", "L", 17, 23, {}),
        ("progressive", "RGB", 33, 45, dict(progressive=True)),
        ("restarts", "RGB", 33, 45, dict(restart_marker_blocks=2)),
        ("cmyk", "CMYK", 17, 23, {}),
    ]:
        y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
        levels = 127 + 60 * np.sin(0.21 * x + 0.13 * y + c) + 50 * np.cos(0.17 * y * (c + 1) - 0.05 * x)
        file = io.BytesIO()
        image = Image.fromarray(levels.clip(0, 255).astype(np.uint8))
        image.convert(mode).save(file, "JPEG", quality=85, **options)
        read = Image.open(io.BytesIO(file.getvalue())).convert("RGB")
        found[name] = {"file": file.getvalue().hex(), "size": [height, width], "rgb": read.tobytes().hex()}
    return found


def patches(levels, patch, merge, temporal):
    image = (torch.tensor(levels).double() / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
    image = image.permute(2, 0, 1)[None]
    found, rows, columns = Qwen2VLImageProcessor.patchify(None, image, patch, merge, temporal)
    return found[0], [1, rows, columns]


def entries(tensor, count=16):
    flat = tensor.detach().flatten()
    step = max(1, flat.numel() // count)
    return {"norm": flat.norm().item(), "step": step, "values": flat[::step].tolist()}


def windowed(patch, window, full):
    """The tower of Qwen2.5-VL."""
    vision = dict(
        depth=4, hidden_size=24, intermediate_size=20, num_heads=2, patch_size=patch, window_size=window,
        out_hidden_size=32, fullatt_block_indexes=full,
    )
    return Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, vision


def whole(patch):
    """The tower of Qwen2-VL."""
    vision = dict(depth=3, embed_dim=24, hidden_size=32, mlp_ratio=2, num_heads=2, patch_size=patch)
    return Qwen2VLConfig, Qwen2VLForConditionalGeneration, vision


def shapes_of_2b():
    """A config with the shapes of Qwen2-VL-2B, and its number of parameters. No weight is allocated."""
    config = Qwen2VLConfig(
        text_config=dict(
            vocab_size=151936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
            num_key_value_heads=2, rope_parameters=dict(rope_theta=1e6, rope_type="default", mrope_section=[16, 24, 24]),
        ),
        vision_config=dict(depth=32, embed_dim=1280, hidden_size=1536, mlp_ratio=4, num_heads=16),
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = Qwen2VLForConditionalGeneration(config)
    return {
        "config": json.loads(config.to_json_string(use_diff=False)),
        "parameters": sum(tensor.numel() for tensor in model.parameters()),
    }


def case(name, kind, pictures, texts, tied):
    of, architecture, vision = kind
    patch = vision["patch_size"]
    config = of(
        text_config=dict(
            vocab_size=64, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-6, bos_token_id=1, eos_token_id=2,
            rope_parameters=dict(rope_theta=10000.0, rope_type="default", mrope_section=[1, 2, 1]),
        ),
        vision_config=vision,
        image_token_id=60, video_token_id=61, vision_start_token_id=58, vision_end_token_id=59,
        tie_word_embeddings=tied,
    )
    model = architecture._from_config(config, attn_implementation="eager").double().eval()
    for module in (model.model.language_model.rotary_emb, model.model.visual.rotary_pos_emb):
        assert module.inv_freq.dtype == torch.float64
    tensors = dict(model.named_parameters())
    names = [n.replace("model.visual.", "visual.").replace("model.language_model.", "model.") for n in tensors]
    with torch.no_grad():
        for t, (key, tensor) in enumerate(tensors.items()):
            values = formula(t, tensor.numel()).reshape(tensor.shape)
            norm = tensor.dim() == 1 and key.endswith(".weight")
            scale = 0.02 if "patch_embed" in key else 0.25
            tensor.copy_(1 + 0.2 * values if norm else scale * values)

    pixels, grids = zip(*[patches(picture(h, w), patch, 2, 2) for h, w in pictures])
    counts = [g[1] * g[2] // 4 for g in grids]

    def tokens_of(texts, counts):
        tokens = list(texts[0])
        for count, text in zip(counts, texts[1:]):
            tokens += [58] + [60] * count + [59] + list(text)
        return tokens

    def run(tokens, images, **more):
        ids = torch.tensor([tokens])
        kinds = (ids == 60).int()
        return model(
            input_ids=ids, mm_token_type_ids=kinds, pixel_values=torch.cat(pixels[:images]),
            image_grid_thw=torch.tensor(grids[:images]), use_cache=False, **more,
        )

    tokens = tokens_of(texts, counts)
    grid = torch.tensor(grids)
    tower = model.model.visual(torch.cat(pixels), grid_thw=grid, output_hidden_states=True)
    ids = torch.tensor([tokens])
    positions, delta = model.model.get_rope_index(ids, (ids == 60).int(), image_grid_thw=grid)
    out = run(tokens, len(pictures), output_hidden_states=True)
    logprobs = torch.log_softmax(out.logits[0], -1)
    taken_at = [p for p in range(1, len(tokens)) if tokens[p] < 58 and tokens[p - 1] < 58][-12:]
    taken = torch.stack([logprobs[p - 1, tokens[p]] for p in taken_at])
    loss = (torch.sin(0.7 * torch.arange(len(taken_at))) * taken).sum()
    loss.backward()
    gradients = {new: entries(tensor.grad, 3) for new, tensor in zip(names, tensors.values())}

    # A conversation: every turn brings the next picture and gets five of the likeliest tokens.
    turns, so_far, chosen = [], [], []
    with torch.no_grad():
        so_far = tokens_of(texts[:2], counts[:1])
        for turn in range(len(pictures)):
            if turn:
                so_far += [58] + [60] * counts[turn] + [59] + list(texts[turn + 1])
            reply = []
            for _ in range(5):
                best = run(so_far, turn + 1).logits[0, -1].topk(2)
                assert best.values[0] - best.values[1] > 1e-4, (name, turn, best)
                reply.append(best.indices[0].item())
                so_far.append(reply[-1])
            turns.append(reply)
    return {
        "config": json.loads(config.to_json_string(use_diff=False)),
        "names": names,
        "pictures": pictures,
        "texts": texts,
        "tokens": tokens,
        "positions": positions[:, 0].T.tolist(),
        "delta": delta.flatten()[0].item(),
        "tower": [entries(h) for h in tower.hidden_states],
        "features": entries(tower.pooler_output if torch.is_tensor(tower.pooler_output) else torch.cat(tower.pooler_output), 64),
        "logits": out.logits[0, -1].tolist(),
        "taken_at": taken_at,
        "logprobs": taken.tolist(),
        "gradients": gradients,
        "turns": turns,
    }


def write(name, content):
    (HERE / f"{name}.json").write_text(json.dumps(rounded(content), separators=(",", ":")) + "\n")


write("processor", processor())
write("jpeg", jpegs())
in_double(modeling_qwen2_5_vl)
in_double(modeling_qwen2_vl)
write("qwen2_5_vl", {
    # 6 x 5 and 4 x 4 merged tokens: windows cut by the edge, and a picture that is one window exactly.
    "windows": case(
        "windows", windowed(14, 112, [1, 3]), [[168, 140], [112, 112]], [[3, 9, 27], [5, 6, 7], [8, 11, 13, 17]], True
    ),
    # One row of merged tokens, small patches and windows, and a picture before any text.
    "rows": case(
        "rows", windowed(4, 16, [0]), [[8, 40], [40, 24], [8, 8]], [[], [9, 4, 33, 2], [12, 40, 21], [7, 19]], False
    ),
})
write("qwen2_vl", {
    # Pictures of several rows, of one row, and of one merged token.
    "whole": case("whole", whole(4), [[24, 40], [8, 32], [8, 8]], [[56, 22], [33, 25, 40], [16, 35, 11], [21, 11]], True),
    "2b": shapes_of_2b(),
})
