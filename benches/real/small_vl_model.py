"""Writes a small random Qwen2.5-VL model, so that pictures can be tested on a real inference server without a download:

    path/to/venv/bin/python benches/real/small_vl_model.py path/to/SmolLM2 FOLDER
    vllm serve FOLDER --port 8000 --dtype float32 --logprobs-mode processed_logprobs --generation-config vllm --enable-scale-out \\
        --enable-lora --max-loras 2 --max-model-len 1024
    TURNWISE_VLLM_URL=http://127.0.0.1:8000 TURNWISE_VLLM_MODEL=FOLDER \\
        cargo test --release -p turnwise-remote --lib --test engines -- --nocapture greedy_responses real_vllm

The first argument is a folder with a tokenizer. The Python needs torch and transformers. vLLM needs torchvision, and
VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment.
"""

import json
import sys

import torch
from transformers import AutoTokenizer, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

MARKS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]

tokenizer_folder, out = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
tokenizer.add_tokens(MARKS, special_tokens=True)
start, end, image, video = tokenizer.convert_tokens_to_ids(MARKS)
torch.manual_seed(0)
config = Qwen2_5_VLConfig(
    text_config=dict(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=2048, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        rope_parameters=dict(rope_theta=10000.0, rope_type="default", mrope_section=[4, 6, 6]),
    ),
    vision_config=dict(
        depth=4, hidden_size=64, intermediate_size=96, num_heads=2, patch_size=14, window_size=112, out_hidden_size=64,
        fullatt_block_indexes=[1, 3],
    ),
    image_token_id=image, video_token_id=video, vision_start_token_id=start, vision_end_token_id=end,
    tie_word_embeddings=True,
)
model = Qwen2_5_VLForConditionalGeneration(config).float()
# Large enough that pictures and positions matter to every token.
with torch.no_grad():
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            weight.add_(0.1 * torch.randn_like(weight))
        else:
            scale = 0.35 if "embed_tokens" in name else weight.shape[1:].numel() ** -0.5
            weight.copy_(scale * torch.randn_like(weight))
model.save_pretrained(out)
tokenizer.save_pretrained(out)
processor = {
    "image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor",
    "min_pixels": 784, "max_pixels": 200704, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
}
with open(out + "/preprocessor_config.json", "w") as file:
    json.dump(processor, file)
