#!/usr/bin/env python3
"""What `transformers` computes with SmolLM2-135M-Instruct, for crates/cli/tests/it/pretrained.rs.

    python smollm2.py MODEL > smollm2.json        # torch 2.13, transformers 5.19, f32

Greedy answers, and log-probabilities of those answers and of one that the model would hardly give.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

QUESTIONS = ["What is the capital of France?", "Name three colours.", "What is 2 + 2?"]
UNLIKELY = "Blue cheese, of course."
NEW = 24

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
found = []
for question in QUESTIONS:
    text = tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        made = model.generate(torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False, temperature=None, top_p=None, top_k=None)
    greedy = made[0, len(prompt) :].tolist()
    scored = []
    for response in [greedy, tokenizer(UNLIKELY, add_special_tokens=False)["input_ids"]]:
        with torch.no_grad():
            logits = model(torch.tensor([prompt + response])).logits[0].float()
        logprobs = torch.log_softmax(logits[len(prompt) - 1 : -1], -1)[torch.arange(len(response)), torch.tensor(response)]
        scored.append({"response": response, "logprobs": [round(value, 6) for value in logprobs.tolist()]})
    answer = tokenizer.decode(greedy, skip_special_tokens=True).strip()
    found.append({"question": question, "prompt": prompt, "answer": answer, "scored": scored})
json.dump(found, sys.stdout)
print()
