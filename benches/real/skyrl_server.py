#!/usr/bin/env python3
"""SkyRL's Tinker server on a CPU, for `benches/real/tinker_service.py`.

    python3.12 -m venv V && V/bin/pip install 'skyrl[tinker,jax]==0.4.0' aiohttp
    JAX_PLATFORMS=cpu V/bin/python benches/real/skyrl_server.py MODEL [--port 8124] [--sequences 8]

MODEL is a folder with a Llama or Qwen3 model in float32. The packages take 6.5 GB. SkyRL starts its engine with `uv run`, which
fetches packages of its own; here the engine runs in this Python. Every pass takes one sequence at a time, so that the number of
sequences in a minibatch needs no compilation of its own.
"""

import argparse
import pathlib
import sys
import tempfile

import uvicorn
from cloudpathlib import AnyPath
from skyrl.tinker import api
from skyrl.tinker.config import EngineConfig, config_to_argv


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model", type=pathlib.Path)
    arguments.add_argument("--port", type=int, default=8124)
    arguments.add_argument("--sequences", type=int, default=8, help="sequences that are sampled at once, always so many")
    options = arguments.parse_args()

    def engine_command(_, config):
        return [sys.executable, "-m", "skyrl.tinker.engine", *config_to_argv(config)]

    api._build_uv_run_cmd_engine = engine_command
    with tempfile.TemporaryDirectory() as folder:
        backend = {"max_lora_adapters": 4, "max_lora_rank": 32, "train_micro_batch_size": 1}
        backend["sample_max_num_sequences"] = options.sequences
        api.app.state.engine_config = EngineConfig(
            base_model=str(options.model.resolve()),
            backend="jax",
            backend_config=backend,
            checkpoints_base=AnyPath(f"{folder}/checkpoints"),
            database_url=f"sqlite:///{folder}/tinker.db",
        )
        uvicorn.run(api.app, host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
