"""Loads with transformers and PEFT what the test wrote, and writes adapters made by PEFT for the test to load.

    python check.py FOLDER

FOLDER has base/, adapter/, merged/ and input.json: tokens, with 60 for each part of a picture, and the sizes of
pictures, whose pixels are those of make.py. Prints one JSON object: the log-probability of every text token after the
first under the base, the base with the adapter, the merged model, and, under theirs, the same with each adapter that is
written to theirs/; and the names of the adapted modules.
"""

import json
import pathlib
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForImageTextToText

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from adapters import write_theirs

FOLDER = pathlib.Path(sys.argv[1])
INPUT = json.loads((FOLDER / "input.json").read_text())
TOKENS = torch.tensor([INPUT["tokens"]])
IMAGE = 60
THEIRS = {
    "attention": dict(r=3, lora_alpha=7, target_modules=["q_proj", "v_proj"]),
    "pattern": dict(r=2, lora_alpha=2.5, target_modules=r".*language_model.*\.(o_proj|down_proj)"),
}


def patches(height, width, side):
    """The picture of make.py in patches of the order in which merged ones lie together."""
    y, x, c = torch.meshgrid(torch.arange(height), torch.arange(width), torch.arange(3), indexing="ij")
    levels = (37 * y + 11 * x + 50 * c + 7 * ((x * y) % 23)) % 256
    settings = json.loads((FOLDER / "base" / "preprocessor_config.json").read_text())
    mean, std = torch.tensor(settings["image_mean"]), torch.tensor(settings["image_std"])
    image = ((levels / 255 - mean) / std).permute(2, 0, 1)
    rows, columns = height // side // 2, width // side // 2
    image = image.reshape(3, rows, 2, side, columns, 2, side).permute(1, 4, 2, 5, 0, 3, 6)
    image = image.reshape(rows * columns * 4, 3, 1, side, side).expand(-1, -1, 2, -1, -1)
    return image.reshape(rows * columns * 4, -1), [1, 2 * rows, 2 * columns]


def load(name):
    model, info = AutoModelForImageTextToText.from_pretrained(
        FOLDER / name, dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    return model


def logprobs(model):
    side = json.loads((FOLDER / "base" / "config.json").read_text())["vision_config"]["patch_size"]
    pixels, grids = zip(*[patches(height, width, side) for height, width in INPUT["pictures"]])
    with torch.no_grad():
        logits = model.eval()(
            input_ids=TOKENS, mm_token_type_ids=(TOKENS == IMAGE).int(), pixel_values=torch.cat(pixels),
            image_grid_thw=torch.tensor(grids),
        ).logits[0].double()
    scores = torch.log_softmax(logits, -1)[:-1].gather(1, TOKENS[0, 1:, None]).squeeze(1)
    return scores[TOKENS[0, 1:] != IMAGE].tolist()


adapted = PeftModel.from_pretrained(load("base"), FOLDER / "adapter")
found = {
    "base": logprobs(load("base")),
    "adapter": logprobs(adapted),
    "modules": [name for name, module in adapted.named_modules() if hasattr(module, "lora_A")],
    "merged": logprobs(load("merged")),
    "theirs": write_theirs(FOLDER / "theirs", THEIRS, lambda: load("base"), logprobs),
}
print(json.dumps(found))
