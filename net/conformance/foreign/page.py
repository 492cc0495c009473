"""Pages of the manual: their commands and settings, run as they stand.

They name ports, folders below `/etc` and hosts, so they run in namespaces of their own: nothing of this is seen
outside, and all of it ends with the test. That takes root.
"""

import os
import pathlib
import re
import subprocess

import pytest

from server import BINARY, SUBJECT

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"

NEEDS = [
    pytest.mark.skipif(SUBJECT != "ringkeeper", reason="the manual is about ringkeeper"),
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces take root"),
]

# `$work` is a folder for data and logs.
PRELUDE = r"""
ip link set lo up
mount -t tmpfs none "$work"
mkdir "$work/upper" "$work/lower"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$work/upper,workdir=$work/lower" /etc
printf '127.0.0.%s zoo%s\n' 1 1 2 2 3 3 >> /etc/hosts
mkdir /etc/ringkeeper
cd /etc/ringkeeper

# Starts a server with the file NAME.cfg, whose data are in a folder of that name.
start() {
    mkdir -p "$work/$1"
    echo "dataDir=$work/$1" >> "$1.cfg"
    ringkeeper server --config "$1.cfg" > "$work/$1.log" 2>&1 &
    server=$!
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


class Page:
    """The code blocks of a page."""

    def __init__(self, name):
        self.text = (DOCS / name).read_text()

    def blocks(self, language):
        """All of a language, in their order."""
        return code(self.text, language)

    def block(self, heading, language, number=0):
        """One of those below a heading."""
        sections = re.split(r"^#+ ", self.text, flags=re.MULTILINE)
        body = next(text for text in sections if text.startswith(heading + "\n"))
        return code(body, language)[number]


def code(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def run(script, tmp_path):
    """Runs a script of bash in namespaces of its own."""
    environment = {**os.environ, "work": str(tmp_path), "PATH": f"{pathlib.Path(BINARY).parent}:{os.environ['PATH']}"}
    ran = subprocess.run(["unshare", "--mount", "--net", "--pid", "--mount-proc", "--fork", "--kill-child",
                          "bash", "-euo", "pipefail", "-c", PRELUDE + script],
                         env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    return ran.stdout
