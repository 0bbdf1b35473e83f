"""One reinforcement-learning iteration on ALFWorld, written the straightforward way in Python.

Rollout with `transformers.generate` (one batched call a turn, left padding, finished trajectories leave the
batch), TextWorld as the environment, a scoring pass for the old log-probabilities, group-normalised
advantages and a clipped-surrogate update with AdamW.

A trajectory is one token sequence: `observation\\n> action\\nobservation\\n> action\\n...`. The ids that were
sampled are the ids that are trained on. The policy is a Hugging Face folder (config.json, tokenizer.json,
model.safetensors), such as the checkpoints of `turnwise`.
"""

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import Qwen2ForCausalLM

from peer_common import report, set_up
from peer_world import World


@dataclass
class Trajectory:
    group: int
    ids: list = field(default_factory=list)
    sampled: list = field(default_factory=list)  # for each id: did the policy choose it?
    reward: float = 0.0
    turns: int = 0
    done: bool = False

    def read(self, ids):
        self.ids += ids
        self.sampled += [False] * len(ids)

    def write(self, ids):
        self.ids += ids
        self.sampled += [True] * len(ids)


def rollout(model, tokenizer, world, games, group_size, max_turns, max_new):
    """Plays every game `group_size` times at temperature 1."""
    newline = tokenizer.encode("\n").ids
    assert len(newline) == 1, "the tokenizer must have a token for the line break"
    trajectories = [Trajectory(group) for group in range(len(games)) for _ in range(group_size)]
    start = time.perf_counter()
    for trajectory, observation in zip(trajectories, world.start([games[t.group] for t in trajectories])):
        trajectory.read(tokenizer.encode(f"{observation}\n>").ids)
    load_s, sample_s, step_s = time.perf_counter() - start, 0.0, 0.0

    for _ in range(max_turns):
        active = [key for key, trajectory in enumerate(trajectories) if not trajectory.done]
        if not active:
            break
        start = time.perf_counter()
        responses = respond(model, [trajectories[key].ids for key in active], newline[0], max_new)
        sample_s += time.perf_counter() - start

        actions = {}
        for key, response in zip(active, responses):
            trajectories[key].write(response)
            trajectories[key].turns += 1
            if response[-1] != newline[0]:
                trajectories[key].read(newline)
            actions[key] = tokenizer.decode(response, skip_special_tokens=False).strip()

        start = time.perf_counter()
        for key, (observation, won, done) in world.step(actions).items():
            trajectory = trajectories[key]
            trajectory.done = done
            trajectory.reward = float(won)
            if not done:
                trajectory.read(tokenizer.encode(f"{observation}\n>").ids)
                trajectory.done = len(trajectory.ids) >= model.config.max_position_embeddings
        step_s += time.perf_counter() - start
    return trajectories, load_s, sample_s, step_s


@torch.inference_mode()
def respond(model, prompts, stop, max_new):
    """One response for each prompt, ended by the token `stop` or after `max_new` tokens."""
    length = max(map(len, prompts))
    ids = torch.zeros(len(prompts), length, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, length - len(prompt) :] = torch.tensor(prompt)
        mask[row, length - len(prompt) :] = 1
    out = model.generate(
        ids,
        attention_mask=mask,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=max_new,
        eos_token_id=stop,
        pad_token_id=0,
        use_cache=True,
    )
    responses = []
    for row in out[:, length:].tolist():
        responses.append(row[: row.index(stop) + 1] if stop in row else row)
    return responses


def micro_batches(trajectories, max_tokens):
    """Trajectories of similar length together, each batch within a budget of padded tokens."""
    batch = []
    for trajectory in sorted(trajectories, key=lambda t: len(t.ids)):
        if batch and len(trajectory.ids) * (len(batch) + 1) > max_tokens:
            yield batch
            batch = []
        batch.append(trajectory)
    yield batch


