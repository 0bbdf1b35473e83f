"""Writes qwen3.json: what transformers' Qwen3 computes. ../decoder.py says how the weights are made.

    pip install torch transformers
    python make.py
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import decoder
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3 import modeling_qwen3

decoder.in_double(modeling_qwen3)

# Heads together are wider than the residual stream in one and narrower in the other.
CASES = {
    "tied": Qwen3Config(
        vocab_size=29, hidden_size=16, intermediate_size=22, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=6, max_position_embeddings=128, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, tie_word_embeddings=True,
    ),
    "untied": Qwen3Config(
        vocab_size=31, hidden_size=40, intermediate_size=20, num_hidden_layers=3, num_attention_heads=3,
        num_key_value_heads=1, head_dim=12, max_position_embeddings=128, rms_norm_eps=1e-6,
        rope_parameters={
            "rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 32,
        },
        tie_word_embeddings=False, attention_bias=True,
    ),
}

if __name__ == "__main__":
    decoder.write(__file__, {name: decoder.case(config, Qwen3ForCausalLM) for name, config in CASES.items()})
