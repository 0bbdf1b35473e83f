"""Adapters that PEFT initialises, for tests that load them."""

import torch
from peft import LoraConfig, get_peft_model


def write_theirs(folder, settings, load, logprobs):
    """Writes an adapter with random weights for each entry of `settings`, on a model that `load` returns. Returns the
    log-probs of each adapted model by name."""
    torch.manual_seed(0)
    found = {}
    for name, options in settings.items():
        model = get_peft_model(load(), LoraConfig(task_type="CAUSAL_LM", **options))
        with torch.no_grad():
            for key, tensor in model.named_parameters():
                if "lora_" in key:
                    tensor.normal_(std=0.2)
        model.save_pretrained(folder / name)
        found[name] = logprobs(model)
    return found
