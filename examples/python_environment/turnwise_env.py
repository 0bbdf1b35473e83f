"""Serves a Gymnasium-style environment to Turnwise: JSON lines on stdin and stdout, the standard library only.

    class Guess:
        def reset(self, *, seed=None, options=None):     # options["task"] is the task that is to be played
            return "between 1 and 9", {"admissible": [str(n) for n in range(1, 10)]}
        def step(self, action):
            return "between 6 and 9", 0.0, False, False, {}       # observation, reward, terminated, truncated, info

    serve(Guess, tasks={"train": [{"id": "guess/7", "goal": "find the number", "metadata": {"secret": 7}}], "test": [...]})

`reset` and `step` are Gymnasium's; `reset` may return the observation alone. Observations are text (anything else is made text
by `observe`); actions are text or, with `actions=[...]`, numbers: the place of the text among the names. With `tools=[...]` an
action that calls one is a dict, {"id": .., "name": .., "arguments": {..}}; what `step` returns is the call's result. A call that
cannot be read never reaches `step`. What `info` may hold, all of it optional:

    admissible   list of the actions that would be understood now (the names, where `actions` is given)
    success      the task is solved (default: terminated with a reward above 0)
    progress     how much of the task is done, from 0 to 1
    understood   false where the action changed nothing because it was not understood
    state_key    text that is equal for equal states (default: the observation)
    metrics      numbers by name
    tools        from `reset`: the tools of this episode, in place of those that `serve` is given

A class with the methods `save` and `restore` can be continued from the middle of an episode, as `turnwise benchmark credit` does:

        def save(self):                                  # a JSON value: all that the rest of the episode depends on
            return [self.low, self.high, self.secret]
        def restore(self, state, task):                  # on a fresh environment, in place of `reset`
            self.low, self.high, self.secret = state

Equal states give equal values. An environment that draws at random saves its generator's state, too.

An exception in the environment ends its episode and no other, and so does an observation or a number that JSON cannot
hold (NaN, a NumPy integer); its traceback goes to the trainer. `TransientError` says that trying again may help.
Whatever the environment prints goes to stderr, because stdout belongs to the protocol, which the user's guide describes
("Your program over JSON lines").
"""

import json
import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from difflib import get_close_matches
from threading import Lock

PROTOCOL = 1

# What the trainer reads of `info`.
INFO_KEYS = ("admissible", "success", "progress", "understood", "state_key", "metrics", "tools")


class TransientError(Exception):
    """Raised by an environment where the same `reset` or `step` may succeed later, such as with a busy service."""


def check_keys(info, warned=set()):
    """Warns once of each key of `info` that is nearly one that the trainer reads."""
    for key in info.keys() - set(INFO_KEYS) - warned:
        warned.add(key)
        for meant in get_close_matches(str(key), INFO_KEYS, n=1, cutoff=0.8):
            print(f"warning: info has the key {key!r}, which is not read; did you mean {meant!r}?", file=sys.stderr)


