"""Pages of the manual: their commands and settings, run as they stand.

They name ports, folders of the machine and hosts, so they run in namespaces of their own: nothing of this is
seen outside, and all of it ends with the test. That takes root.
"""

import os
import pathlib
import re
import subprocess
import textwrap

import pytest

from server import BINARY, SUBJECT

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"

NEEDS = [
    pytest.mark.skipif(SUBJECT != "ringkeeper", reason="the manual is about ringkeeper"),
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces take root"),
]

# `$work` is a folder for data and logs. Changes of the machine's folders are seen by the script alone.
PRELUDE = r"""
ip link set lo up
mount -t tmpfs none "$work"
for folder in /etc /srv /usr/bin /var/lib; do
    mkdir -p "$work/upper$folder" "$work/lower$folder"
    mount -t overlay overlay "$folder" \
        -o "lowerdir=$folder,upperdir=$work/upper$folder,workdir=$work/lower$folder"
done
# The test of the package installs it on the machine, maybe now.
rm -rf /etc/ringkeeper /var/lib/ringkeeper /usr/bin/ringkeeper
touch /usr/bin/ringkeeper
mount --bind "$binary" /usr/bin/ringkeeper
for number in 1 2 3 4 5; do echo "127.0.0.$number zoo$number zk$number"; done >> /etc/hosts
mkdir /etc/ringkeeper
cd /etc/ringkeeper

# Starts a server with the file NAME.cfg, whose data are in a folder of that name.
start() {
    mkdir -p "$work/$1"
    echo "dataDir=$work/$1" >> "$1.cfg"
    ringkeeper server --config "$1.cfg" > "$work/$1.log" 2>&1 &
    server=$!
}

# Starts a member of an ensemble at an address of its own, with its other settings from standard input.
member() {
    mkdir "$work/zoo$1"
    echo "$1" > "$work/zoo$1/myid"
    {
        printf '%s\n' tickTime=2000 initLimit=10 syncLimit=5 clientPort=2181
        printf '%s\n' "clientPortAddress=127.0.0.$1" "admin.serverAddress=127.0.0.$1"
        cat
    } > "zoo$1.cfg"
    start "zoo$1"
}

# Repeats a command until it succeeds.
await() {
    for _ in $(seq 60); do
        if "$@"; then return; fi
        sleep 0.5
    done
    tail -n 20 "$work"/*.log
    return 1
}
"""


# A heading, or a whole block: what looks like a heading inside of a block is none.
PART = re.compile(r"^(?:#+ (?P<heading>[^\n]*)"
                  r"|(?P<indent> *)```(?P<language>[^\n]*)\n(?P<body>.*?)^(?P=indent)```)$",
                  re.MULTILINE | re.DOTALL)

# What tests have taken: page, heading, language, number. A test takes its blocks when its module is imported.
TAKEN = set()


class Page:
    """The code blocks of a page, by heading, language and number: the first below its heading has 0."""

    def __init__(self, name):
        self.name, self.text, self.found, heading = name, (DOCS / name).read_text(), {}, None
        for part in PART.finditer(self.text):
            if part["heading"] is not None:
                heading = part["heading"]
                continue
            number = sum(key[:2] == (heading, part["language"]) for key in self.found)
            self.found[heading, part["language"], number] = textwrap.dedent(part["body"])

    def block(self, heading, language, number=0):
        """One block, for a test that runs it."""
        TAKEN.add((self.name, heading, language, number))
        return self.found[heading, language, number]

    def blocks(self, language):
        """All of a language, in their order."""
        return [self.block(*key) for key in self.found if key[1] == language]


def on(machine, text):
    """A page's text for one of several machines, which all are this one: each has a folder and a file."""
    text = text.replace("/var/lib/ringkeeper", f"/var/lib/ringkeeper/{machine}")
    return text.replace("zoo.cfg", f"{machine}.cfg").replace("echo 1", f"echo {machine}")


def run(script, tmp_path):
    """Runs a script of bash in namespaces of its own. Returns what it prints."""
    # In a file, since a page that looks for processes by their arguments would find the script among them.
    file = tmp_path / "script"
    file.write_text(PRELUDE + script)
    # `timeout` inside, so that what was printed until then is there to read.
    ran = subprocess.run(["unshare", "--mount", "--net", "--pid", "--mount-proc", "--fork", "--kill-child",
                          "timeout", "--kill-after", "5", "300", "bash", "-euo", "pipefail", str(file)],
                         env={**os.environ, "work": str(tmp_path), "binary": BINARY},
                         capture_output=True, text=True, timeout=330)
    assert ran.returncode == 0, f"status {ran.returncode}: {ran.stdout[-4000:]}{ran.stderr[-4000:]}"
    return ran.stdout
