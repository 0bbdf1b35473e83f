"""Executes the notebooks in their shortest form: python examples/notebooks/run.py

Needs nbclient, ipykernel and matplotlib beside turnwise.
"""

import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient

os.environ["TURNWISE_SMOKE"] = "1"
os.environ["MPLBACKEND"] = "Agg"
for path in sorted(Path(__file__).parent.glob("*.ipynb")):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    # An error of a cell is raised with its traceback.
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(path.parent))
    print(f"{path.name}: {sum(cell.cell_type == 'code' for cell in notebook.cells)} cells ran")
