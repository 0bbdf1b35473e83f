"""Writes a small data folder of original tasks for AppWorld's server, if AppWorld's own data cannot be downloaded.

    python3 -m venv appworld && appworld/bin/pip install appworld==0.1.3.post1 jsonref && appworld/bin/appworld install
    appworld/bin/python tools/appworld_tasks.py FOLDER [--people N]
    cd FOLDER && APPWORLD_ROOT=. .../appworld/bin/appworld serve environment --port 8000

The apps, their data bases, the API documents and the server are AppWorld's. People, notes, tasks and tests are made here, so
**scores on these tasks are not AppWorld scores**. They show that a client works with the real server. Three scenarios about
the app Simple Note, each with a task for every person: count notes with a tag, delete a note, write a note. `expert.jsonl`
has code that solves each task.
"""

import argparse
import json
import os
import random
import re
from pathlib import Path

FIRST = ["Ada", "Bela", "Cem", "Dara", "Edo", "Fay", "Gil", "Hana", "Ivo", "Juna", "Kian", "Lea", "Milo", "Nora", "Otis", "Pia"]
LAST = ["Acker", "Brandt", "Conti", "Duval", "Ekman", "Farkas", "Gallo", "Hauser"]
TAGS = ["garden", "kitchen", "travel", "work", "music", "school"]
THINGS = ["tomatoes", "the roof", "a birthday", "the piano", "the train to Lyon", "old letters", "a bicycle", "the exam", "paint",
          "bread", "the boiler", "a tent"]
SPLITS = ["train", "dev", "test_normal", "test_challenge"]

LOGIN = """passwords = {{entry["account_name"]: entry["password"] for entry in apis.supervisor.show_account_passwords()}}
email = apis.supervisor.show_profile()["email"]
token = apis.simple_note.login(username=email, password=passwords["simple_note"])["access_token"]
"""
SOLUTIONS = {
    "count": LOGIN + """found, page = [], 0
while True:
    notes = apis.simple_note.search_notes(access_token=token, tags=[{tag!r}], page_index=page, page_limit=20)
    found += notes
    page += 1
    if not notes:
        break
apis.supervisor.complete_task(answer=len(found))
""",
    "delete": LOGIN + """notes = apis.simple_note.search_notes(access_token=token, query={title!r}, page_limit=20)
note = [note for note in notes if note["title"] == {title!r}][0]
apis.simple_note.delete_note(access_token=token, note_id=note["note_id"])
apis.supervisor.complete_task()
""",
    "write": LOGIN + """apis.simple_note.create_note(access_token=token, title={title!r}, content={content!r})
apis.supervisor.complete_task()
""",
}

SIGNATURE = "def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):\n"
EVALUATIONS = {
    "count": """    with test("the answer is the number of notes with the tag"):
        test.answer(models.end.supervisor.Task.all()[0]._to_humanized_dict()["answer"], ground_truth_answer)
    with test("no note is changed"):
        test.case("simple_note.Note" in models.changed_model_names(), "==", False)
""",
    "delete": """    before = {note.id: note.title for note in models.start.simple_note.Note.all()}
    after = {note.id: note.title for note in models.end.simple_note.Note.all()}
    with test("the note with the title is gone"):
        test.case(private_data.note_id in after, "==", False)
    with test("every other note is still there"):
        test.case({key: title for key, title in before.items() if key != private_data.note_id}, "==",
                  {key: title for key, title in after.items() if key != private_data.note_id})
""",
    "write": """    before = {note.id for note in models.start.simple_note.Note.all()}
    made = [note for note in models.end.simple_note.Note.all() if note.id not in before]
    with test("one note is new"):
        test.case(len(made), "==", 1)
    with test("the new note has the title and the content"):
        test.case([(note.title, note.content) for note in made], "==", [(public_data.title, public_data.content)])
    with test("no note is missing"):
        test.case(before - {note.id for note in models.end.simple_note.Note.all()}, "==", set())
""",
}
# For each test of an evaluation: whether it passes without any action of the agent.
LABELS = {
    "count": ["no_op_fail", "no_op_pass"],
    "delete": ["no_op_fail", "no_op_pass"],
    "write": ["no_op_fail", "no_op_fail", "no_op_pass"],
}


