"""Draws random sentences from the documentation, for a cold reading.

A cold reading takes 60 sentences, reads each without the code, and counts those that a newcomer would not understand:

    python3 tools/sample_prose.py --seed 7 --count 60
    python3 tools/sample_prose.py --seed 7 --count 60 --only rustdoc
    python3 tools/sample_prose.py --counts

The same seed draws the same sentences from the same text. Sentences come from README and the other pages at the root, the guide
(`docs`), the command help (`docs/reference/cli.md`) and the rustdoc of the crates. Code blocks, headings, links' targets and
pages that are written from rustdoc (`docs/reference/config.md`) are left out. It needs Python 3.10 and nothing else.
"""

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README", "METHODS", "ARCHITECTURE", "CONTRIBUTING", "GLOSSARY", "SECURITY"]
# Written from rustdoc, or only an include of another page, or a list of links.
GENERATED = {"docs/reference/config.md", "docs/glossary.md", "docs/SUMMARY.md"}
HELP = "docs/reference/cli.md"

# A sentence has at least this many words outside of code: the rest are labels, numbers and lists of names.
SHORTEST = 4
WORD = re.compile(r"[A-Za-z]{2,}")
# A full stop after these ends no sentence.
ABBREVIATIONS = re.compile(r"(?:\b(?:e\.g|i\.e|vs|cf|al|Fig|Eq|Sec|approx|etc|No)|\.\.)\.$")

Lines = list[tuple[int, str]]


def markdown_pages() -> list[Path]:
    pages = [ROOT / f"{name}.md" for name in PAGES]
    pages += sorted((ROOT / "docs").rglob("*.md"))
    return [page for page in pages if str(page.relative_to(ROOT)) not in GENERATED]


def rust_files() -> list[Path]:
    folders = [*sorted(ROOT.glob("crates/*/src")), ROOT / "bindings/python/src"]
    files = [file for folder in folders for file in sorted(folder.rglob("*.rs"))]
    # Helpers of unit tests are documented, too, but nobody outside reads them.
    return [file for file in files if not any("test" in part for part in file.relative_to(ROOT).parts)]


def paragraphs_of_markdown(lines: Lines) -> Iterator[Lines]:
    """Paragraphs, list items and table cells with their line numbers; code blocks and headings are skipped."""
    current: Lines = []
    fenced = False
    for number, line in lines:
        text = line.strip()
        if text.startswith("```"):
            fenced = not fenced
            text = ""
        if fenced or not text or text.startswith(("#", "<!--", "{{", "![")):
            yield current
            current = []
        elif text.startswith("|"):
            yield current
            current = []
            if not set(text) <= set("|-: "):
                # A bar in code or after a backslash is part of its cell.
                for cell in re.split(r"(?<!\\)\|", text.strip("|")):
                    yield [(number, cell.strip())]
        elif re.match(r"(?:[-*+]|\d+\.) ", text):
            yield current
            current = [(number, re.sub(r"^(?:[-*+]|\d+\.) ", "", text))]
        else:
            current.append((number, text))
    yield current


def paragraphs_of_help(lines: Lines) -> Iterator[Lines]:
    """Descriptions of commands and options in the printed help, each joined over its wrapped lines."""
    current: Lines = []
    indent = 0
    fenced = False
    for number, line in lines:
        if line.startswith("```"):
            fenced = not fenced
            yield current
            current = []
            continue
        text = line.strip()
        if not fenced or not text or text.startswith(("Usage:", "[default", "[possible", "-h, --help")) or text.endswith("s:"):
            yield current
            current = []
            continue
        # An option or argument and its description stand on one line, with two spaces or more between them.
        head = re.match(r"\s+(?:-|[<\[]|[a-z]+ {2})\S*.*? {2,}(\S.*)$", line)
        if head or re.match(r"\s+(?:-\w|--|<|\[)", line):
            yield current
            current = [(number, head.group(1))] if head else []
            indent = line.find(head.group(1)) if head else 0
        elif current and indent and len(line) - len(line.lstrip()) != indent:
            yield current
            current, indent = [(number, text)], len(line) - len(line.lstrip())
        else:
            current.append((number, text))
            indent = len(line) - len(line.lstrip())
    yield current


