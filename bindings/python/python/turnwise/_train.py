"""Training and evaluation in this process."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any

from turnwise import _native
from turnwise._methods import Method
from turnwise._runs import Run

Path = str | PathLike[str]
Config = Path | Mapping[str, Any] | Sequence[Path | Mapping[str, Any]]
Report = Callable[[dict[str, Any]], None]


def train(
    config: Config | None = None,
    *,
    preset: str | Method | None = None,
    methods: Iterable[Method] = (),
    runs: Path = "runs",
    resume: Path | Run | None = None,
    checkpoint: str | None = None,
    warm_start: Path | Run | None = None,
    ignore_memory: bool = False,
    progress: bool | Report = True,
) -> Run:
    """Trains like ``turnwise train``, and returns the run.

    The run directory is in ``runs``, with the config's ``name``. Ctrl-C stops the run safely with a checkpoint and raises
    :class:`KeyboardInterrupt`; ``train(resume=run)`` resumes it. The GIL is released during training.

    >>> run = turnwise.train({"name": "mine", "train": {"steps": 20}}, preset="quickstart")       # doctest: +SKIP
    >>> steps, success = run.metric("train/success_rate")                                         # doctest: +SKIP

    Args:
        config: a TOML file, a dict of settings such as ``{"train": {"steps": 20}}``, or a list of these (later ones win).
        preset: a full config or method of ``turnwise config presets``, or your own method.
        methods: your own methods that the config names, ``{"credit": {"refinements": [{"kind": "mine"}]}}``. Methods
            created in this process are already registered.
        runs: the folder for run directories.
        resume: a run to resume from its newest checkpoint; ``config`` may then be a dict of changed settings.
        checkpoint: with ``resume``, the checkpoint to resume from, such as ``"step-12"``.
        warm_start: a run whose SFT warm start is reused.
        ignore_memory: start even if the memory plan does not fit this machine.
        progress: False for no output, or a function that receives every event as a dict. Its ``event`` is ``step`` (with
            ``phase``, ``step``, ``total``, ``metrics``), ``rollout``, ``evaluation``, ``checkpoint``, ``stage`` or ``note``.

    Raises:
        ValueError: if a setting is invalid; the message names its key and the fix.
        OSError: if a file cannot be read or written.
        RuntimeError: if the run failed, for example because the environment did.
    """
    _available("train")
    for method in methods:
        if not isinstance(method, Method):
            raise ValueError(f"methods has {method!r}; make it a method with turnwise.estimator or turnwise.refinement")
        method.register()
    arguments = _sources(config)
    if preset is not None:
        arguments += ["--preset", preset.name if isinstance(preset, Method) else preset]
    if resume is not None:
        arguments += ["--resume", _folder(resume)]
    else:
        arguments += ["--runs", fspath(runs)]
    if checkpoint is not None:
        arguments += ["--from", checkpoint]
    if warm_start is not None:
        arguments += ["--warm-start", _folder(warm_start)]
    if ignore_memory:
        arguments.append("--ignore-memory")
    with _reporting(progress) as report:
        root, _ = _native.train(arguments, report)
    return Run(root)


def evaluate(
    policy: Path | Run,
    config: Config | None = None,
    *,
    split: str | Sequence[str] = (),
    tasks: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    checkpoint: str | None = None,
    env: str | None = None,
    agent: str | None = None,
    trajectories: Path | None = None,
    progress: bool | Report = True,
) -> dict[str, dict[str, Any]]:
    """Evaluates a policy like ``turnwise eval``, and returns the results by split.

    A result has ``success`` (``rate``, ``low``, ``high``, ``successes``, ``trials``), ``kinds``, ``mean_turns``,
    ``mean_return``, and the settings of the evaluation.

    Args:
        policy: a run, a checkpoint, a model folder or a hub model.
        config: settings that override the run's (see :func:`train`).
        split: one or several splits; by default the config's.
        tasks: tasks per split, 0 for all; by default the config's.
        temperature: sampling temperature, 0 is greedy; by default the config's.
        seed: seed for sampling; by default the config's.
        checkpoint: checkpoint of a run: ``best``, ``step-12`` or ``sft-300``; by default the newest.
        env: another environment, with its own prompts and splits.
        agent: ``plain``, ``react`` or ``reflexion``.
        trajectories: a file for all trajectories as JSON lines.
        progress: see :func:`train`.
    """
    _available("evaluate")
    # `--` ends the options, so that a policy's name cannot be read as one.
    arguments: list[str] = []
    for name in [split] if isinstance(split, str) else split:
        arguments += ["--split", name]
    options = {
        "tasks": tasks,
        "temperature": temperature,
        "seed": seed,
        "checkpoint": checkpoint,
        "env": env,
        "agent": agent,
        "trajectories": None if trajectories is None else fspath(trajectories),
    }
    for name, option in options.items():
        if option is not None:
            arguments += [f"--{name}", str(option)]
    arguments += ["--", _folder(policy), *_sources(config)]
    with _reporting(progress) as report:
        results = json.loads(_native.evaluate(arguments, report))
    return {result["split"]: result for result in results}


def _available(name: str) -> None:
    if not hasattr(_native, name):
        raise RuntimeError(
            f"turnwise.{name}: this wheel was built without the trainer; build it with the feature `program`, which is the default"
        )


def _folder(run: Path | Run) -> str:
    return str(run.path) if isinstance(run, Run) else fspath(run)


def _sources(config: Config | None) -> list[str]:
    """Converts files and settings to command-line arguments."""
    if config is None:
        return []
    if isinstance(config, Mapping):
        return _overrides(config, "")
    if isinstance(config, (str, PathLike)):
        path = fspath(config)
        # The command line reads a name with `=` as a file only if it has a folder.
        return [path if "/" in path or "=" not in path else f"./{path}"]
    if not isinstance(config, Sequence):
        raise ValueError(f"config is of type {type(config).__name__}; a file, a dict, or a list of these is expected")
    return [word for part in config for word in _sources(part)]


def _overrides(settings: Mapping[str, Any], path: str) -> list[str]:
    found: list[str] = []
    for key, value in settings.items():
        name = f"{path}{key}"
        # A method's table is replaced as a whole, because another method has other settings.
        whole = isinstance(value, Mapping) and "kind" in value and name not in ("env",)
        if isinstance(value, Mapping) and not whole:
            found += _overrides(value, f"{name}.")
        else:
            found.append(f"{name}={_toml(value, name)}")
    return found


def _toml(value: Any, name: str) -> str:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (str, PathLike)):
        # JSON strings are TOML strings; a surrogate is neither.
        return json.dumps(fspath(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        inner = (f"{json.dumps(str(key))} = {_toml(entry, f'{name}.{key}')}" for key, entry in value.items())
        return "{ " + ", ".join(inner) + " }"
    if isinstance(value, Iterable):
        return "[" + ", ".join(_toml(entry, f"{name}[{index}]") for index, entry in enumerate(value)) + "]"
    raise ValueError(f"{name} is of type {type(value).__name__}; a number, a text, a list or a dict is expected")


class _reporting:
    """Converts ``progress`` to the callback of the extension module."""

    def __init__(self, progress: bool | Report) -> None:
        self.report: Report | None = progress if callable(progress) else _Lines() if progress else None

    def __enter__(self) -> Callable[[str], None]:
        report = self.report
        return (lambda _: None) if report is None else (lambda event: report(json.loads(event)))

    def __exit__(self, *_: object) -> None:
        if isinstance(self.report, _Lines):
            self.report.end()


class _Lines:
    """Prints progress to standard error: one updated line in a terminal, a line every few seconds elsewhere."""

    INTERVAL = 10.0

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.last = time.monotonic()
        self.shown = 0

    def __call__(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind in ("stage", "note"):
            self.stay(("· " if kind == "stage" else "  ") + event["text"])
        elif kind == "evaluation":
            rate = event["result"]["success"]
            self.stay(
                f"  {event['at']}  {event['result']['split']}: {rate['successes']}/{rate['trials']} = {100 * rate['rate']:.1f} % "
                f"[{100 * rate['low']:.1f}, {100 * rate['high']:.1f}]"
            )
        elif kind == "step":
            metrics, name = event["metrics"], "rl" if event["phase"] == "rl" else "warm start"
            told = (
                f"success {100 * (metrics.get('train/success_rate') or 0.0):.1f} %"
                if event["phase"] == "rl"
                else f"loss {metrics.get('loss/sft', float('nan')):.3f}"
            )
            self.change(f"{name} {event['step']}/{event['total']}  {told}", event["step"] == event["total"])
        elif "done" in event:
            self.change(f"{kind} {event['done']}/{event['total']}", False)

    def stay(self, text: str) -> None:
        self.end()
        print(text, file=sys.stderr, flush=True)

    def change(self, text: str, is_last: bool) -> None:
        if self.terminal:
            print("\r" + text.ljust(self.shown), end="", file=sys.stderr, flush=True)
            self.shown = len(text)
        elif is_last or time.monotonic() - self.last >= self.INTERVAL:
            self.last = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.shown:
            print(file=sys.stderr, flush=True)
            self.shown = 0