class Episode:
    """An environment with what it showed last."""

    def __init__(self, server, start):
        self.server = server
        self.environment = server.make(**server.settings)
        try:
            begun = start(self.environment)
            self.observation, self.info = begun if isinstance(begun, tuple) and len(begun) == 2 else (begun, {})
            check_keys(self.info)
        except BaseException:
            with suppress(Exception):  # Why the reset failed is what counts.
                self.close()
            raise

    @classmethod
    def begin(cls, server, request):
        """An episode from the start of its task."""
        # Gymnasium's environments take seeds of 32 bits.
        seed, options = request["seed"] % 2**31, {"task": request["task"]}
        return cls(server, lambda environment: environment.reset(seed=seed, options=options))

    @classmethod
    def restored(cls, server, request):
        """An episode from a saved state. The trainer knows what was seen there."""
        return cls(server, lambda environment: environment.restore(request["state"], request["task"]))

    def step(self, text, call=None):
        """Carries an action out and returns the answer to it. A structured call goes to the environment as a dict."""
        actions, action = self.server.actions, text if call is None else call
        if actions is not None and text not in actions:
            return {"observation": self.seen(), "understood": False}
        if actions is not None:
            action = actions.index(text)
        stepped = self.environment.step(action)
        if not isinstance(stepped, tuple) or len(stepped) != 5:
            raise TypeError(f"step must return observation, reward, terminated, truncated and info, and returned {stepped!r:.200}")
        self.observation, reward, terminated, truncated, self.info = stepped
        check_keys(self.info)
        progress = self.info.get("progress")
        return {
            "observation": self.seen(),
            "reward": float(reward),
            "progress": None if progress is None else float(progress),
            "terminated": bool(terminated),
            "truncated": bool(truncated),
            "success": bool(self.info.get("success", terminated and reward > 0)),
            "understood": bool(self.info.get("understood", True)),
            "metrics": {name: float(value) for name, value in self.info.get("metrics", {}).items()},
        }

    def seen(self):
        """What the agent is shown."""
        return {
            "text": self.server.observe(self.observation),
            "admissible": list(self.info.get("admissible", self.server.actions or [])),
            "state_key": self.info.get("state_key"),
        }

    def tools(self):
        """The tools of this episode; None where they are the server's. Asked for before the first step."""
        return self.info.get("tools")

    def close(self):
        """Gives back what the environment holds."""
        getattr(self.environment, "close", lambda: None)()


def written(result):
    """A result as JSON."""
    try:
        return json.dumps(result, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{error}; answers hold texts, finite numbers and true or false, and no NumPy types") from error


class Server:
    """The requests: each method returns what stands under "ok" in the answer, as JSON."""

    def __init__(self, make, tasks, name, actions, expert, observe, workers, phrases, tools):
        self.make, self.tasks, self.name, self.expert, self.tools = make, tasks, name, expert, list(tools)
        self.actions, self.observe, self.workers, self.phrases = actions, observe, workers, list(phrases)
        self.episodes, self.settings = {}, {}

    def hello(self, request):
        if request["protocol"] != PROTOCOL:
            raise ValueError(f"this helper speaks protocol {PROTOCOL}, the trainer asks for {request['protocol']}")
        self.settings = request.get("settings", {})
        return written(
            {
                "protocol": PROTOCOL,
                "name": self.name,
                "splits": list(self.tasks),
                "capabilities": {
                    "step_many": self.workers == 1,
                    "demonstrate": self.expert is not None,
                    "save": self.saves(),
                },
                "concurrency": self.workers,
                "phrases": self.phrases,
                "tools": self.tools,
            }
        )

    def saves(self):
        """True if environments have `save` and `restore`. A function that makes them says so by one that it makes."""
        if isinstance(self.make, type):
            made = self.make
        else:
            made = self.make(**self.settings)
            getattr(made, "close", lambda: None)()
        return hasattr(made, "save") and hasattr(made, "restore")

    def list_tasks(self, request):
        tasks, offset = self.tasks[request["split"]], request["offset"]
        end = offset + request["limit"]
        return written({"tasks": tasks[offset:end], "next": end if end < len(tasks) else None})

    def reset(self, request):
        episode = Episode.begin(self, request)
        try:
            result = written({"observation": episode.seen(), "tools": episode.tools()})
        except BaseException:
            with suppress(Exception):  # The trainer closes no episode whose reset failed.
                episode.close()
            raise
        self.episodes[request["episode"]] = episode
        return result

    def step(self, request):
        return written(self.episodes[request["episode"]].step(request["action"], request.get("call")))

    def step_many(self, request):
        return '{"steps": [%s]}' % ", ".join(answer(self.step, step) for step in request["steps"])

    def save(self, request):
        return written({"state": self.episodes[request["episode"]].environment.save()})

    def restore(self, request):
        self.episodes[request["episode"]] = Episode.restored(self, request)
        return "{}"

    def close(self, request):
        episode = self.episodes.pop(request["episode"], None)
        if episode is not None:
            episode.close()
        return "{}"

    def demonstrate(self, request):
        episode, turns, step = Episode.begin(self, request), [], {}
        tools = episode.tools()
        try:
            while len(turns) < request["max_turns"] and not (step.get("terminated") or step.get("truncated")):
                action = self.expert(episode.environment, episode.observation, episode.info)
                call = action if isinstance(action, dict) else None
                if call is not None:  # As words a call is `name(arguments as JSON)`.
                    action = f"{call['name']}({json.dumps(call.get('arguments', {}))})"
                turns.append({"observation": episode.seen(), "action": action})
                step = episode.step(action, call)
        finally:
            episode.close()
        return written({"turns": turns, "success": step.get("success", False), "tools": tools})


def traced(error):
    """Where an exception was raised (file and line), and its traceback, both without this file's own frames."""
    found = part = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in found.stack if frame.filename != __file__]
    while part is not None:
        part.stack = traceback.StackSummary.from_list([frame for frame in part.stack if frame.filename != __file__])
        part = part.__cause__ or part.__context__
    place = f" ({frames[-1].filename}, line {frames[-1].lineno}, in {frames[-1].name})" if frames else ""
    return place, "".join(found.format())


