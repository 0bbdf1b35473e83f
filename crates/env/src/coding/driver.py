"""Evaluates calls on given files and writes their values.

It never sees expected values: the program compares them outside of the sandbox.
"""

import json
import os
import resource
import signal
import sys
import types


def as_json(value):
    """Turns generators, tuples and sets into lists, as a file of JSON has them."""
    if isinstance(value, dict):
        return {key: as_json(entry) for key, entry in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(as_json(entry) for entry in value)
    if isinstance(value, (list, tuple, types.GeneratorType)):
        return [as_json(entry) for entry in value]
    return value


def shown(value):
    """Writes a value with the entries of sets in order, whose own order is by chance."""
    if isinstance(value, dict):
        return "{" + ", ".join(shown(key) + ": " + shown(entry) for key, entry in value.items()) + "}"
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(shown(entry) for entry in value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(shown(entry) for entry in value) + "]"
    if isinstance(value, tuple):
        return "(" + "".join(shown(entry) + ", " for entry in value) + ")"
    return repr(value)


def work(job, folder, output):
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.chdir(folder)
    # CPU time, so that a busy machine changes no result.
    signal.setitimer(signal.ITIMER_PROF, job["seconds"])
    # Less than the sandbox has, so that a job that takes too much ends alone.
    most = resource.getrlimit(resource.RLIMIT_AS)[0] * 3 // 4
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    names = {}
    if job["module"]:
        sys.path.insert(0, folder)
        names = vars(__import__(job["module"])).copy()
    names["as_json"] = as_json
    for call in job["calls"]:
        try:
            value = shown(eval(call, names))
        except Exception as error:
            value = "!" + type(error).__name__
        os.write(output, (json.dumps(value) + "\n").encode())


def main():
    with open("/work/jobs.json") as file:
        jobs = json.load(file)
    os.remove("/work/jobs.json")
    results = []
    for number, job in enumerate(jobs):
        folder = "/tmp/job-%d" % number
        os.mkdir(folder)
        for path, text in job["files"].items():
            path = os.path.join(folder, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(text)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(reader)
                work(job, folder, writer)
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as file:
            lines = file.read().split("\n")
        os.waitpid(child, 0)
        # A line that was cut off is none.
        results.append([json.loads(line) for line in lines[:-1]])
    with open("/work/results.json", "w") as file:
        json.dump(results, file)


main()
