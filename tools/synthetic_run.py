"""Writes a run directory of any size, to try the viewer on it.

    python3 tools/synthetic_run.py FOLDER [--steps 200] [--groups 64] [--samples 8] [--turns 6] [--hostile]

The trajectories are synthetic: some groups are mixed, some turns invalid. `--hostile` puts markup, scripts and control characters into every
text. Needs only Python 3.10.
"""

import argparse
import json
import math
import random
from pathlib import Path

HOSTILE = "<script>document.title='owned'</script>\"'><img src=x onerror=\"document.title='owned'\">\u202e\u0007&lt;"

CONFIG = """name = "{name}"
seed = 1
[env]
kind = "sokoban"
[prompt]
template = "sokoban-compact"
[credit.estimator]
kind = "grpo"
normalize = "mean"
invalid_penalty = 0.0
[train]
steps = {steps}
"""

ROOM = ["######", "#__P_#", "#OX__#", "##___#", "#____#", "######"]


def trajectory(draw: random.Random, step: int, group: int, sample: int, chance: float, args) -> dict:
    """Returns one trajectory as a run records it, without its advantages."""
    text = HOSTILE if args.hostile else ""
    success = draw.random() < chance
    turns = []
    for turn in range(args.turns):
        action = draw.choice(["up", "down", "left", "right"])
        turns.append(
            {
                "observation": "\n".join(ROOM) + ("\n" + text if text else ""),
                "admissible": ["up", "down", "left", "right"],
                "response": f"I go {action}. {text}",
                "action": action + text,
                "valid": draw.random() > 0.05,
                "reward": 1.0 if success and turn == args.turns - 1 else 0.0,
                "weights_version": step,
            }
        )
    goal = f"push all the boxes onto the targets, task {group} {text}"
    return {
        "schema_version": 1,
        "task": {"id": f"task-{step}-{group}", "kind": "1 box", "goal": goal, "digest": "0" * 64},
        "group": group,
        "sample": sample,
        "step": step - 1,
        "turns": turns,
        "final_observation": text,
        "stop": {"kind": "terminated"},
        "success": success,
    }


def write_step(run: Path, step: int, draw: random.Random, args) -> None:
    lines = []
    for group in range(args.groups):
        chance = draw.choice([0.0, 0.5, 1.0])
        members = [trajectory(draw, step, group, sample, chance, args) for sample in range(args.samples)]
        mean = sum(member["success"] for member in members) / len(members)
        for member in members:
            member["advantages"] = [member["success"] - mean] * args.turns
            lines.append(json.dumps(member, ensure_ascii=False, separators=(",", ":")))
    path = run / "trajectories" / f"step-{step:06}.jsonl.zst"
    # Files are read by their contents, so that one that is not compressed may have this name.
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def metrics(step: int) -> str:
    wave = 0.05 * math.sin(step)
    return json.dumps(
        {
            "phase": "rl",
            "step": step,
            "time": float(step),
            "train/success_rate": min(1.0, 0.2 + 0.6 * step / (step + 40) + wave),
            "rollout/entropy": 1.0 / (1.0 + step / 50) + wave,
            "credit/zero_advantage_group_frac": 0.3 + wave,
            "loss/grad_norm": 0.5 + wave,
        }
    )


def write(folder: Path, args) -> None:
    draw = random.Random(0)
    for name in ["trajectories", "checkpoints", "eval"]:
        (folder / name).mkdir(parents=True)
    for step in range(1, args.steps + 1):
        write_step(folder, step, draw, args)
    lines = [metrics(step) for step in range(1, args.steps + 1)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rate = {"successes": 60, "trials": 100, "rate": 0.6, "low": 0.5, "high": 0.69}
    kinds = {kind: rate | {"mean_turns": 5.0} for kind in ["1 box", "2 boxes" + (HOSTILE if args.hostile else "")]}
    evaluation = {
        "split": "test" + (HOSTILE if args.hostile else ""),
        "panel": "0" * 64,
        "temperature": 0.0,
        "seed": 0,
        "success": rate,
        "kinds": kinds,
        "mean_turns": 5.0,
        "mean_return": 0.6,
        "invalid_action_frac": 0.05,
        "seconds": 1.0,
    }
    for step in [0, args.steps]:
        (folder / "eval" / f"step-{step:06}.json").write_text(json.dumps([evaluation]), encoding="utf-8")
    warnings = ["a warning " + (HOSTILE if args.hostile else "that the run wrote")]
    status = {"state": "running", "position": {"phase": "rl", "step": args.steps}, "warnings": warnings}
    (folder / "status.json").write_text(json.dumps(status), encoding="utf-8")
    (folder / "config.toml").write_text(CONFIG.format(name=folder.name, steps=args.steps), encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    for name, default in [("steps", 200), ("groups", 64), ("samples", 8), ("turns", 6)]:
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--hostile", action="store_true")
    return options


if __name__ == "__main__":
    arguments = parser().parse_args()
    write(arguments.folder, arguments)
    print(f"{arguments.folder}: {arguments.steps * arguments.groups * arguments.samples} trajectories")
