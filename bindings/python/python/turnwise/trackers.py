"""Copies runs to Weights & Biases, MLflow and trackio.

``turnwise log RUN --to wandb`` copies a run's settings, metrics and evaluations to a tracker. With ``--follow`` it
watches a training run until it ends. From Python:

>>> import turnwise.trackers
>>> turnwise.trackers.log("runs/quickstart-seed0", "wandb", project="agents")       # doctest: +SKIP

``trackers.json`` in the run directory records what was copied. A second call copies only new data into the same run of the
tracker, also after the training was resumed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Protocol

from turnwise._runs import NewLines, Run

__all__ = ["TRACKERS", "Tracker", "log"]

#: Metrics by name.
Values = dict[str, float]


class Tracker(Protocol):
    """A run in a tracker."""

    #: The tracker's identifier of the run.
    id: str

    def metrics(self, batch: Sequence[tuple[int, str, int, Values]]) -> None:
        """Logs lines of metrics: line number, phase, step of the phase, and values."""

    def evaluation(self, line: int, label: str, step: int, values: Values, rows: list[dict[str, Any]]) -> None:
        """Logs the metrics of an evaluation, and its table with one row per split and kind of task."""

    def finish(self, state: str, summary: Values) -> None:
        """Writes the summary and closes the tracker's run."""


@dataclass
class _Copied:
    """Progress of copying a run to a tracker, stored in ``trackers.json``."""

    id: str | None = None
    lines: int = 0
    position: dict[str, int] = field(default_factory=dict)
    evaluations: list[str] = field(default_factory=list)


def log(
    run: str | PathLike[str] | Run,
    to: str,
    *,
    project: str = "turnwise",
    name: str | None = None,
    follow: bool = False,
    interval: float = 5.0,
) -> str:
    """Copies a run to a tracker and returns the tracker's identifier of the run.

    Args:
        run: a run directory.
        to: ``wandb``, ``mlflow`` or ``trackio``; its package must be installed. Set servers, keys and offline modes with the
            package's environment variables (``WANDB_MODE``, ``MLFLOW_TRACKING_URI``, ``TRACKIO_DIR``).
        project: the project, or MLflow's experiment.
        name: the name in the tracker; by default that of the run directory.
        follow: wait for new lines until the run finishes, fails or is interrupted.
        interval: seconds between two reads of the run.

    Raises:
        ValueError: if the tracker is unknown, or ``trackers.json`` is damaged.
        ModuleNotFoundError: if the tracker's package is not installed.
        FileNotFoundError: if the folder is not a run directory.
    """
    if to not in TRACKERS:
        raise ValueError(f"unknown tracker {to!r}: use {', '.join(TRACKERS)}")
    run = run if isinstance(run, Run) else Run(run)
    copied = _load(run, to)
    try:
        tracker = TRACKERS[to](project, name or run.path.resolve().name, run.config, copied.id)
    except ModuleNotFoundError as error:
        if error.name != to:
            raise
        raise ModuleNotFoundError(f"{to} is not installed: pip install {to}", name=to) from None
    copied.id = tracker.id
    _save(run, to, copied)
    state, lines = "interrupted", NewLines(run.path / "metrics.jsonl")
    try:
        while True:
            # Read the state before the metrics: a run writes no more metrics after its end.
            state = str(run.status.get("state"))
            _copy(run, lines, to, tracker, copied)
            if not follow or state != "running":
                break
            time.sleep(interval)
    except KeyboardInterrupt:
        state = "running"
    finally:
        tracker.finish(state, _summary(run))
    return tracker.id


def _copy(run: Run, lines: NewLines, to: str, tracker: Tracker, copied: _Copied) -> None:
    """Copies new lines and evaluations."""
    batch = []
    for line in lines.read():
        phase, step = str(line.get("phase", "rl")), int(line["step"])
        # A resumed run repeats steps after its checkpoint, with equal metrics.
        if step <= copied.position.get(phase, 0):
            continue
        copied.position[phase] = step
        copied.lines += 1
        prefix = "" if phase == "rl" else f"{phase}/"
        values = {prefix + key: float(value) for key, value in line.items() if key not in ("phase", "step") and _is_number(value)}
        batch.append((copied.lines, phase, step, values))
    if batch:
        tracker.metrics(batch)
        _save(run, to, copied)
    for label in run.evaluation_labels():
        if label not in copied.evaluations:
            results = run.evaluation(label)
            copied.lines += 1
            step = int(label.rsplit("-", 1)[1]) if label.startswith("step-") else 0
            tracker.evaluation(copied.lines, label, step, _evaluated(results), list(_rows(label, results)))
            copied.evaluations.append(label)
            _save(run, to, copied)