def paragraphs_of_rust(lines: Lines) -> Iterator[Lines]:
    """The paragraphs of every doc comment (`///` and `//!`)."""
    comment: Lines = []
    for number, line in [*lines, (0, "")]:
        found = re.match(r"\s*//[/!](?!/) ?(.*)$", line)
        if found:
            comment.append((number, found.group(1)))
        elif comment:
            yield from paragraphs_of_markdown(comment)
            comment = []


def plain(text: str) -> str:
    """The text as it is read: targets of links and marks of emphasis are left out."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\[(`[^`]*`)\]", r"\1", text)
    return text.replace("**", "").strip()


def sentences(paragraph: Lines) -> Iterator[tuple[int, str]]:
    """The sentences of a paragraph, each with the line it begins on."""
    words = [(number, word) for number, text in paragraph for word in plain(text).split()]
    sentence: list[str] = []
    start = 0
    for index, (number, word) in enumerate(words):
        if not sentence:
            start = number
        sentence.append(word)
        following = words[index + 1][1] if index + 1 < len(words) else "A"
        ends = re.search(r"[.!?][)\"'`*]*$", word) and not ABBREVIATIONS.search(word)
        # Code may begin a sentence, a small letter does not.
        if index + 1 == len(words) or (ends and re.match(r"[^a-z]", following)):
            text = " ".join(sentence)
            if len(WORD.findall(re.sub(r"`[^`]*`", "", text))) >= SHORTEST:
                yield start, text
            sentence = []


def numbered(file: Path) -> Lines:
    return list(enumerate(file.read_text(encoding="utf-8").splitlines(), start=1))


def all_sentences(only: str | None) -> list[str]:
    found = []
    for file in [] if only == "rustdoc" else markdown_pages():
        name = str(file.relative_to(ROOT))
        read = paragraphs_of_help if name == HELP else paragraphs_of_markdown
        for paragraph in read(numbered(file)):
            found += [f"{name}:{line}: {text}" for line, text in sentences(paragraph)]
    for file in [] if only == "docs" else rust_files():
        name = str(file.relative_to(ROOT))
        for paragraph in paragraphs_of_rust(numbered(file)):
            found += [f"{name}:{line}: {text}" for line, text in sentences(paragraph)]
    return found


def print_counts() -> None:
    """Prints the words of all Markdown (code blocks and generated pages included) and of the crates' rustdoc."""
    hidden = {"target", "runs", ".git"}
    markdown = [page for page in ROOT.rglob("*.md") if not hidden & set(page.relative_to(ROOT).parts)]
    rustdoc = [
        found.group(1)
        for file in rust_files()
        for _, line in numbered(file)
        if (found := re.match(r"\s*//[/!](?!/) ?(.*)$", line))
    ]
    print(f"Markdown: {sum(len(page.read_text(encoding='utf-8').split()) for page in markdown):,} words")
    print(f"rustdoc: {sum(len(line.split()) for line in rustdoc):,} words")
    print(f"sentences to draw from: {len(all_sentences('docs')):,} docs, {len(all_sentences('rustdoc')):,} rustdoc")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (default 0)")
    parser.add_argument("--count", type=int, default=60, help="number of sentences (default 60)")
    parser.add_argument("--only", choices=["docs", "rustdoc"], help="draw from Markdown and command help, or from rustdoc")
    parser.add_argument("--counts", action="store_true", help="print the words of Markdown and of rustdoc instead")
    arguments = parser.parse_args()
    if arguments.counts:
        print_counts()
        return
    found = all_sentences(arguments.only)
    if not 0 < arguments.count <= len(found):
        parser.error(f"--count {arguments.count}: must be between 1 and {len(found)}")
    for sentence in random.Random(arguments.seed).sample(found, arguments.count):
        print(sentence)


if __name__ == "__main__":
    main()