def log_probs(model, batch):
    """Log-probabilities of the sampled tokens of a batch, and the row of each.

    Right padding needs no mask under causal attention: nothing that counts ever sees it. Logits are made for
    the sampled tokens only.
    """
    length = max(len(t.ids) for t in batch)
    ids = torch.zeros(len(batch), length, dtype=torch.long)
    chosen = torch.zeros(len(batch), length, dtype=torch.bool)
    for row, trajectory in enumerate(batch):
        ids[row, : len(trajectory.ids)] = torch.tensor(trajectory.ids)
        chosen[row, : len(trajectory.ids)] = torch.tensor(trajectory.sampled)
    hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
    logits = model.lm_head(hidden[chosen[:, 1:]])
    targets = ids[:, 1:][chosen[:, 1:]]
    rows = chosen[:, 1:].nonzero()[:, 0]
    return -F.cross_entropy(logits, targets, reduction="none"), rows


@torch.inference_mode()
def score(model, trajectories, max_tokens):
    """Old log-probabilities of every trajectory's sampled tokens."""
    old = {}
    for batch in micro_batches(trajectories, max_tokens):
        values, rows = log_probs(model, batch)
        for row, trajectory in enumerate(batch):
            old[id(trajectory)] = values[rows == row]
    return old


def advantages(trajectories, group_size):
    """Rewards of each group, shifted to mean 0 and scaled to deviation 1."""
    rewards = torch.tensor([t.reward for t in trajectories]).view(-1, group_size)
    centred = rewards - rewards.mean(1, keepdim=True)
    values = (centred / (rewards.std(1, keepdim=True) + 1e-6)).flatten().tolist()
    return {id(t): value for t, value in zip(trajectories, values)}


def update(model, optimizer, trajectories, old, advantage, minibatches, max_tokens, clip=(0.2, 0.28)):
    """One epoch of the clipped surrogate, averaged over the sampled tokens of each minibatch."""
    order = torch.randperm(len(trajectories)).tolist()
    size = -(-len(order) // minibatches)
    for first in range(0, len(order), size):
        minibatch = [trajectories[index] for index in order[first : first + size]]
        tokens = sum(sum(t.sampled) for t in minibatch)
        for batch in micro_batches(minibatch, max_tokens):
            new, rows = log_probs(model, batch)
            before = torch.cat([old[id(t)] for t in batch])
            weight = torch.tensor([advantage[id(t)] for t in batch])[rows]
            ratio = (new - before).exp()
            surrogate = torch.minimum(ratio * weight, ratio.clamp(1 - clip[0], 1 + clip[1]) * weight)
            (-surrogate.sum() / tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="Hugging Face folder of the policy")
    parser.add_argument("--games", type=Path, nargs="+", required=True, help="game.tw-pddl files, one a group")
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-turns", type=int, default=20)
    parser.add_argument("--max-new", type=int, default=12, help="longest response in tokens")
    parser.add_argument("--minibatches", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=4096, help="padded tokens of a micro-batch")
    parser.add_argument("--lr", type=float, default=4e-4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    set_up(arguments.threads, arguments.seed)
    tokenizer = Tokenizer.from_file(str(arguments.model / "tokenizer.json"))
    model = Qwen2ForCausalLM.from_pretrained(arguments.model, dtype=torch.float32, attn_implementation="sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr, weight_decay=0.0, fused=True)
    games = [str(game) for game in arguments.games]

    with World(arguments.threads) as world:
        # The processes have imported TextWorld before the clock starts; games are loaded within it.
        world.step({})
        for _ in range(arguments.iterations):
            begin = time.perf_counter()
            trajectories, load_s, sample_s, step_s = rollout(
                model, tokenizer, world, games, arguments.group_size, arguments.max_turns, arguments.max_new
            )
            rolled = time.perf_counter()
            old = score(model, trajectories, arguments.max_tokens)
            scored = time.perf_counter()
            advantage = advantages(trajectories, arguments.group_size)
            update(model, optimizer, trajectories, old, advantage, arguments.minibatches, arguments.max_tokens)
            end = time.perf_counter()
            report(
                iteration_s=end - begin,
                loaded_s=end - begin - load_s,
                load_s=load_s,
                sample_s=sample_s,
                step_s=step_s,
                score_s=scored - rolled,
                update_s=end - scored,
                steps=sum(t.turns for t in trajectories),
                tokens=sum(len(t.ids) for t in trajectories),
                sampled_tokens=sum(sum(t.sampled) for t in trajectories),
                success=sum(t.reward for t in trajectories) / len(trajectories),
            )


if __name__ == "__main__":
    main()