def requirements(kind: str) -> list[dict]:
    """Returns the names and labels of the tests in an evaluation."""
    names = re.findall(r'with test\("(.+?)"\)', EVALUATIONS[kind])
    return [{"requirement": name, "label": label} for name, label in zip(names, LABELS[kind], strict=True)]


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def split_of(person: int, count: int) -> str:
    """Returns the data set of a person. The last eighths belong to dev and the two test sets, the others to train."""
    held_out = max(1, count // 8)
    return SPLITS[max(0, 3 - (count - 1 - person) // held_out)]


def make_people(count: int, draw: random.Random) -> list[dict]:
    people = []
    for index in range(count):
        first, last = FIRST[index % len(FIRST)], LAST[(index * 3 + index // len(FIRST)) % len(LAST)]
        people.append({
            "first_name": first if index < len(FIRST) else f"{first}{index}",
            "last_name": last,
            "email": f"{first}.{last}{index}@example.com".lower(),
            "phone_number": f"555{index:07d}",
            "birthday": f"19{70 + index % 30}-0{1 + index % 9}-1{index % 9}",
            "password": "".join(draw.choices("abcdefghkmnpqrstuvwxyz23456789", k=8)),
            "notes": make_notes(draw),
        })
    return people


def make_notes(draw: random.Random) -> list[dict]:
    things = draw.sample(THINGS, draw.randint(5, 9))
    return [
        {"title": f"About {thing}", "content": f"Remember {thing} on day {draw.randint(1, 28)}.", "tags": draw.sample(TAGS, draw.randint(1, 3))}
        for thing in things
    ]


def make_task(kind: str, person: dict, draw: random.Random) -> dict:
    if kind == "count":
        tag = draw.choice(TAGS)
        answer = sum(tag in note["tags"] for note in person["notes"])
        return {
            "instruction": f"How many of my notes in Simple Note have the tag {tag}?",
            "answer": answer, "public": {"tag": tag}, "private": {}, "solution": SOLUTIONS[kind].format(tag=tag),
        }
    if kind == "delete":
        note = draw.choice(person["notes"])
        return {
            "instruction": f"Delete my note \"{note['title']}\" from Simple Note.",
            "answer": None, "public": {"title": note["title"]}, "private": {"note_id": note["id"]},
            "solution": SOLUTIONS[kind].format(title=note["title"]),
        }
    title, content = f"List {draw.randint(100, 999)}", f"Buy {draw.choice(THINGS)}."
    return {
        "instruction": f"Write a note titled \"{title}\" into Simple Note. Its content is: {content}",
        "answer": None, "public": {"title": title, "content": content}, "private": {},
        "solution": SOLUTIONS[kind].format(title=title, content=content),
    }


def write_databases(people: list[dict]) -> None:
    """Fills AppWorld's data bases: accounts of all people, and the notes of each."""
    from appworld.collections.models import ModelCollection

    os.makedirs("data/base_dbs", exist_ok=True)
    models = ModelCollection.load(to_db_home_path=os.path.abspath("data/base_dbs"), load_apps=all_apps(), create_db=True)
    for person in people:
        names = {key: person[key] for key in ("first_name", "last_name", "email")}
        user = models.admin.MainUser.create_save(**names, phone_number=person["phone_number"], birthday=person["birthday"])
        models.admin.AccountPassword.create_save(main_user_id=user.id, account_name="simple_note", password=person["password"])
        account = models.simple_note.User.create_save(
            **names, password=person["password"], verified=True, created_at=past(400), last_logged_in=past(10)
        )
        for age, note in enumerate(person["notes"]):
            made = models.simple_note.Note.create_save(user_id=account.id, created_at=past(300 - age), updated_at=past(200 - age), **note)
            note["id"] = made.id
    models.close()


def all_apps() -> list[str]:
    from appworld.apps import get_all_apps

    return [*get_all_apps(skip_admin=True), "admin"]


def past(days: int):
    from appworld.common.constants import DEFAULT_SYSTEM_DATETIME

    return DEFAULT_SYSTEM_DATETIME.subtract(days=days)


def write_task(task_id: str, kind: str, person: dict, task: dict) -> None:
    """Writes a task: its specification, the changes to the data bases (the supervisor) and the tests."""
    from appworld.collections.models import ModelCollection
    from appworld.common.constants import DB_VERSION, DEFAULT_SYSTEM_DATETIME

    folder = Path("data/tasks") / task_id
    supervisor = {key: person[key] for key in ("first_name", "last_name", "email", "phone_number")}
    write_json(folder / "specs.json", {
        "instruction": task["instruction"], "supervisor": supervisor,
        "datetime": DEFAULT_SYSTEM_DATETIME.isoformat(), "db_version": DB_VERSION,
    })
    apps = all_apps()
    models = ModelCollection.load(
        to_db_home_path=f":memory:task_input-{task_id}", from_db_home_path=os.path.abspath("data/base_dbs"), load_apps=apps
    )
    made = models.supervisor.Supervisor.create_save(**supervisor, birthday=person["birthday"])
    models.supervisor.Task.create_save(supervisor_id=made.id, instruction=task["instruction"])
    models.supervisor.AccountPassword.create_save(
        supervisor_id=made.id, account_name="simple_note", password=person["password"]
    )
    models.save(db_home_path=os.path.abspath(folder / "dbs"), app_names=apps, format="full")
    models.close()
    truth = folder / "ground_truth"
    write_json(truth / "metadata.json", {
        "mode": "minimal", "difficulty": 1, "num_apps": 1, "num_apis": 4, "num_api_calls": 4, "num_solution_code_lines": 6,
    })
    write_json(truth / "public_data.json", task["public"])
    write_json(truth / "private_data.json", task["private"])
    write_json(truth / "answer.json", task["answer"])
    write_json(truth / "test_data.json", requirements(kind))
    (truth / "evaluation.py").write_text(SIGNATURE + EVALUATIONS[kind], encoding="utf-8")


def write_api_docs() -> None:
    from appworld.api_docs import prepare_api_docs
    from appworld.apps import get_all_apps
    from appworld.common.constants import CANARY_STRING

    for app in get_all_apps(skip_admin=True):
        docs = {doc["api_name"]: {**doc, "canary_string": CANARY_STRING} for doc in prepare_api_docs(app)}
        write_json(Path("data/api_docs/standard") / f"{app}.json", docs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="new folder, the server's APPWORLD_ROOT")
    parser.add_argument("--people", type=int, default=16, help="number of people; each has three tasks (default 16)")
    arguments = parser.parse_args()
    if arguments.people < len(SPLITS):
        parser.error(f"--people {arguments.people}: at least {len(SPLITS)}, one for each data set")
    root = Path(arguments.folder).resolve()
    if root.exists():
        parser.error(f"{root} exists; name a new folder")
    os.environ["APPWORLD_ROOT"] = str(root)
    try:
        from appworld import update_root
    except ImportError:
        parser.error("the package `appworld` is missing; see the commands above")
    root.mkdir(parents=True)
    os.chdir(root)
    update_root(str(root))
    draw = random.Random(0)
    people = make_people(arguments.people, draw)
    write_databases(people)
    write_api_docs()
    sets: dict[str, list[str]] = {split: [] for split in SPLITS}
    with open("expert.jsonl", "w", encoding="utf-8") as expert:
        for number, kind in enumerate(SOLUTIONS):
            for index, person in enumerate(people):
                split = split_of(index, len(people))
                task = make_task(kind, person, draw)
                task_id = f"{number + 1:07x}_{index + 1}"
                write_task(task_id, kind, person, task)
                sets[split].append(task_id)
                expert.write(json.dumps({"id": task_id, "code": task["solution"]}) + "\n")
    Path("data/datasets").mkdir(parents=True, exist_ok=True)
    for split, tasks in sets.items():
        Path(f"data/datasets/{split}.txt").write_text("\n".join(tasks) + "\n", encoding="utf-8")
    print(f"{len(SOLUTIONS) * len(people)} tasks in {root}")


if __name__ == "__main__":
    main()
