"""ZooKeeper's own shell, releases 3.9 and 3.8: the same commands print what they print on Apache ZooKeeper.

The expected output lies beside the commands, one file for each release of the shell. To record it anew, run
against Apache ZooKeeper with RECORD=1.
"""

import os
import pathlib
import re
import subprocess

import pytest

from server import FOREIGN_DIR, HERE, SUBJECT, four_letter_word

COMMANDS = HERE / "zkcli" / "commands.txt"
EVENT = re.compile(r"^WatchedEvent state:SyncConnected type:(\w+) path:(\S+)")
IDENTITY = re.compile(r"^(digest|ip): ")
# What two servers choose each in their own way.
UNSTABLE = [
    (re.compile(r"(Zxid|ephemeralOwner) = 0x[0-9a-f]{2,}"), r"\1 = NUMBER"),
    (re.compile(r"Zxid = 0x[1-9a-f]\b"), "Zxid = NUMBER"),
    (re.compile(r"time = (?!Thu Jan 01 00:00:00 UTC 1970).*"), "time = TIME"),
    (re.compile(r"(standalone|server\.\d+=).*"), r"\1"),
]
# The shell's own chatter.
NOISE = re.compile(r"^(WATCHER::|WatchedEvent|Connecting to|Welcome to|JLine|ZooKeeper CLI|.* \[main|.*(WARN|INFO) )")


def shell(address, commands, jars, properties=()):
    """What the shell prints for `commands`."""
    class_path = [HERE / "java", *(jar for jar in (FOREIGN_DIR / jars).glob("*.jar") if "jline" not in jar.name)]
    arguments = ["java", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC", *properties, "-cp",
                 os.pathsep.join(map(str, class_path)),
                 "org.apache.zookeeper.ZooKeeperMain", "-server", address, "-timeout", "30000"]
    result = subprocess.run(arguments, input=commands + "quit\n", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, timeout=120, check=False)
    return result.stdout


def stable(output):
    """The lines that must be the same on every server, then the events in the order of their paths."""
    lines = [line.rstrip() for line in output.splitlines()]
    events = sorted("event {} {}".format(*match.groups()) for match in map(EVENT.match, lines) if match)
    kept = []
    for line in lines:
        if line and not NOISE.match(line):
            for pattern, replacement in UNSTABLE:
                line = pattern.sub(replacement, line)
            kept.append(line)
    # Identities are a set.
    identities = sorted(line for line in kept if IDENTITY.match(line))
    kept = [identities.pop(0) if IDENTITY.match(line) else line for line in kept]
    # So are lists of paths, such as a session's ephemerals.
    kept = [sorted_paths(line) for line in kept]
    return kept + [event for event in events if "None" not in event]


def sorted_paths(line):
    if not (line.startswith("[/") and line.endswith("]")):
        return line
    return "[{}]".format(", ".join(sorted(line[1:-1].split(", "))))


@pytest.mark.parametrize("release, jars", [("3.9", "lib"), ("3.8", "lib38")])
def test_the_shell_prints_what_it_prints_on_zookeeper(server, release, jars):
    printed = stable(shell(server.address, COMMANDS.read_text(), jars))
    expected = pathlib.Path(HERE / "zkcli" / f"expected-{release}.txt")
    if os.environ.get("RECORD"):
        assert SUBJECT == "zookeeper", "only the reference is recorded"
        expected.write_text("\n".join(printed) + "\n")
    assert printed == expected.read_text().splitlines()


def test_containers_and_expired_nodes_go_by_themselves(start):
    server = start(**{"znode.container.checkIntervalMs": "200"})
    shell(server.address, "create -c /c\ncreate /c/x\ndelete /c/x\ncreate -t 100 /t ttl\ncreate -t 600000 /stays\n", "lib")
    for _ in range(30):
        printed = shell(server.address, "ls /\n", "lib").splitlines()
        if "[stays, zookeeper]" in printed:
            return
    raise AssertionError(f"they stay: {printed}")


def test_administrative_words_are_answered(server):
    assert four_letter_word(server.port, "ruok") == "imok"
    assert four_letter_word(server.port, "isro") == "rw"
    server_info = four_letter_word(server.port, "srvr")
    for line in ("Zookeeper version:", "Latency min/avg/max:", "Zxid: 0x", "Mode: standalone", "Node count: 5"):
        assert line in server_info
    monitored = dict(line.split("\t", 1) for line in four_letter_word(server.port, "mntr").splitlines() if "\t" in line)
    assert monitored["zk_server_state"] == "standalone"
    assert monitored["zk_znode_count"] == "5"
