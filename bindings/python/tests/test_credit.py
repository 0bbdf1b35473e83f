"""Advantages equal the program's to the last bit; what is wrong is refused by name."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

import turnwise
from conftest import ROOT
from turnwise.plugins._rows import Settings

# These score texts with the policy, which a list of trajectories does not include.
SCORED = {"igpo", "privileged-gap"}
PRESETS = sorted(turnwise.presets().keys() - SCORED)


def example() -> list[dict]:
    text = (ROOT / "examples/credit/two-trajectories.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def equal(credit: turnwise.Credit, rows: list[dict]) -> bool:
    return len(credit) == len(rows) and all(
        np.array_equal(got, row["advantages"]) for got, row in zip(credit.advantages, rows)
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_equals_the_program(preset, make_batch, rows_of_program):
    for seed in range(3):
        batch = make_batch(seed)
        credit = turnwise.credit(batch, preset, seed=seed, explain=True)
        rows = rows_of_program(batch, "--preset", preset, "--seed", str(seed), "--explain")
        assert equal(credit, rows)
        assert [turn for turn in credit.explanations] == [row["explanation"] for row in rows]
        if preset.startswith("stapo"):
            assert [mask.tolist() for mask in credit.outliers] == [row["outliers"] for row in rows]
        else:
            assert credit.outliers is None
        # A number that was changed is noticed.
        rows[0]["advantages"][0] += 1e-12 + abs(rows[0]["advantages"][0]) * 1e-12
        assert not equal(credit, rows)


@pytest.mark.parametrize(
    ("preset", "switches", "arguments"),
    [
        (
            "gigpo",
            {"estimator": {"omega": 0.5, "anchor": {"matching": "similarity"}}},
            ["estimator.omega=0.5", "estimator.anchor.matching=similarity"],
        ),
        ("aem-grpo", {"aem": {"lambda": 2.0, "mode": "shuffle"}}, ["aem.lambda=2.0", "aem.mode=shuffle"]),
        ("has-progressive", {"has.alpha": 0.25}, ["has.alpha=0.25"]),
        ("salt-grpo", {"salt": {"matching": "embedding"}}, ["salt.matching=embedding"]),
        ("grpo", {"estimator": {"kind": "hgpo"}}, ['estimator={"kind":"hgpo"}']),
        ("grpo", {"outliers": {"lambda": 0.5}}, ["outliers.lambda=0.5"]),
    ],
)
def test_switches_are_the_programs(preset, switches, arguments, make_batch, rows_of_program):
    batch = make_batch(7)
    rows = rows_of_program(batch, "--preset", preset, *[word for text in arguments for word in ("--set", text)])
    assert equal(turnwise.credit(batch, preset, **switches), rows)
    assert not equal(turnwise.credit(batch, "rloo"), rows)


def test_the_numbers_of_verl_agent():
    credit = turnwise.credit(example(), "gigpo", verl_agent=True)
    expected = [[1.437388, 0.730282, 0.730282], [-1.793446, -1.104505]]
    assert all(np.allclose(got, row, atol=1e-5) for got, row in zip(credit.advantages, expected))
    doctored = example()
    doctored[1]["turns"][1]["valid"] = True
    changed = turnwise.credit(doctored, "gigpo", verl_agent=True)
    assert not np.allclose(changed.advantages[1], expected[1], atol=1e-5)


def test_hgpo_with_verl_agents_switches(make_batch, rows_of_program):
    batch = make_batch(5)
    credit = turnwise.credit(batch, "hgpo", verl_agent=True)
    assert equal(credit, rows_of_program(batch, "--preset", "hgpo", "--verl-agent"))
    assert not equal(credit, rows_of_program(batch, "--preset", "hgpo"))


def test_arrays_over_the_response_are_cut_into_turns(make_batch):
    batch = make_batch(3)
    whole = []
    for trajectory in copy.deepcopy(batch):
        spans, entropies, values, mask = [], [], [], []
        for turn in trajectory["turns"]:
            # The environment's tokens are between the turns.
            entropies += [9.0, 9.0]
            values += [9.0, 9.0]
            mask += [0, 0]
            start = len(mask)
            entropies += turn.pop("entropies")
            values += turn.pop("values")
            mask += [1] * (len(values) - start)
            spans.append([start, len(mask)])
        whole.append(
            {
                **trajectory,
                "entropies": np.array(entropies, dtype=np.float32),
                "values": np.array(values),
                "response_mask": np.array(mask),
            }
        )
        with_spans = {**whole[-1], "turn_spans": spans, "response_mask": None}
        assert np.array_equal(
            turnwise.credit([with_spans], "ppo").token_advantages[0],
            turnwise.credit([whole[-1]], "ppo").token_advantages[0],
        )
    for preset in ("aem-gigpo", "ppo"):
        by_turn, by_token = turnwise.credit(batch, preset), turnwise.credit(whole, preset)
        assert all(np.array_equal(a, b) for a, b in zip(by_turn.advantages, by_token.advantages))
        for index, spread in enumerate(by_token.per_token()):
            mask = whole[index]["response_mask"]
            assert spread.shape == mask.shape and not spread[mask == 0].any()
            if preset == "ppo":
                assert np.array_equal(spread[mask == 1], by_turn.token_advantages[index])
                assert by_turn.token_returns[index].shape == by_turn.token_advantages[index].shape
            else:
                lengths = [len(turn["entropies"]) for turn in batch[index]["turns"]]
                assert np.array_equal(spread[mask == 1], np.repeat(by_turn.advantages[index], lengths))
    given = turnwise.credit(batch[:1], "grpo").per_token([[[i, i + 1] for i in range(len(batch[0]["turns"]))]])
    assert given[0].shape == (len(batch[0]["turns"]),)


def test_diagnostics_are_in_the_order_of_their_names(make_batch):
    for seed in range(8):
        (names,) = [list(step) for step in turnwise.credit(make_batch(seed), "aem-gigpo").diagnostics.values()]
        assert len(names) > 3 and names == sorted(names)


def test_the_advantage_of_a_turn_with_one_value_is_at_all_of_its_tokens():
    def spread(values, **where):
        turns = [{"reward": float(index), "values": value} for index, value in enumerate(values)]
        credit = turnwise.credit([{"group": 1, "turns": turns, **where}], "ppo")
        return credit.token_advantages[0], credit.per_token()[0]

    spans = [[0, 5], [6, 11]]
    tokens, found = spread([0.1, 0.4], turn_spans=spans, response_mask=[1] * 5 + [0] + [1] * 4 + [0])
    assert tokens.shape == (2,) and tokens[0] != tokens[1] and tokens.all()
    assert found.tolist() == [tokens[0]] * 5 + [0.0] + [tokens[1]] * 4 + [0.0]
    # Both kinds in one trajectory, whose tokens together are as many as those of its spans.
    tokens, found = spread([np.float32(0.1), [0.1, 0.2, 0.3, 0.4, 0.5]], turn_spans=spans)
    assert found.tolist() == [tokens[0]] * 5 + [0.0] + tokens[1:].tolist()
    turns = [{"reward": 0.0, "values": 0.1}, {"reward": 1.0, "values": 0.4}]
    later = turnwise.credit([{"group": 1, "turns": turns}], "ppo")
    first, second = later.token_advantages[0].tolist()
    assert later.per_token([spans])[0].tolist() == [first] * 5 + [0.0] + [second] * 5
    with pytest.raises(ValueError, match=r"batch\[0\]: turn 0 has values of 4 tokens and its span 5 that count"):
        spread([[0.1] * 4, [0.2] * 6], turn_spans=spans)


@pytest.mark.parametrize("preset", ["aem-gigpo", "empg", "stapo"])
def test_a_turn_of_which_no_token_counts_keeps_its_entropy(preset, make_batch):
    batch = make_batch(4)
    expected = turnwise.credit(batch, preset)
    longest = max(range(len(batch)), key=lambda index: (expected.advantages[index].any(), len(batch[index]["turns"])))
    whole = copy.deepcopy(batch)
    for line in whole:
        ends = np.cumsum([len(turn["entropies"]) for turn in line["turns"]]).tolist()
        line["turn_spans"] = [[start, end] for start, end in zip([0, *ends], ends)]
        line["response_mask"] = np.ones(ends[-1])
        line["entropies"] = np.concatenate([turn.pop("entropies") for turn in line["turns"]])
    line = whole[longest]
    for masked in (0, len(line["turns"]) - 1):
        start, end = line["turn_spans"][masked]
        line["response_mask"][:], line["response_mask"][start:end] = 1, 0
        found = turnwise.credit(whole, preset)
        assert all(np.array_equal(a, b) for a, b in zip(found.advantages, expected.advantages))
        spread = found.per_token()[longest]
        assert not spread[start:end].any() and spread.any() and expected.advantages[longest][masked]
    # Without a token there is no entropy.
    line["turn_spans"][-1] = [start, start]
    with pytest.raises(ValueError, match=f"turn {masked}: .* needs `entropy`"):
        turnwise.credit([line], preset)


def test_vectors_of_the_caller_match_states(make_batch):
    batch = make_batch(1)
    asked = []

    def embed(texts):
        asked.append(texts)
        return np.eye(len(texts))

    exact = turnwise.credit(batch, "salt-grpo")
    apart = turnwise.credit(batch, "salt-grpo", salt={"matching": "embedding"}, embed=embed)
    assert all(np.allclose(a, b, atol=1e-12) for a, b in zip(exact.advantages, apart.advantages))
    one = turnwise.credit(
        batch, "salt-grpo", salt={"matching": "embedding"}, embed=lambda texts: np.ones((len(texts), 3))
    )
    assert any(not np.allclose(a, b) for a, b in zip(exact.advantages, one.advantages))
    assert len(asked) == 1 and len(set(asked[0])) == len(asked[0]) and "end" in asked[0]
    # The state's name counts where there is one, an empty one, too.
    batch[0]["turns"][0].update(state_key="", observation="words of nobody")
    named = turnwise.credit(batch, "salt-grpo", salt={"matching": "embedding"}, embed=embed)
    assert "" in asked[1] and "words of nobody" not in asked[1]
    assert all(np.isfinite(row).all() for row in named.advantages)
    with pytest.raises(ValueError, match=r"embed gave the shape \(2,\)"):
        turnwise.credit(batch, "salt-grpo", salt={"matching": "embedding"}, embed=lambda texts: [0.0, 1.0])


def test_presets_say_what_they_need():
    presets = turnwise.presets()
    assert presets["grpo"].fields == () and presets["gigpo"].fields == ("observation",)
    assert "entropy" in presets["aem-grpo"].fields and presets["gigpo-dynamic"].base == "gigpo"
    assert presets["gspo"].objective["ratio"] == "sequence-token"
    assert presets["gigpo"].credit["estimator"]["omega"] == 1.0


def test_a_method_that_scores_with_the_policy_is_rejected():
    refused("igpo needs `task.metadata.answer`", example(), "igpo")


def refused(match: str, batch, preset: str = "grpo", **switches) -> None:
    with pytest.raises(ValueError, match=match):
        turnwise.credit(batch, preset, **switches)


def test_what_is_wrong_is_named(make_batch):
    batch = example()

    def changed(**turn):
        found = copy.deepcopy(batch)
        found[1]["turns"][1].update(turn)
        return found

    refused("did you mean `gigpo`", batch, "gipgo")
    refused("estimator.omgea: there is no `omgea`.*Did you mean `omega`", batch, "gigpo", estimator={"omgea": 1.0})
    refused("omega", batch, "gigpo", estimator={"omega": "much"})
    refused("verl_agent: .* not `ppo`", batch, "ppo", verl_agent=True)
    refused(r"batch\[0\]: turn 0: ppo needs `values`.*group-relative", batch, "ppo")
    refused(r"has needs `credit`.*has-progressive", batch, "has-judge")
    refused(r"batch\[1\]: turn 1: aem needs `entropy`", changed(entropy=None), "aem-grpo")
    refused(r"batch\[1\]: turn 1: unknown key `vaild`; known are .*valid", changed(vaild=True))
    refused(r'batch\[1\]: turn 1: `reward` is "1"; it must be a number', changed(reward="1"))
    refused(r"batch\[1\]: turn 1: `valid` is 1; it must be true or false", changed(valid=1))
    refused(r'batch\[1\]\["turns"\]\[1\]\["reward"\] is NaN', changed(reward=float("nan")))
    refused(r'batch\[1\]\["turns"\]\[1\]\["reward"\] is of type object', changed(reward=object()))
    refused(r"batch\[0\]: `group` is missing", [{"turns": [{"reward": 1.0}]}])
    refused("has no trajectories", [])
    refused("batch is of type dict", batch[0])
    refused(r"batch\[1\] is of type int", [batch[0], 3])
    for turns in (3, [3]):
        # With vectors of the caller as without.
        for given in ({}, {"embed": lambda texts: np.eye(len(texts))}):
            refused(r"batch\[0\]", [{"group": 1, "turns": turns}], **given)


def test_trajectories_that_failed_are_refused():
    batch = example()
    failed = {**copy.deepcopy(batch[0]), "stop": {"kind": "environment_error", "detail": "the server was lost"}}
    with pytest.raises(ValueError, match=rf"batch\[{len(batch)}\]: ended through a failure of its environment"):
        turnwise.credit([*batch, failed], "grpo")


def test_a_critics_values_need_a_token_that_counts():
    turns = [{"observation": "a", "reward": 0.0}, {"observation": "b", "reward": 1.0}]
    trajectory = {
        "group": 0, "turns": turns, "response_mask": [0, 0, 1, 1], "turn_spans": [[0, 2], [2, 4]], "values": [0.1, 0.2, 0.3, 0.4],
    }
    with pytest.raises(ValueError, match="turn 0 has no token that counts"):
        turnwise.credit([trajectory], "ppo")


def test_wrong_shapes_are_named():
    turns = [{"reward": 0.0}, {"reward": 1.0}]
    line = {"group": 1, "turns": turns}
    refused("2 turns and 1 runs of ones in response_mask", [{**line, "response_mask": [1, 1, 0]}])
    refused(r"turn_spans'\]\[1\] is \[1, 4\); spans are ascending", [{**line, "turn_spans": [[0, 2], [1, 4]]}])
    refused(r"turn_spans'\]\[0\] is \[3\]; a span is \[start, end\]", [{**line, "turn_spans": [[3], [4, 5]]}])
    refused(r"turn_spans'\]\[0\] is 3; a span is \[start, end\]", [{**line, "turn_spans": [3, 4]}])
    refused(
        r"\['entropies'\] has the shape \(2,\); \(4,\) is expected",
        [{**line, "response_mask": [1, 0, 1, 0], "entropies": [0.1, 0.2]}],
        "aem-grpo",
    )
    refused(r"turn_spans'\] is 3; a list of spans", [{**line, "turn_spans": 3}])
    refused(r"turn_spans'\]\[0\] is \[0, 1.5\]; a span is", [{**line, "turn_spans": [[0, 1.5], [2, 4]]}])
    refused("add `turn_spans` or `response_mask`", [{**line, "entropies": [0.1, 0.2]}], "aem-grpo")
    refused("response_mask'] has the shape", [{**line, "response_mask": [[1, 0, 1]]}])
    refused(
        "give it once",
        [{"group": 1, "turns": [{"reward": 1.0, "entropies": [0.1]}], "response_mask": [1], "entropies": [0.1]}],
    )
    credit = turnwise.credit([line])
    with pytest.raises(ValueError, match="came without turn_spans or response_mask"):
        credit.per_token()
    with pytest.raises(ValueError, match="lengths has 0 entries; 1 are expected"):
        credit.per_token([[[0, 1], [1, 2]]], lengths=[])
    with pytest.raises(ValueError, match=r"turn_spans\[0\] has 1 spans; the trajectory has 2 turns"):
        credit.per_token([[[0, 2]]])


def test_other_libraries_numbers_are_read(make_batch):
    batch = make_batch(5)
    other = copy.deepcopy(batch)
    for trajectory in other:
        trajectory["turns"] = tuple(trajectory["turns"])
        for turn in trajectory["turns"]:
            turn["reward"] = np.float64(turn["reward"])
            turn["valid"] = np.bool_(turn["valid"])
            turn["entropies"] = np.array(turn["entropies"])
    for a, b in zip(turnwise.credit(batch, "aem-gigpo").advantages, turnwise.credit(other, "aem-gigpo").advantages):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("seed", [-1, 2**64, 0.5, True, "1"])
def test_a_seed_that_is_none_is_named(make_batch, seed):
    with pytest.raises(ValueError, match="seed is .*; it is a whole number from 0"):
        turnwise.credit(make_batch(0), "aem-grpo", seed=seed)
    with pytest.raises(ValueError, match="turnwise.seed is"):
        Settings("grpo", seed=seed)
