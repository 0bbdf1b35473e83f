"""Loads with PEFT what the test wrote, and writes adapters made by PEFT for the test to load.

    python check.py FOLDER

FOLDER has base/, adapter/ and merged/ and tokens.json. Prints one JSON object: the log-probability of every
token after the first under the base, the base with the adapter, the merged model, and, under theirs, the
same with each adapter that is written to theirs/.
"""

import json
import pathlib
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from adapters import write_theirs

FOLDER = pathlib.Path(sys.argv[1])
TOKENS = torch.tensor([json.loads((FOLDER / "tokens.json").read_text())])
THEIRS = {
    "plain": dict(r=3, lora_alpha=7, target_modules="all-linear"),
    "rslora": dict(r=4, lora_alpha=5, use_rslora=True, target_modules=["q_proj", "down_proj"], lora_dropout=0.1),
    "pattern": dict(r=2, lora_alpha=2.5, target_modules=r".*self_attn\.(k|o)_proj"),
}


def load(name):
    return AutoModelForCausalLM.from_pretrained(FOLDER / name, dtype=torch.float32)


def logprobs(model):
    with torch.no_grad():
        scores = torch.log_softmax(model.eval()(TOKENS).logits[0].double(), -1)
    return scores[:-1].gather(1, TOKENS[0, 1:, None]).squeeze(1).tolist()


found = {
    "base": logprobs(load("base")),
    "adapter": logprobs(PeftModel.from_pretrained(load("base"), FOLDER / "adapter")),
    "merged": logprobs(load("merged")),
    "theirs": write_theirs(FOLDER / "theirs", THEIRS, lambda: load("base"), logprobs),
}
print(json.dumps(found))
