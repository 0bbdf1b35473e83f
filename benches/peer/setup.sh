#!/usr/bin/env bash
# Sets up the Python side of the comparison in a virtual environment.
#
#   benches/peer/setup.sh FOLDER
#
# Needs Python 3.10 or newer and a C++ compiler (TextWorld's planner is built from source). The `torch` wheel
# for Linux brings its CUDA libraries along: about 6 GB of disk.
set -euo pipefail

folder="${1:?usage: setup.sh FOLDER}"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --requirement "$here/requirements.txt"
# alfworld's requirements would bring a simulator and vision libraries; only its renaming of objects is used.
"$folder/bin/python" -m pip install --no-deps alfworld==0.4.2
"$folder/bin/python" -c "import torch, transformers, textworld; print('ready:', torch.__version__, transformers.__version__)"
