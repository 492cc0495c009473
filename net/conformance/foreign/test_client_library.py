"""The client library of this workspace on servers that are not ours: Apache ZooKeeper, one and three of them.

Beside ringkeeper it is tested by `cargo test`. What it promises must not rest on what only our server does.
"""

import os
import pathlib
import subprocess
import sys

import pytest

from server import BINARY, FOREIGN_DIR, HERE

ROOT = HERE.parents[2]
JARS = FOREIGN_DIR / "lib"

# Beside a server's program of the tests' build are the soak's and the client's tests: to build them by themselves, with
# other features, would take minutes.
SOAK = pathlib.Path(BINARY).with_name("soak")
RUN_SOAK = [SOAK] if SOAK.exists() else ["cargo", "run", "--quiet", "--locked", "-p", "ringkeeper-soak", "--"]
NAMES = ["calls", "connection", "examples", "herd", "interoperation", "no_server", "recipes", "runtimes"]
OF_CLIENT = ["--workspace", *(f"--test={name}" for name in NAMES)] if SOAK.exists() else ["-p", "ringkeeper-client"]

# `cargo run` sets these for the soak. Build scripts that look at them would run anew, here and afterwards.
VERSION = [f"PKG_VERSION_{part}" for part in ("MAJOR", "MINOR", "PATCH", "PRE")]
PACKAGE = ["MANIFEST_DIR", "MANIFEST_LINKS", "PKG_NAME", *VERSION]
UNSET = ["env", *(f"--unset=CARGO_{name}" for name in PACKAGE)]

# What a server of Apache ZooKeeper says that was killed while it went over to a new epoch, and refuses its folder ever
# after. The client has no part in that.
REFUSES_ITS_FOLDER = "is older than the last zxid"

# The soak's networks come and go. On the machine itself, each of them would have the browser of the tests beside this
# one break off what it loads (net::ERR_NETWORK_CHANGED). Without root there are none.
OWN_NETWORK = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"] if os.geteuid() == 0 else []

# Seconds for a build that begins with nothing, and the tests after it.
PATIENCE_S = 800


def run(*arguments, within=()):
    """Runs the soak's program, which starts and ends the servers, and shows what it says if it fails."""
    program = [*within, *RUN_SOAK, "--zookeeper", JARS, *arguments]
    environment = {**os.environ, "RINGKEEPER_TEST_PYTHON": sys.executable}
    done = subprocess.run(program, cwd=ROOT, env=environment, timeout=PATIENCE_S, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout[-20000:]
    return done.stdout


@pytest.mark.parametrize("servers", ["1", "3"])
def test_every_call_and_recipe_works_on_zookeeper(servers):
    said = run("--servers", servers, "--", *UNSET, "cargo", "test", "--locked", *OF_CLIENT)
    assert "test result: ok" in said


def test_every_promise_holds_while_zookeeper_servers_are_killed_and_partitioned():
    try:
        said = run("--seconds", "45", within=OWN_NETWORK)
    except AssertionError as failed:
        if REFUSES_ITS_FOLDER not in str(failed):
            raise
        said = run("--seconds", "45", within=OWN_NETWORK)
    assert "0  VIOLATIONS" in said
