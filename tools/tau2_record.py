#!/usr/bin/env python3
"""Records plays of tau2-bench's tools, for `turnwise env replay tau2 FILE --data CHECKOUT`.

    git clone https://github.com/sierra-research/tau2-bench
    pip install ./tau2-bench
    python tools/tau2_record.py tau2-bench retail > plays.jsonl

Every task is played with its gold calls, and several times with mistakes: wrong ids, calls left out, doubled or in another order,
arguments missing, too many or of a wrong type, and calls about other users. The form of the lines is in
crates/env/src/tau2/replay.rs.
"""

import argparse
import itertools
import json
import os
import random
import sys
import types
from pathlib import Path


def dump(value):
    return json.dumps(value, default=str)


class Retail:
    """The store. States are compared by the rows that changed."""

    solo = False

    def __init__(self):
        from tau2.domains.retail.environment import get_environment
        from tau2.domains.retail.tools import RetailTools

        self.shared = get_environment()
        self.start = self.rows(self.shared.tools.db)
        self.writes = [name for name in vars(RetailTools) if name.startswith(("cancel", "exchange", "modify", "return"))]

    def environment(self, task):
        """The one environment, with the rows that changed as they were: the database takes long to read."""
        db = self.shared.tools.db
        for part in self.changes(self.shared):
            table, key = part.split(".", 1)
            rows = getattr(db, table)
            rows[key] = type(rows[key]).model_validate_json(self.start[part])
        return self.shared

    @staticmethod
    def rows(db):
        tables = {"users": db.users, "orders": db.orders}
        return {f"{name}.{key}": dump(row.model_dump()) for name, table in tables.items() for key, row in table.items()}

    def changes(self, environment):
        rows = self.rows(environment.tools.db)
        return {part: text for part, text in rows.items() if text != self.start[part]}

    def tools(self, environment):
        return environment.get_tools()

    def random_call(self, environment, draw):
        """A call about anything in the database, with arguments that fit more often than not."""
        db = environment.tools.db
        order = db.orders[draw.choice(list(db.orders))]
        if draw.random() < 0.5:
            wanted = draw.choice(["pending", "delivered", "pending (item modified)"])
            orders = [order for order in db.orders.values() if order.status == wanted]
            order = draw.choice(orders) if orders else order
        user = db.users[order.user_id]
        product = db.products[draw.choice(list(db.products))]
        items = [draw.choice(order.items) for _ in range(draw.choice([0, 1, 1, 2]))]
        new = [draw.choice(list(db.products[item.product_id].variants)) for item in items]
        if draw.random() < 0.15 and new:
            new[0] = draw.choice(list(product.variants))
        if draw.random() < 0.15:
            new = new[1:]
        method = draw.choice(list(user.payment_methods) + [order.payment_history[0].payment_method_id, "gift_card_0"])
        address = {
            "address1": "1 Main Street", "address2": draw.choice(["", "Suite 5"]), "city": "Zürich", "state": "CA",
            "country": "USA", "zip": draw.choice(["12345", 12345, None]),
        }
        name = draw.choice(self.writes + list(environment.tools.tools))
        pool = {
            "expression": draw.choice(["2 * (3 + 4.5)", "1/3", "5 / 0", "(1", "2**10", "7 - -3", "x", "1,5", "3 3", "1e3", 5]),
            "order_id": order.order_id, "reason": draw.choice(["no longer needed", "ordered by mistake", "why not"]),
            "item_ids": [item.item_id for item in items], "new_item_ids": new, "payment_method_id": method,
            "first_name": user.name.first_name.upper(), "last_name": user.name.last_name, "email": user.email.upper(),
            "product_id": product.product_id, "item_id": draw.choice(list(product.variants)), "user_id": user.user_id,
            "summary": "It is over.", **address,
        }
        if name == "find_user_id_by_name_zip":
            pool["zip"] = user.address.zip
        tool = environment.tools.get_tools()[name]
        return name, {key: pool[key] for key in tool.params.model_fields}


