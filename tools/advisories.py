"""Checks the dependencies against known vulnerabilities where the advisory database cannot be reached.

    python3 tools/advisories.py check                # cargo deny, with the snapshot beside this file
    python3 tools/advisories.py update CHECKOUT      # makes the snapshot from a clone of RustSec's advisory-db

The snapshot, `advisories.jsonl`, has the facts of each advisory that are needed to match it: identifier, crate, date, versions.
Its first line names the commit and the day that it was made from. `check` writes a database of these facts into a temporary
folder and runs `cargo deny check advisories` on it. It needs git and cargo-deny; `update` also Python 3.11.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SNAPSHOT = Path(__file__).with_name("advisories.jsonl")
# Folder that cargo-deny (0.18 to 0.20) fetches RustSec's database into.
FETCHED = "databases/advisory-db-3157b0e258782691"
FRONT = re.compile(r"\A```toml\n(.*?)\n```", re.S)


def run(*command: str, cwd: Path | None = None) -> str:
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


def facts(text: str) -> dict | None:
    """Returns what an advisory's front matter says of crate and versions; nothing for a withdrawn one."""
    # Python 3.11; `check` does without it.
    import tomllib

    front = FRONT.match(text)
    if front is None:
        raise ValueError("no front matter")
    parsed = tomllib.loads(front[1])
    advisory, versions = parsed["advisory"], parsed.get("versions", {})
    if "withdrawn" in advisory:
        return None
    found = {key: advisory[key] for key in ("id", "package", "date")}
    if "informational" in advisory:
        found["informational"] = advisory["informational"]
    found["patched"] = versions.get("patched", [])
    if versions.get("unaffected"):
        found["unaffected"] = versions["unaffected"]
    return found


def update(checkout: Path) -> None:
    names = run("git", "ls-tree", "-r", "--name-only", "HEAD", "crates", cwd=checkout).split("\n")
    names = [name for name in names if re.fullmatch(r"crates/[^/]+/RUSTSEC-\d+-\d+\.md", name)]
    if not names:
        sys.exit(f"{checkout}: no advisories in `crates`; name a clone of https://github.com/RustSec/advisory-db")
    commit, day = run("git", "log", "-1", "--format=%H %cs", cwd=checkout).split()
    lines = [{"commit": commit, "date": day}]
    for name in sorted(names, key=lambda name: name.rsplit("/", 1)[1]):
        found = facts(run("git", "show", f"HEAD:{name}", cwd=checkout))
        if found:
            lines.append(found)
    SNAPSHOT.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    print(f"{len(lines) - 1} advisories of {day} written to {SNAPSHOT.relative_to(ROOT)}")


def write_database(folder: Path, advisories: list[dict]) -> None:
    """Writes a git repository in the form of advisory-db. JSON's strings and arrays are TOML's."""
    for advisory in advisories:
        place = folder / "crates" / advisory["package"]
        place.mkdir(parents=True, exist_ok=True)
        first = [key for key in ("id", "package", "date", "informational") if key in advisory]
        lines = ["```toml", "[advisory]", *(f"{key} = {json.dumps(advisory[key])}" for key in first), "", "[versions]"]
        lines += [f"{key} = {json.dumps(advisory[key])}" for key in ("patched", "unaffected") if key in advisory]
        title = f"{advisory['package']}: https://rustsec.org/advisories/{advisory['id']}"
        (place / f"{advisory['id']}.md").write_text("\n".join([*lines, "```", "", f"# {title}", "", title, ""]))
    name = ("-c", "user.name=turnwise", "-c", "user.email=turnwise@localhost")
    run("git", "init", "--quiet", "--initial-branch=main", cwd=folder)
    run("git", "add", ".", cwd=folder)
    run("git", *name, "commit", "--quiet", "--message", "snapshot", cwd=folder)


def check() -> int:
    head, *advisories = map(json.loads, SNAPSHOT.read_text().splitlines())
    print(f"{len(advisories)} advisories of {head['date']}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        database = folder / FETCHED
        database.mkdir(parents=True)
        write_database(database, advisories)
        # The project's settings, with the folder of this database. Its age is that of the snapshot, which is printed.
        settings = (ROOT / "deny.toml").read_text()
        own = f'[advisories]\ndb-path = "{database.parent}"\n'
        config = folder / "deny.toml"
        config.write_text(settings.replace("[advisories]\n", own))
        return subprocess.run(["cargo", "deny", "--config", config, "--offline", "check", "advisories"], cwd=ROOT).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="check the lock file against the snapshot")
    commands.add_parser("update", help="make the snapshot from a clone of advisory-db").add_argument("checkout", type=Path)
    options = parser.parse_args()
    if options.command == "update":
        update(options.checkout)
    else:
        sys.exit(check())


if __name__ == "__main__":
    main()
