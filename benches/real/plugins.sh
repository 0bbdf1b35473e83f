#!/usr/bin/env bash
# The plug-ins inside the real frameworks, on a CPU: verl 0.7.1, 0.8.0 and 0.9.1, SkyRL 0.4.0, TRL 1.16.0, from PyPI.
#
#     PYTHON=python3.12 bash benches/real/plugins.sh VENV     # VENV: a folder for the environment (8 GB, a quarter of an hour)
#
# Needs Python 3.12 (SkyRL's least) and the program built (cargo build --release), whose numbers are compared with. The frameworks
# are installed without their dependencies, each into a folder of its own, since verl and SkyRL ask for different versions of
# `transformers`; what their advantage functions import is installed once. slime is not on PyPI: its hooks are tested on data
# of its contract (tests/test_plugin_slime.py).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
venv=${1:?usage: plugins.sh VENV}
python="$venv/bin/python"
if [[ ! -e $venv/ready ]]; then
    "${PYTHON:-python3.12}" -m venv "$venv"
    "$venv/bin/pip" -q install numpy pytest 'maturin>=1.9.4,<2' torch==2.13.0
    "$venv/bin/pip" -q install trl==1.16.0 tensordict omegaconf hydra-core ray codetiming transformers datasets accelerate peft \
        pandas dill torchdata pylatexenc tensorboard pyzmq msgspec psutil orjson prometheus_client cachetools fastapi uvicorn \
        aiohttp loguru jaxtyping cloudpathlib typer hf_transfer zstandard xxhash pybase64
    "$venv/bin/pip" -q install --no-deps 'TransferQueue>=0.1.10'
    for package in verl==0.7.1 verl==0.8.0 verl==0.9.1 skyrl==0.4.0; do
        "$venv/bin/pip" -q install --no-deps --target "$venv/frameworks/$package" "$package"
    done
    touch "$venv/ready"
fi
PATH="$venv/bin:$PATH" "$venv/bin/pip" -q install --no-build-isolation ./bindings/python
cd bindings/python
for version in 0.7.1 0.8.0 0.9.1; do
    echo "== verl $version"
    PYTHONPATH="$venv/frameworks/verl==$version" "$python" -m pytest -rs tests/test_plugin_verl.py
done
echo "== skyrl 0.4.0"
PYTHONPATH="$venv/frameworks/skyrl==0.4.0:$venv/frameworks/skyrl==0.4.0/skyrl-gym" "$python" -m pytest -rs tests/test_plugin_skyrl.py
echo "== trl, and slime's contract"
"$python" -m pytest -rs tests/test_plugin_trl.py tests/test_plugin_slime.py