def _evaluated(results: Sequence[Mapping[str, Any]]) -> Values:
    """Returns the metrics of an evaluation, ``eval/SPLIT/METRIC``, and the success by kind of task."""
    values: Values = {}
    for result in results:
        prefix = f"eval/{result['split']}"
        success = result.get("success") or {}
        values.update({f"{prefix}/success": success["rate"]} if "rate" in success else {})
        values.update({f"{prefix}/success_{end}": success[end] for end in ("low", "high") if end in success})
        values.update({f"{prefix}/{key}": float(value) for key, value in result.items() if key != "seed" and _is_number(value)})
        for kind, of_kind in (result.get("kinds") or {}).items():
            values[f"{prefix}/{kind}/success"] = of_kind["rate"]
    return values


def _rows(label: str, results: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for result in results:
        for kind, success in {"all": result.get("success") or {}, **(result.get("kinds") or {})}.items():
            numbers = {key: success.get(key) for key in ("successes", "trials", "rate", "low", "high")}
            yield {"position": label, "split": result["split"], "kind": kind, **numbers}


def _summary(run: Run) -> Values:
    """Returns the last evaluation, and the best success of each split under ``best/``."""
    evaluations = {label: _evaluated(results) for label, results in run.evaluations().items()}
    summary: Values = {}
    for values in evaluations.values():
        summary.update(values)
        for key, value in values.items():
            if key.endswith("/success"):
                best = f"best/{key}"
                summary[best] = max(value, summary.get(best, -math.inf))
    return summary


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value if isinstance(value, (str, int, float, bool)) else json.dumps(value)


def _load(run: Run, to: str) -> _Copied:
    path = run.path / "trackers.json"
    try:
        return _Copied(**json.loads(path.read_text(encoding="utf-8")).get(to, {}))
    except FileNotFoundError:
        return _Copied()
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: {error}; delete it to copy the run again, into a new run of the tracker") from None


def _save(run: Run, to: str, copied: _Copied) -> None:
    path = run.path / "trackers.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    known[to] = vars(copied)
    # Replace the file atomically, so a killed process leaves it readable.
    new = path.with_name(f".trackers.json.{os.getpid()}")
    new.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    new.replace(path)


class _Wandb:
    """Weights & Biases: its step is the line number; the x-axis of charts is the step of the phase."""

    def __init__(self, project: str, name: str, config: dict[str, Any], id: str | None) -> None:
        import wandb

        self._wandb = wandb
        self._run = wandb.init(project=project, name=name, config=config, id=id, resume="allow")
        self.id = self._run.id
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("sft/step", hidden=True)
        self._run.define_metric("*", step_metric="step")
        self._run.define_metric("sft/*", step_metric="sft/step")

    def metrics(self, batch: Sequence[tuple[int, str, int, Values]]) -> None:
        for line, phase, step, values in batch:
            self._run.log({**values, "step" if phase == "rl" else f"{phase}/step": step}, step=line)

    def evaluation(self, line: int, label: str, step: int, values: Values, rows: list[dict[str, Any]]) -> None:
        columns = list(rows[0]) if rows else []
        table = self._wandb.Table(columns=columns, data=[[row[column] for column in columns] for row in rows])
        self._run.log({**values, "step": step, f"evaluations/{label}": table}, step=line)

    def finish(self, state: str, summary: Values) -> None:
        self._run.summary.update({**summary, "state": state})
        self._run.finish(exit_code=1 if state == "failed" else 0)


class _Mlflow:
    """MLflow: settings are parameters, evaluations are metrics and tables."""

    def __init__(self, project: str, name: str, config: dict[str, Any], id: str | None) -> None:
        import mlflow
        from mlflow.entities import Metric, Param

        self._metric = Metric
        self._client = mlflow.MlflowClient()
        if id is None:
            experiment = self._client.get_experiment_by_name(project)
            experiment_id = experiment.experiment_id if experiment else self._client.create_experiment(project)
            id = self._client.create_run(experiment_id, run_name=name).info.run_id
            # Limits of old servers: 100 parameters per batch, 500 characters per value.
            params = [Param(key, str(value)[:500]) for key, value in _flat(config)]
            for start in range(0, len(params), 100):
                self._client.log_batch(id, params=params[start : start + 100])
            self._client.log_dict(id, config, "config.json")
        else:
            self._client.update_run(id, status="RUNNING")
        self.id = id

    def metrics(self, batch: Sequence[tuple[int, str, int, Values]]) -> None:
        found = []
        for _, phase, step, values in batch:
            at = int(values.get("time", values.get(f"{phase}/time", time.time())) * 1000)
            times = ("time", f"{phase}/time")
            found += [self._metric(key, value, at, step) for key, value in values.items() if key not in times]
        self._log(found)

    def evaluation(self, line: int, label: str, step: int, values: Values, rows: list[dict[str, Any]]) -> None:
        self._log([self._metric(key, value, int(time.time() * 1000), step) for key, value in values.items()])
        columns = {key: [row[key] for row in rows] for key in (rows[0] if rows else {})}
        self._client.log_dict(self.id, {"columns": list(columns), "data": list(zip(*columns.values()))}, f"evaluations/{label}.json")

    def _log(self, metrics: list[Any]) -> None:
        for start in range(0, len(metrics), 1000):
            self._client.log_batch(self.id, metrics=metrics[start : start + 1000])

    def finish(self, state: str, summary: Values) -> None:
        self._log([self._metric(key, value, int(time.time() * 1000), 0) for key, value in summary.items() if key.startswith("best/")])
        ends = {"finished": "FINISHED", "failed": "FAILED", "running": "RUNNING"}
        self._client.update_run(self.id, status=ends.get(state, "KILLED"))


def _free_name(taken: set[str], name: str) -> str:
    """Returns the name, with a numeric suffix if it is taken."""
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return next(one for one in (name, *numbered) if one not in taken)


class _Trackio:
    """trackio: identifies runs by project and name, so run directories with equal names get different ones."""

    def __init__(self, project: str, name: str, config: dict[str, Any], id: str | None) -> None:
        import trackio

        self._trackio = trackio
        if id is None:
            try:
                taken = {run.name for run in trackio.Api().runs(project)}
            except ValueError:
                # The project does not exist yet.
                taken = set()
            id = _free_name(taken, name)
        self.id = id
        self._run = trackio.init(
            project=project, name=self.id, config=dict(_flat(config)), resume="allow", auto_log_gpu=False, auto_log_cpu=False
        )

    def metrics(self, batch: Sequence[tuple[int, str, int, Values]]) -> None:
        for _, _, step, values in batch:
            self._run.log(dict(values), step=step)

    def evaluation(self, line: int, label: str, step: int, values: Values, rows: list[dict[str, Any]]) -> None:
        columns = list(rows[0]) if rows else []
        table = self._trackio.Table(columns=columns, data=[[row[column] for column in columns] for row in rows])
        self._run.log({**values, f"evaluations/{label}": table}, step=step)

    def finish(self, state: str, summary: Values) -> None:
        self._run.finish()


#: The trackers by name.
TRACKERS = {"wandb": _Wandb, "mlflow": _Mlflow, "trackio": _Trackio}


def main(arguments: Sequence[str]) -> None:
    """Runs ``turnwise log`` with these arguments."""
    parser = argparse.ArgumentParser(
        prog="turnwise log", description="Copies a run's settings, metrics and evaluations to an experiment tracker."
    )
    parser.add_argument("run", help="a run directory")
    parser.add_argument("--to", required=True, choices=list(TRACKERS), help="the tracker; its Python package must be installed")
    parser.add_argument("--project", default="turnwise", help="the project, or MLflow's experiment (default: turnwise)")
    parser.add_argument("--name", help="the name in the tracker (default: that of the run directory)")
    parser.add_argument("--follow", action="store_true", help="copy new lines until the run ends")
    parser.add_argument("--interval", type=float, default=5.0, metavar="SECONDS", help="time between two reads of the run (default: 5)")
    options = parser.parse_args(arguments)
    try:
        id = log(options.run, options.to, project=options.project, name=options.name, follow=options.follow, interval=options.interval)
    except (OSError, ValueError, ModuleNotFoundError) as error:
        sys.exit(f"turnwise: {error}")
    print(f"{options.run} is in {options.to} as {id}")
