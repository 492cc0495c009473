"""What the manual calls exists: each subcommand and each option of our programs, in blocks and sentences."""

import functools
import pathlib
import re
import subprocess

import pytest

from page import DOCS, PART
from server import BINARY, SUBJECT

pytestmark = pytest.mark.skipif(SUBJECT != "ringkeeper", reason="the manual is about ringkeeper")

ROOT = DOCS.parent
PAGES = {str(path.relative_to(ROOT)): path.read_text()
         for path in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]}

# Pages about another program of ours, which is looked for beside the server's.
OTHERS = {"docs/authorisation.md": "conformance", "docs/measuring.md": "bench-harness",
          "docs/simulation.md": "ringkeeper-sim", "README.md": "soak"}
NOT_OURS = {"--collector.textfile.directory"}

# A program where a command begins, and its words.
CALL = re.compile(r'(?:^ *|[|&;"=`] *|[$:] |/|-u \w+ )(ringkeeper|bench-harness|soak)(?= |$)([^|>;&#)`]*)')


def lines_of(block):
    """A block's commands, each on one line and with the name of its program."""
    block = block.replace("cargo run --release -p bench-harness --", "bench-harness")
    block = re.sub(r" *\\\n *", " ", block).replace("cargo run --release --", "ringkeeper")
    for name, value in re.findall(r'^(\w+)="(.*)"$', block, re.MULTILINE):
        block = block.replace(f"${name} ", f"{value} ")
    return block.splitlines()


def code_of(text):
    """The lines of a page's blocks, and what stands between backticks in its sentences."""
    lines = [line for part in PART.finditer(text) if part["body"] for line in lines_of(part["body"])]
    return lines, [" ".join(span.split()) for span in re.findall("`([^`]+)`", PART.sub("", text))]


def program(name):
    return pathlib.Path(BINARY) if name == "ringkeeper" else pathlib.Path(BINARY).with_name(name)


@functools.cache
def help_of(*path):
    """What a command has: its subcommands, and its options with whether a value follows."""
    def shown(*words):
        return subprocess.run([program(path[0]), *words], capture_output=True, text=True, check=True).stdout

    if path[:2] == ("ringkeeper", "shell"):
        # Its commands have a help of their own.
        listed = shown("shell", "help").split("\n\n")[0] if len(path) == 2 else ""
        text = shown("shell", *(["--help"] if len(path) == 2 else ["help", path[2]]))
    else:
        text = shown(*path[1:], "--help")
        listed = re.search(r"^Commands:\n(.*?)\n\n|\Z", text, re.MULTILINE | re.DOTALL)[0]
    options = re.findall(r"^ +(-\w)?(?:, )?(--[\w-]+)?((?: |\[=)<)?", text, re.MULTILINE)
    return (re.findall(r"^  (\w\S*)", listed, re.MULTILINE),
            {name: bool(value) for short, long, value in options for name in (short, long) if name})


def unknown(name, words):
    """The first word of a call that its program does not know."""
    path, words = [name], iter(words)
    for word in words:
        subcommands, options = help_of(*path)
        option = word.split("=")[0]
        if re.match("-+[a-zA-Z]", word):
            if option not in options:
                return option
            if options[option] and option == word:
                next(words, None)
        elif word in subcommands:
            path.append(word)
        elif subcommands and word != "...":
            return word
    return None


def all_options(*path):
    """The options of a command and of everything below it."""
    subcommands, options = help_of(*path)
    return set(options).union(*(all_options(*path, name) for name in subcommands if name != "help"))


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_calls_exists(page):
    lines, spans = code_of(PAGES[page])
    # Sentences leave the program out where a subcommand has others below it: `log verify`.
    commands = [name for name in help_of("ringkeeper")[0] if name not in ("shell", "help")]
    assert "server" in commands, "the help is not understood"
    groups = [name for name in commands if help_of("ringkeeper", name)[0]]
    spans += [f"ringkeeper {span}" for span in spans if span.split()[0] in groups and " " in span]
    calls = [call for line in lines + spans for call in CALL.findall(line) if program(call[0]).exists()]
    wrong = {f"{name}{words}": word for name, words in calls if (word := unknown(name, words.split()))}
    assert not wrong, "what is not known of each call"

    other = OTHERS.get(page)
    if other and not program(other).exists():
        pytest.skip(f"{other} is not beside the server's program")
    known = all_options("ringkeeper") | (all_options(other) if other else set()) | NOT_OURS
    named = {span.split()[0].split("=")[0] for span in spans if span.startswith("--")}
    assert named <= known, named - known
