"""Conversations of OpenAI messages, from files and from memory."""

from __future__ import annotations

import json

import pytest

import turnwise


def conversation(reward, city="Oslo"):
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": city})}}
    found = {
        "group": "g",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Umbrella?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "rain"},
            {"role": "assistant", "content": "Yes."},
        ],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
        "reward": reward,
    }
    return {key: value for key, value in found.items() if value is not None}


def test_a_file_and_the_same_dicts_have_the_same_advantages(tmp_path):
    batch = [conversation(1.0), conversation([0.25, 0.0], city="Bergen")]
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join(map(json.dumps, batch)))
    read = turnwise.read_dump(path)
    first = read[0]["turns"][0]
    assert first["calls"] == [{"id": "c1", "name": "weather", "arguments": {"city": "Oslo"}}]
    assert [part["role"] for part in first["parts"]] == ["system", "user"]
    assert read[0]["turns"][1]["parts"] == [{"type": "tool_result", "call_id": "c1", "text": "rain"}]
    expected = [[0.75, 0.75], [-0.75, -0.75]]
    for given in (batch, read):
        credit = turnwise.credit(given, "rloo")
        assert [list(advantages) for advantages in credit.advantages] == expected


def test_conversations_without_a_reward_are_read_and_not_credited(tmp_path):
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps(conversation(None)))
    with pytest.warns(UserWarning, match="1 of 1 trajectories have no reward"):
        read = turnwise.read_dump(path)
    assert "reward" not in read[0]["turns"][0]
    for given in (read, [conversation(None)]):
        with pytest.raises(ValueError, match="`reward` is missing"):
            turnwise.credit(given, "rloo")


def test_what_is_wrong_is_named():
    wrong = conversation(1.0)
    wrong["messages"][1]["role"] = "human"
    with pytest.raises(ValueError, match=r"batch\[1\]: `messages\[1\].role` is \"human\""):
        turnwise.credit([conversation(1.0), wrong], "rloo")
