#!/usr/bin/env python3
"""Turnwise on a real Tinker-compatible service: log-probabilities, one update, and a few steps of GRPO end to end.

    python benches/real/tinker_service.py URL MODEL [--turnwise target/release/turnwise] [--runs DIR] [KEY=VALUE ...]

A service that has the model in the folder MODEL answers at URL (`benches/real/skyrl_server.py` starts SkyRL's on a CPU). The
program was built with `--features remote`. Checks:

1. log-probabilities of the service and of the native learner differ by less than 1e-3, before and after one update of each of
   three losses, and the update has the same effect (`crates/remote/examples/compare_service.rs`);
2. `configs/remote/skyrl-ezpoints.toml`, shortened, trains to its end; the sampler's log-probabilities are the learner's;
3. the downloaded adapter is evaluated by the native engine.

Exits 1 if any of these fails.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import time

from run_files import lines

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Two updates of warm start and two steps of one group of four: what compiles on a CPU is most of the time.
SHORT = [
    "name=skyrl-bench",
    "sft.steps=2",
    "sft.batch_tokens=600",
    "rollout.tasks_per_step=1",
    "rollout.group_size=4",
    "env.max_turns=4",
    "train.steps=2",
    "train.warmup=0",
    "train.skip_zero_advantage=false",
    "credit.estimator.invalid_penalty_target=return",
    "train.checkpoint_every=2",
    "eval.tasks=2",
]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("url")
    arguments.add_argument("model", type=pathlib.Path)
    arguments.add_argument("overrides", nargs="*", help="settings of the run")
    arguments.add_argument("--turnwise", default="target/release/turnwise")
    arguments.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs"))
    options = arguments.parse_args()

    command = ["cargo", "run", "--release", "-q", "-p", "turnwise-remote", "-p", "turnwise-cli", "--features", "turnwise-cli/remote"]
    command += ["--example", "compare_service", "--", options.url, str(options.model)]
    failed = subprocess.run(command, cwd=ROOT).returncode != 0

    run = options.runs / "skyrl-bench"
    shutil.rmtree(run, ignore_errors=True)
    settings = [f"policy.model={options.model}", f"policy.learner.url={options.url}", *SHORT, *options.overrides]
    config = str(ROOT / "configs/remote/skyrl-ezpoints.toml")
    began = time.monotonic()
    subprocess.run([options.turnwise, "train", config, "--runs", str(options.runs), *settings], check=True)
    print(f"the run took {time.monotonic() - began:.0f} s")
    for metrics in lines(run / "metrics.jsonl"):
        shown = {name: metrics[name] for name in ("loss/sft", "train/success_rate", "loss/total", "loss/grad_norm",
                                                 "rollout/mismatch_kl", "perf/rollout_s", "perf/update_s") if name in metrics}
        print(" ", "  ".join(f"{name} {value:.4g}" for name, value in shown.items()))
        failed |= metrics["phase"] == "rl" and not metrics["rollout/mismatch_kl"] <= 1e-4
    subprocess.run([options.turnwise, "eval", str(run), "--tasks", "2"], check=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
