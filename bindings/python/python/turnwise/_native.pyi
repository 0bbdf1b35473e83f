"""The compiled part. Arrays cross as buffers of ``float64`` (``bytearray``)."""

from os import PathLike
from typing import Any

_Switches = list[tuple[str, Any]]
_Path = str | PathLike[str]

def presets() -> str: ...
def fields(preset: str, switches: _Switches) -> list[str]: ...
def credit(
    batch: list[dict[str, Any]],
    preset: str,
    switches: _Switches,
    verl_agent: bool = False,
    seed: int = 0,
    explain: bool = False,
    vectors: dict[str, bytes] | None = None,
) -> tuple[list[dict[str, Any]], list[tuple[int, dict[str, float]]]]: ...
def read_text(path: _Path) -> str: ...
def toml_to_json(text: str) -> str: ...
def read_dump(
    path: _Path, format: str | None = None, rewards: list[tuple[str, float]] = []
) -> tuple[str, list[str]]: ...
def score_truth(
    path: _Path,
    method: tuple[str, list[bytes]],
    baseline: tuple[str, list[bytes]] | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> str: ...
def policy_loss(sequences: list[dict[str, Any]], preset: str, switches: _Switches) -> dict[str, Any]: ...
def value_loss(
    values: list[bytes],
    old_values: list[bytes],
    returns: list[bytes],
    masks: list[list[bool]] | None,
    clip: float,
) -> tuple[float, list[bytearray], float]: ...
def supervised_loss(logprobs: list[bytes], weights: list[bytes]) -> tuple[float, list[bytearray]]: ...
def selective_loss(
    lengths: list[list[int]], outliers: list[list[bool]], arrays: list[list[bytes]], switches: _Switches
) -> dict[str, Any]: ...
def kl_estimate(estimator: str, logprobs: bytes, ref_logprobs: bytes) -> tuple[bytearray, bytearray]: ...
def token_weights(aggregation: str, lengths: list[list[int]], masks: list[list[bool]] | None) -> list[bytearray]: ...
