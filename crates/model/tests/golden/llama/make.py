"""Writes llama.json: what transformers' Llama computes. ../decoder.py says how the weights are made.

    pip install torch transformers
    python make.py
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import decoder
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

decoder.in_double(modeling_llama)

CASES = {
    # Low, middle and high frequencies are all there.
    "tied": LlamaConfig(
        vocab_size=29, hidden_size=32, intermediate_size=22, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, rms_norm_eps=1e-5,
        rope_parameters={
            "rope_type": "llama3", "rope_theta": 1000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
        },
        tie_word_embeddings=True,
    ),
    "untied": LlamaConfig(
        vocab_size=31, hidden_size=24, intermediate_size=20, num_hidden_layers=3, num_attention_heads=3,
        num_key_value_heads=3, head_dim=6, max_position_embeddings=128, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
        tie_word_embeddings=False, attention_bias=True, mlp_bias=True,
    ),
    "plain": LlamaConfig(
        vocab_size=23, hidden_size=16, intermediate_size=20, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=False,
    ),
}

if __name__ == "__main__":
    decoder.write(__file__, {name: decoder.case(config, LlamaForCausalLM) for name, config in CASES.items()})
