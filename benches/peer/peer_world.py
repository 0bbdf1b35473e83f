"""ALFWorld played by the original: TextWorld with alfworld's renaming of the objects, in a pool of processes.

Every trajectory has an environment of its own, as in alfworld's batches. TextWorld is CPU-bound Python, so
there are as many processes as cores and each of them plays its share of the trajectories one after another;
a process for every single trajectory would only add switching.
"""

import multiprocessing


def _play(pipe):
    """The loop of one process: `("start", [(key, file), ..])` or `("step", [(key, action), ..])` in, results out."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler

    # Asked for nothing but the text and the outcome: the prompts have no list of admissible commands.
    wanted = textworld.EnvInfos(feedback=True, won=True)
    environments = {}
    while True:
        verb, requests = pipe.recv()
        if verb == "stop":
            return
        results = []
        for key, argument in requests:
            if verb == "start":
                environments[key] = textworld.start(argument, wanted, wrappers=[AlfredDemangler()])
                state, done = environments[key].reset(), False
            else:
                state, _, done = environments[key].step(argument)
            results.append((key, state.feedback.strip(), bool(state.won), bool(done)))
            if done:
                environments.pop(key).close()
        pipe.send(results)


class World:
    """A pool of TextWorld processes; use it as a context manager."""

    def __init__(self, processes):
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_play, args=(theirs,), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pipe in self.pipes:
            pipe.send(("stop", []))
        for process in self.processes:
            process.join()

    def start(self, games):
        """Loads and resets one environment for each game file; its observations in the same order."""
        results = self._ask("start", enumerate(games))
        return [results[key][0] for key in range(len(games))]

    def step(self, actions):
        """`{trajectory: action}` to `{trajectory: (observation, won, done)}`."""
        return self._ask("step", actions.items())

    def _ask(self, verb, requests):
        shares = [[] for _ in self.pipes]
        for key, argument in requests:
            shares[key % len(shares)].append((key, argument))
        for pipe, share in zip(self.pipes, shares):
            pipe.send((verb, share))
        results = {}
        for pipe in self.pipes:
            for key, observation, won, done in pipe.recv():
                results[key] = (observation, won, done)
        return results
