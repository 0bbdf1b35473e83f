"""What `kills.py` kills: for each kind its command, the servers and the programs that it uses.

| key | meaning |
|---|---|
| `start`, `again` | arguments of the command, and of the one that resumes it if the file `begun` exists |
| `files`, `prepare` | files of the folder, and commands that fill it, once for all runs |
| `server` | a server that the command uses, started again after a kill |
| `children` | programs that the command starts are killed, too |

| `serve` | the server that is killed, of the scene that has no run |

PORT, PROGRAM and ROOT stand for the server's port, the program and the repository.
"""

TINY = "ROOT/crates/train/tests/tiny.toml"
SETTINGS = ["sft.steps=30", "sft.checkpoint_every=3", "train.steps=12", "train.checkpoint_every=1", "eval.every=4"]
SMALL = [
    "policy.scratch.hidden_size=16", "policy.scratch.layers=1", "policy.scratch.heads=2",
    "policy.scratch.key_value_heads=1", "policy.scratch.intermediate_size=32",
]
RESUME = ["train", "--resume", "runs/run"]
BEGUN = "runs/run/config.toml"

SWEEP = f"""
name = "sweep"
base = ["{TINY}"]
preset = "grpo"
seeds = [0, 1]
set = ["env.generator.size=tiny", "sft.steps=12", "sft.checkpoint_every=2", "train.steps=6", "train.checkpoint_every=1",
    'eval.splits=["valid_unseen"]', "eval.every=2"]
[[run]]
name = "grpo"
[[run]]
name = "gigpo"
preset = "gigpo"
"""

SERVERS = "ROOT/tools/kills_servers.py"
MODEL = [
    ["PROGRAM", "train", "--preset", "quickstart", TINY, "--runs", "made", "name=base", "sft.steps=30", "train.steps=0"],
    ["PROGRAM", "export", "made/base", "model"],
    ["python3", SERVERS, "template"],
]
TASKS = [["python3", SERVERS, "tasks"]]
SHORT = [
    "name=run", *SMALL, "sft.steps=6", "sft.demonstrations=24", "sft.checkpoint_every=2", "train.steps=8",
    "train.checkpoint_every=1", "rollout.tasks_per_step=3", "rollout.group_size=4", "eval.every=4", "eval.tasks=8",
]

SCENES = {
    "run": {
        "start": ["train", "--preset", "quickstart", TINY, "name=run", *SETTINGS], "again": RESUME, "begun": BEGUN,
    },
    "sweep": {
        "start": ["sweep", "sweep.toml", "--jobs", "2"], "again": ["sweep", "sweep.toml", "--jobs", "2"], "begun": "runs",
        "files": {"sweep.toml": SWEEP},
    },
    "worker": {
        "start": [
            "train", "ROOT/examples/python_environment/guess.toml", "name=run", "sft.steps=10", "train.steps=10",
            "train.checkpoint_every=1", "rollout.tasks_per_step=8", "eval.every=5",
            'env.command=["python3", "ROOT/examples/python_environment/guess.py"]',
        ],
        "again": RESUME, "begun": BEGUN, "children": True,
    },
    "retriever": {
        "start": [
            "train", "ROOT/configs/search/small.toml", "name=run", *SMALL, "env.search_first=true",
            "env.retriever.kind=http", 'env.retriever.url="http://127.0.0.1:PORT"', "env.generator.test=16",
            "sft.steps=6", "sft.demonstrations=64", "sft.checkpoint_every=2", "train.steps=8", "train.checkpoint_every=1",
            "rollout.tasks_per_step=2", "rollout.group_size=4", "rollout.max_response_tokens=8", "eval.every=4",
            "eval.tasks=8",
        ],
        "again": RESUME, "begun": BEGUN,
        "prepare": [
            ["PROGRAM", "env", "generate", "search", "--output", "data"],
            ["PROGRAM", "index", "build", "index", "--passages", "data/passages.jsonl"],
        ],
        "server": ["PROGRAM", "index", "serve", "index", "--address", "127.0.0.1:PORT"],
    },
    "serve": {
        "prepare": MODEL, "serve": ["PROGRAM", "serve", "model", "--address", "127.0.0.1:PORT", "--max-loaded", "1"],
    },
    "agent": {
        "start": [
            "train", "ROOT/examples/agents/goods.toml", "name=run", "policy.model=model", "policy.compute=f32",
            f'env.command=["python3", "{SERVERS}", "agent"]', 'env.tasks={train="train.jsonl", test="test.jsonl"}',
            "env.concurrency=4", "policy.lora.rank=2", "rollout.tasks_per_step=3", "rollout.group_size=4",
            "rollout.max_response_tokens=4", "rollout.max_model_len=256", "train.steps=8", "train.checkpoint_every=1",
            "eval.every=4",
        ],
        "again": RESUME, "begun": BEGUN, "children": True, "prepare": [*MODEL, *TASKS],
    },
    "mcp": {
        "start": [
            "train", "ROOT/configs/remote/mcp.toml", *SHORT, f'env.command=["python3", "{SERVERS}", "mcp"]',
            'env.tasks={train="mcp-train.jsonl", test="mcp-test.jsonl"}',
        ],
        "again": RESUME, "begun": BEGUN, "children": True, "prepare": TASKS,
    },
    "mcp-http": {
        "start": [
            "train", "ROOT/configs/remote/mcp.toml", *SHORT, "env.command=[]", 'env.urls=["http://127.0.0.1:PORT/mcp"]',
            'env.tasks={train="mcp-train.jsonl", test="mcp-test.jsonl"}',
        ],
        "again": RESUME, "begun": BEGUN, "prepare": TASKS, "server": ["python3", SERVERS, "mcp", "PORT"],
    },
    "openenv": {
        "start": [
            "train", "ROOT/configs/remote/openenv.toml", *SHORT, 'env.urls=["http://127.0.0.1:PORT"]',
            'env.tasks={train="openenv-train.jsonl", test="openenv-test.jsonl"}',
        ],
        "again": RESUME, "begun": BEGUN, "prepare": TASKS, "server": ["python3", SERVERS, "openenv", "PORT"],
    },
}
