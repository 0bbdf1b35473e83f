"""TRL's GRPOTrainer as its users run it on a CPU: what `trl.py` and `trl_tools.py` share."""

import json
import os
import subprocess
import sys
import tempfile
import time

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def forget_this_folder():
    """Removes this folder from Python's path: `trl.py` has the package's name and would be imported instead."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]


def load_tokenizer(options):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(options.model)


def train(options, tokenizer, rows, reward, steps, rank, learning_rate, settings, **parts):
    """Trains an adapter; returns the seconds of its steps.

    No KL term, so no pass of a reference. One optimizer step for each generation, with gradients accumulated over
    micro-batches of `options.micro` sequences. `settings` are more of GRPOConfig, `parts` more of GRPOTrainer.
    """
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(options.threads)
    dtype = torch.bfloat16 if options.compute == "bf16" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype, attn_implementation="sdpa")
    seconds = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.start = time.perf_counter()

        def on_step_end(self, *_, **__):
            seconds.append(time.perf_counter() - self.start)

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=options.compute == "bf16",
            per_device_train_batch_size=options.micro,
            gradient_accumulation_steps=options.groups * options.size // options.micro,
            num_generations=options.size,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            beta=0.0,
            learning_rate=learning_rate,
            max_steps=steps,
            gradient_checkpointing=False,
            dataloader_num_workers=0,
            logging_steps=1000,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            **settings,
        )
        trainer = GRPOTrainer(
            model=model,
            args=config,
            reward_funcs=reward,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            peft_config=LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=TARGETS),
            callbacks=[Clock()],
            **parts,
        )
        trainer.train()
    assert len(seconds) == steps, seconds
    return seconds


def last_line(command, environment=None):
    """Runs a command; returns the JSON of its last line."""
    made = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(made.stdout.strip().splitlines()[-1])


def trl_side(options):
    """Runs this script again with `--trl-side`; returns the JSON of its last line."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads), TOKENIZERS_PARALLELISM="false")
    return last_line([sys.executable, *sys.argv, "--trl-side"], environment)