class Telecom:
    """The carrier in solo mode. States are compared as a whole."""

    solo = True

    def __init__(self):
        from tau2.domains.telecom.environment import get_environment

        self.make = lambda: get_environment(solo_mode=True)

    def environment(self, task):
        from tau2.domains.telecom.user_data_model import PerformanceLevel
        from tau2.domains.telecom.user_tools import TelecomUserTools

        # The original breaks the VPN of all later episodes of its process; here each has its own.
        TelecomUserTools.default_vpn_details.server_performance = PerformanceLevel.EXCELLENT
        environment = self.make()
        initial = task.initial_state
        environment.set_state(initial.initialization_data, initial.initialization_actions, [])
        return environment

    @staticmethod
    def changes(environment):
        return {"carrier": dump(environment.tools.db.model_dump()), "phone": dump(environment.user_tools.db.model_dump())}

    @staticmethod
    def tools(environment):
        return environment.get_tools() + environment.get_user_tools()

    def random_call(self, environment, draw):
        db = environment.tools.db
        customer = draw.choice(db.customers)
        if draw.random() < 0.6:
            customer = db.customers[0]
        line = draw.choice(customer.line_ids + ["L1004"])
        bill = draw.choice(customer.bill_ids + ["B1004"]) if customer.bill_ids else "B1001"
        device = draw.choice(db.devices).device_id
        pool = {
            "phone_number": draw.choice([customer.phone_number, draw.choice(db.lines).phone_number, "555"]),
            "customer_id": customer.customer_id, "line_id": line, "bill_id": bill, "reason": "vacation",
            "full_name": customer.full_name.upper(), "dob": draw.choice([customer.date_of_birth, "2000-01-01"]),
            "id": draw.choice([line, bill, device, customer.customer_id, "P1001", "P9", "D9", "X1", ""]),
            "limit": draw.choice([0, 1, 2, -1, -9, 12, None, True, "x", 1.5]),
            "gb_amount": draw.choice([1, 2.0, 0.1, 0, -3, 1e20, True, "2", None]),
            "summary": "It is over.", "mode": draw.choice(["4g_5g_preferred", "4g_only", "3g_only", "2g_only", "6g", ""]),
            "app_name": draw.choice(["messaging", "browser", "camera", 5, []]),
            "permission": draw.choice(["sms", "STORAGE", "phone", "network", "camera", 5]),
            "apn_settings": draw.choice([
                {}, {"apn_name": "internet", "mms_port": 5, "mms_proxy": "p"}, {"apn_name": "broken"},
                {"mmsc_url": None}, {"mmsc_url": "", "reset_at_reboot": True}, {"apn_name": "x", "more": 1, "mms_port": "a"},
                {"mms_apn": 5, "mms_port": "7"},
            ]),
        }
        tools = {tool.name: tool for tool in self.tools(environment)}
        name = draw.choice(list(tools))
        arguments = {key: pool[key] for key in tools[name].params.model_fields}
        if draw.random() < 0.3:
            arguments.pop("limit", None)
        return name, arguments


DOMAINS = {"retail": Retail, "telecom": Telecom}


EXTRA = {"note", "self", "tool_name", "requestor"}


def spoil(calls, draw, pool):
    """Returns the calls with mistakes."""
    calls = [(name, json.loads(json.dumps(arguments))) for name, arguments in calls]
    for _ in range(draw.randint(1, 3)):
        if not calls:
            calls.append(("get_nothing", {}))
        place = draw.randrange(len(calls))
        name, arguments = calls[place]
        keys = list(arguments)
        kind = draw.choice(["drop", "double", "swap", "missing", "extra", "id", "type", "name", "other", "text", "bare"])
        if kind == "drop":
            del calls[place]
        elif kind == "double":
            calls.insert(place, (name, dict(arguments)))
        elif kind == "swap":
            other = draw.randrange(len(calls))
            calls[place], calls[other] = calls[other], calls[place]
        elif kind == "missing" and keys:
            for key in draw.sample(keys, draw.randint(1, len(keys))):
                del arguments[key]
        elif kind == "extra" and not EXTRA & set(keys):
            # Of several Python names the first, and JSON objects have no order here.
            arguments[draw.choice(sorted(EXTRA))] = "x"
        elif kind == "id" and keys:
            key = draw.choice(keys)
            value = arguments[key]
            if isinstance(value, str):
                arguments[key] = value[:-1] + draw.choice("0123456789")
            elif isinstance(value, list) and value:
                value[draw.randrange(len(value))] = draw.choice(["1008292230", "0"])
        elif kind == "type" and keys and "mode" not in keys:
            # The original stores a mode of any type, and fails afterwards.
            arguments[draw.choice(keys)] = draw.choice([None, 5, 1.5, True, [], ["a"], {}, {"a": [1]}, "", "a" * 60])
        elif kind == "name":
            calls[place] = (draw.choice(["do_it", "", "__class__", name.upper()]), arguments)
        elif kind == "other":
            calls.insert(place, pool())
        elif kind == "text" and keys:
            key = draw.choice(keys)
            if isinstance(arguments[key], list):
                arguments[key] = " ".join(map(str, arguments[key]))
        elif kind == "bare":
            calls[place] = (name, {})
    return calls


