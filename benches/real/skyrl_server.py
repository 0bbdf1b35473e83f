#!/usr/bin/env python3
"""SkyRL's Tinker server on a CPU, for `benches/real/tinker_service.py`.

    python3.12 -m venv V && V/bin/pip install 'skyrl[tinker,jax]==0.4.0' aiohttp
    JAX_PLATFORMS=cpu V/bin/python benches/real/skyrl_server.py MODEL [--port 8124] [--sequences 8]

MODEL is a folder with a Llama or Qwen3 model in float32. The packages take 6.5 GB. SkyRL starts its engine with `uv run`, which
fetches packages of its own; here the engine runs in this Python. Every pass takes one sequence at a time, so that the number of
sequences in a minibatch needs no compilation of its own. Adapters and the database are gone when the server ends.
"""

import argparse
import pathlib
import sys
import tempfile
from unittest import mock

import uvicorn
from cloudpathlib import AnyPath
from skyrl.tinker import api, config


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--port", type=int, default=8124)
    parser.add_argument("--sequences", type=int, default=8, help="sequences that are sampled at once, always so many")
    return parser.parse_args()


def engine_settings(arguments, folder):
    """Settings of the engine; everything that it writes lies in `folder`."""
    sizes = {
        "max_lora_adapters": 4,
        "max_lora_rank": 32,
        "train_micro_batch_size": 1,
        "sample_max_num_sequences": arguments.sequences,
    }
    return config.EngineConfig(
        backend="jax",
        backend_config=sizes,
        base_model=str(arguments.model.resolve(strict=True)),
        checkpoints_base=AnyPath(str(folder / "checkpoints")),
        database_url=f"sqlite:///{folder / 'tinker.db'}",
    )


def engine_command(_uv_arguments, settings):
    """Stands in for SkyRL's own, whose command begins with `uv run`."""
    return [sys.executable, "-m", "skyrl.tinker.engine"] + config.config_to_argv(settings)


def main():
    arguments = read_arguments()
    with tempfile.TemporaryDirectory() as made, mock.patch.object(api, "_build_uv_run_cmd_engine", engine_command):
        api.app.state.engine_config = engine_settings(arguments, pathlib.Path(made))
        uvicorn.run(api.app, host="127.0.0.1", port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
