"""An agent of a public framework: a LangGraph graph that finds a number.

One node asks the model for a guess, the other says whether the number is higher or lower. Nothing in the graph knows of
training: it is given a chat model. The loop at the end plays one episode a line.
"""

import json
import re
import sys

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph

GUESSES = 3
RULES = "Find a number from 1 to 5 in three guesses. Reply with a number only."

# A game, played to its end.
EXAMPLE = [
    SystemMessage(RULES),
    HumanMessage("Guess."),
    AIMessage("1"),
    HumanMessage("Higher. Guess."),
    AIMessage("4"),
    HumanMessage("Right. Guess the next number."),
]


class State(MessagesState):
    secret: int
    guesses: int
    found: bool


def graph(model):
    def guess(state):
        return {"messages": [model.invoke(state["messages"])], "guesses": state["guesses"] + 1}

    def judge(state):
        digits = re.search(r"\d+", state["messages"][-1].content)
        number = int(digits.group()) if digits else 0
        if number == state["secret"]:
            return {"found": True}
        word = "Higher" if number < state["secret"] else "Lower"
        return {"messages": [HumanMessage(f"{word}. Guess.")]}

    def more(state):
        return END if state["found"] or state["guesses"] >= GUESSES else "guess"

    built = StateGraph(State)
    built.add_node("guess", guess)
    built.add_node("judge", judge)
    built.add_edge(START, "guess")
    built.add_edge("guess", "judge")
    built.add_conditional_edges("judge", more, ["guess", END])
    return built.compile()


for line in sys.stdin:
    episode = json.loads(line)
    model = ChatOpenAI(model="policy", base_url=episode["base_url"], api_key=episode["api_key"], max_tokens=4)
    start = {"messages": EXAMPLE, "secret": episode["task"]["secret"], "guesses": 0, "found": False}
    end = graph(model).invoke(start)
    print(json.dumps({"reward": float(end["found"]), "metrics": {"guesses": end["guesses"]}}), flush=True)