def play(domain, name, task, calls, words, counter, golden):
    """Plays calls and returns the line of the recording. `golden` has the states after the gold calls of tasks."""
    from tau2.data_model.message import AssistantMessage, ToolCall
    from tau2.evaluator.evaluator_communicate import CommunicateEvaluator

    counter[0] = itertools.count(1)
    environment = domain.environment(task)
    made, results = [], []
    for call in calls(environment):
        arguments = json.loads(json.dumps(call[1]))
        response = environment.get_response(ToolCall(id="call", name=call[0], arguments=call[1]))
        made.append({"name": call[0], "arguments": arguments})
        results.append(response.content)
    changes = domain.changes(environment)
    criteria = task.evaluation_criteria
    assertions = []
    for assertion in criteria.env_assertions or []:
        try:
            assertions.append(environment.run_env_assertion(assertion, raise_assertion_error=False))
        except Exception:
            assertions.append(False)
    if task.id not in golden:
        counter[0] = itertools.count(1)
        gold = domain.environment(task)
        for action in criteria.actions or []:
            try:
                requestor = "assistant" if domain.solo else action.requestor
                gold.make_tool_call(tool_name=action.name, requestor=requestor, **action.arguments)
            except Exception:
                pass
        golden[task.id] = domain.changes(gold)
    said = [AssistantMessage(role="assistant", content=text) for text in words]
    checks = CommunicateEvaluator.evaluate_communicate_info(said, criteria.communicate_info or [])
    return {
        "domain": name, "task": task.id, "calls": made, "results": results, "changes": changes, "words": words,
        "database": changes == golden[task.id], "communicated": all(check.met for check in checks), "assertions": all(assertions),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("domain", choices=DOMAINS)
    parser.add_argument("--plays", type=int, default=5, help="plays with mistakes of each task")
    parser.add_argument("--split", default="base", help="split whose tasks are played")
    parser.add_argument("--tasks", type=int, default=None, help="number of tasks; all by default")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    os.environ["TAU2_DATA_DIR"] = str(args.checkout / "data")
    sys.path.insert(0, str(args.checkout / "src"))
    from loguru import logger

    logger.remove()
    import importlib

    from tau2.user.user_simulator import UserSimulator

    domain = DOMAINS[args.domain]()
    module = importlib.import_module(f"tau2.domains.{args.domain}.environment")
    tasks = module.get_tasks(args.split)[: args.tasks]
    # Ids that the original draws at random are counted, so that a recording can be replayed.
    counter, golden = [itertools.count(1)], {}
    import uuid

    uuid.uuid4 = lambda: types.SimpleNamespace(hex=f"{next(counter[0]):08x}")

    def write(line):
        print(json.dumps(line, ensure_ascii=False))

    tools = domain.tools(domain.environment(tasks[0]))
    write({"domain": args.domain, "tools": [tool.openai_schema for tool in tools]})
    for place, task in enumerate(tasks):
        if not domain.solo:
            prompt = UserSimulator(llm="none", instructions=str(task.user_scenario)).system_prompt
            write({"domain": args.domain, "task": task.id, "prompt": prompt})
        gold = [(action.name, action.arguments) for action in task.evaluation_criteria.actions or []]
        words = [f"You should know: {text}." for text in task.evaluation_criteria.communicate_info or []]
        write(play(domain, args.domain, task, lambda _: gold, words, counter, golden))
        for number in range(args.plays):
            draw = random.Random(f"{args.seed} {place} {number}")
            if number % 3 == 2:

                def calls(environment):
                    for _ in range(draw.randint(3, 12)):
                        yield domain.random_call(environment, draw)

            else:

                def calls(environment):
                    return spoil(gold, draw, lambda: domain.random_call(environment, draw))

            some = [text for text in words if draw.random() < 0.7]
            write(play(domain, args.domain, task, calls, some, counter, golden))


if __name__ == "__main__":
    main()
