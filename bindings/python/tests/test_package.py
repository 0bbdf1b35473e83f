"""The package as a whole: examples of its documentation, stubs, files."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
from pathlib import Path

import pytest

import turnwise
from turnwise import _native

FOLDER = Path(turnwise.__file__).parent


@pytest.mark.parametrize("name", ["turnwise", "turnwise._methods", "turnwise.objective"])
def test_the_examples_run(name):
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 1 and found.failed == 0


def test_the_stub_lists_the_compiled_functions():
    stub = ast.parse((FOLDER / "_native.pyi").read_text())
    listed = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
    compiled = {name for name in dir(_native) if not name.startswith("_")}
    assert set(listed) == compiled
    for name, node in listed.items():
        expected = [argument.arg for argument in node.args.args]
        assert list(inspect.signature(getattr(_native, name)).parameters) == expected, name


def test_types_are_shipped():
    assert (FOLDER / "py.typed").is_file()


def test_the_credit_of_many_threads_is_that_of_one(make_batch):
    from concurrent.futures import ThreadPoolExecutor

    batches = [make_batch(seed) for seed in range(8)]
    alone = [turnwise.credit(batch, "hgpo").advantages for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda batch: turnwise.credit(batch, "hgpo").advantages, batches))
    assert [[row.tolist() for row in rows] for rows in alone] == [[row.tolist() for row in rows] for rows in together]
