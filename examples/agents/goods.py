"""An agent written with the `openai` package: it answers questions about goods with two tools.

Nothing in `answer` knows of training. The loop at the end plays one episode a line: it gets a base URL and an API key that
names the episode, and prints the episode's reward.
"""

import json
import sys

from openai import OpenAI


def tool(name, description):
    thing = {"type": "string", "description": "what to look up"}
    parameters = {"type": "object", "properties": {"thing": thing}, "required": ["thing"]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [tool("colour", "The colour of a thing."), tool("price", "The price of a thing.")]


def example(question, name, thing, found):
    """A question, answered with a tool."""
    function = {"name": name, "arguments": json.dumps({"thing": thing})}
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [{"id": thing, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": thing, "content": found},
        {"role": "assistant", "content": found},
    ]


START = [
    {"role": "system", "content": "Look things up with a tool. Then answer in one word."},
    *example("What colour is the hat?", "colour", "hat", "green"),
    *example("What does the pen cost?", "price", "pen", "12"),
    *example("What colour is the door?", "colour", "door", "white"),
]


def look_up(goods, call):
    """Returns what a tool says; mistakes of the model are words for it, too."""
    try:
        thing = json.loads(call.function.arguments)["thing"]
        return str(goods[thing][call.function.name])
    except (KeyError, TypeError, ValueError):
        return "there is no such thing"


def answer(client, question, goods, calls=2):
    """Asks the model until it answers in words, for at most so many calls of tools."""
    messages = [*START, {"role": "user", "content": question}]
    for _ in range(calls + 1):
        reply = client.chat.completions.create(model="policy", messages=messages, tools=TOOLS, max_tokens=32)
        message = reply.choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message)
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": look_up(goods, call)})
    return ""


for line in sys.stdin:
    episode = json.loads(line)
    client = OpenAI(base_url=episode["base_url"], api_key=episode["api_key"])
    task = episode["task"]
    found = answer(client, task["question"], task["goods"])
    solved = found.strip(" .").lower() == task["answer"]
    print(json.dumps({"reward": float(solved), "success": solved}), flush=True)