def answer(method, request):
    """The answer to one request as JSON: its result, or the error that it raised."""
    try:
        return '{"ok": %s}' % method(request)
    except TransientError as error:
        failure = {"kind": "transient", "message": str(error)}
    except Exception as error:  # An episode's failure is an answer; it must not end the other episodes.
        traceback.print_exc()
        place, trace = traced(error)
        failure = {"kind": "fatal", "message": f"{type(error).__name__}: {error}{place}", "traceback": trace}
    return written({"error": failure})


def serve(make, tasks, name=None, actions=None, expert=None, observe=str, workers=1, phrases=(), tools=()):
    """Answers requests until the trainer ends.

    make      a class or function that returns a fresh environment; called with the config's `env.settings`
    tasks     split -> list of tasks: {"id": unique text, "goal": text}, if wanted with "kind" and "metadata"
    name      the world's name; the class's, if absent
    actions   the texts that stand for Gymnasium's actions 0, 1, 2, ..; without it actions are text
    expert    (environment, observation, info) -> action text: plays the episodes that a warm start imitates
    observe   makes text of an observation
    workers   how many requests are worked on at once, each in its own thread
    phrases   texts that are frequent in observations and actions, for the tokenizers of models made from scratch
    tools     functions that actions may call: {"name": .., "description": .., "parameters": JSON Schema}, or OpenAI's form
    """
    tasks = {split: list(listed) for split, listed in tasks.items()}
    server = Server(make, tasks, name or make.__name__.lower(), actions, expert, observe, workers, phrases, tools)
    methods = {
        "hello": server.hello,
        "tasks": server.list_tasks,
        "reset": server.reset,
        "step": server.step,
        "step_many": server.step_many,
        "close": server.close,
        "save": server.save,
        "restore": server.restore,
        "demonstrate": server.demonstrate,
    }
    # The protocol keeps the real stdout; `print` in an environment goes to stderr.
    wire = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", newline="\n")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    lock = Lock()

    def work(request):
        reply = answer(methods[request["op"]], request)
        # The answer is an object already; the request's id goes into it.
        line = '{"id": %s, %s' % (written(request["id"]), reply[1:])
        with lock:
            wire.write(line + "\n")
            wire.flush()

    with ThreadPoolExecutor(max_workers=workers) as pool:
        for line in sys.stdin:
            request = json.loads(line)
            if request["op"] == "shutdown":
                break
            if workers == 1:
                work(request)
            else:
                pool.submit(work, request)
