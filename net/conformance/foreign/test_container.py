"""The contents of the container: its entrypoint, without root, on a read-only system, under its seccomp profile. Nothing
builds the image here, which takes a container engine."""

import contextlib
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest
import yaml

from server import SUBJECT, four_letter_word, free_port
from test_kazoo import wait_until
from test_package import connected

CONTAINER = pathlib.Path(__file__).resolve().parents[2] / "package/container"
USER = 1000
PATIENCE_S = 30
REFUSED = 78

# Loads the profile, then becomes the command.
UNDER_SECCOMP = """
import json, os, sys
import pyseccomp
profile = json.load(open(sys.argv[1]))
assert profile["defaultAction"] == "SCMP_ACT_ALLOW"
kernel = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
for rule in profile["syscalls"]:
    for name in rule["names"]:
        if pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) >= 0:
            kernel.add_rule(pyseccomp.ERRNO(rule["errnoRet"]), name)
kernel.load()
os.execvp(sys.argv[2], sys.argv[2:])
"""

pytestmark = [
    pytest.mark.skipif(SUBJECT != "ringkeeper", reason="our container"),
    pytest.mark.skipif(os.getuid() != 0, reason="root makes a file system read-only"),
]


@pytest.fixture
def folder():
    """What the image has, and the volumes."""
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        folder.chmod(0o755)
        (folder / "bin").mkdir()
        shutil.copy(os.environ["RINGKEEPER_BINARY"], folder / "bin/ringkeeper")
        shutil.copy(CONTAINER / "entrypoint", folder / "bin/entrypoint")
        yield folder


def volumes(folder, name):
    """The variables of a container whose volumes nobody but its user may enter."""
    own = folder / name
    if not own.exists():
        for volume in ["", "conf", "data", "datalog"]:
            (own / volume).mkdir()
            shutil.chown(own / volume, USER, USER)
    return {"ZOO_CONF_DIR": str(own / "conf"), "ZOO_DATA_DIR": str(own / "data"),
            "ZOO_DATA_LOG_DIR": str(own / "datalog")}


def command(folder, *arguments, hostname="container"):
    """The entrypoint as a container runs it. All but `folder` is read-only."""
    script = (f'mount --bind "{folder}" "{folder}" && mount -o remount,ro,bind / && hostname {hostname} && '
              f'cd / && exec "$@"')
    return [
        *["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c", script, "sh"],
        *[sys.executable, "-c", UNDER_SECCOMP, CONTAINER / "seccomp.json"],
        *["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", "--no-new-privs"],
        *["--bounding-set=-all", "--inh-caps=-all", folder / "bin/entrypoint", *arguments],
    ]


def environment(folder, **variables):
    return {"PATH": f"{folder}/bin:/usr/bin:/bin", **variables}


@contextlib.contextmanager
def running(folder, port, *arguments, hostname="container", **variables):
    """A container that runs until the end of the block."""
    log = (folder / f"log-{port}").open("ab")
    process = subprocess.Popen(command(folder, *arguments, hostname=hostname), env=environment(folder, **variables),
                               stderr=log, stdout=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        ended = process.wait(PATIENCE_S)
    assert ended == 0, pathlib.Path(log.name).read_text()


def refused(folder, *arguments, **variables):
    """What a container says that refuses to start."""
    done = subprocess.run(command(folder, *arguments), env=environment(folder, **variables), check=False,
                          capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == REFUSED, done.stderr
    return done.stderr


def test_a_container_serves_without_root_on_a_read_only_system_and_comes_back_with_its_data(folder):
    port, admin = free_port(), free_port()
    variables = {**volumes(folder, "alone"), "ZOO_PORT_NUMBER": str(port), "ZOO_4LW_COMMANDS_WHITELIST": "*",
                 "JVMFLAGS": f"-Xmx1g -Dzookeeper.admin.serverPort={admin}"}
    with running(folder, port, "server", **variables) as process, connected(port) as client:
        client.create("/kept", b"in a volume")
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        assert f"Uid:\t{USER}\t{USER}\t{USER}\t{USER}" in status
        assert "CapBnd:\t0000000000000000" in status and "Seccomp:\t2" in status
        assert "standalone" in four_letter_word(port, "srvr")
    assert pathlib.Path(folder / "alone/conf/zoo.cfg").read_text().count("clientPort") == 1
    # As compose files for ZooKeeper's image have it.
    with running(folder, port, "zkServer.sh", "start-foreground", **variables), connected(port) as client:
        assert client.get("/kept")[0] == b"in a volume"


def test_three_containers_are_an_ensemble_by_their_variables(folder):
    ports = [free_port() for _ in range(9)]
    clients, quorum, admins = ports[:3], ports[3:6], ports[6:]
    servers = [f"server.{id}=127.0.0.1:{quorum[id - 1]}:1;127.0.0.1:{clients[id - 1]}" for id in (1, 2, 3)]
    secret = folder / "secret"
    secret.write_text("only these servers know this")
    secret.chmod(0o644)
    with contextlib.ExitStack() as stack:
        for index, port in enumerate(clients):
            stack.enter_context(running(folder, port, hostname=f"zk-{index}", **volumes(folder, f"zk-{index}"),
                                        ZOO_MY_ID="ordinal", ZOO_SERVERS=" ".join(servers),
                                        ZOO_CFG_EXTRA=f"admin.serverPort={admins[index]}",
                                        RINGKEEPER_PEER_SECRET_FILE=str(secret)))
        client = stack.enter_context(connected(*clients))
        client.create("/agreed")
        parts = lambda: sorted(four_letter_word(port, "srvr").split("Mode: ")[-1].split()[0] for port in clients)
        wait_until(lambda: parts() == ["follower", "follower", "leader"], "a leader and two followers")
    assert [(folder / f"zk-{index}/data/myid").read_text() for index in range(3)] == ["1\n", "2\n", "3\n"]


def test_what_is_wrong_with_a_container_is_said_before_it_starts(folder):
    own = volumes(folder, "own")
    servers = "zk1:2888:3888::1,zk2"
    assert "ZOO_SERVERS has zk2, which is not like server.1=" in refused(folder, **own, ZOO_MY_ID="1", ZOO_SERVERS=servers)
    assert "ZOO_MY_ID=ordinal needs a host name that ends with a number" in refused(folder, **own, ZOO_MY_ID="ordinal")
    assert "belongs to server 1 (its myid), and ZOO_MY_ID says 2" in refused(folder, **own, ZOO_MY_ID="2")
    assert "may not write to /data/server: mount a volume" in refused(folder, **{**own, "ZOO_DATA_DIR": "/data/server"})
    assert "tickTime" in refused(folder, **own, ZOO_TICK_TIME="never")


def test_the_kubernetes_manifest_is_that_of_the_chart():
    chart = CONTAINER.parent / "helm"
    files = sorted((path for path in chart.rglob("*") if path.is_file()), key=str)
    contents = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    assert contents in (CONTAINER / "kubernetes.yaml").read_text(), "just chart"


def test_the_kubernetes_manifest_and_the_entrypoint_agree(folder):
    objects = list(yaml.safe_load_all((CONTAINER / "kubernetes.yaml").read_text()))
    services = {item["metadata"]["name"]: item["spec"] for item in objects if item["kind"] == "Service"}
    stateful = next(item["spec"] for item in objects if item["kind"] == "StatefulSet")
    container = stateful["template"]["spec"]["containers"][0]
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    own = volumes(folder, "pod")
    # The folders are others here, and names of pods have no address.
    (folder / "peer").write_text("secret")
    variables |= {**own, "RINGKEEPER_PEER_SECRET_FILE": str(folder / "peer"), "ZOO_TICK_TIME": "never"}
    assert "tickTime" in subprocess.run(command(folder, hostname="ringkeeper-2"), env=environment(folder, **variables),
                                        check=False, capture_output=True, text=True, timeout=PATIENCE_S).stderr
    assert (folder / "pod/data/myid").read_text() == "3\n"
    config = dict(line.split("=", 1) for line in (folder / "pod/conf/zoo.cfg").read_text().splitlines())
    assert services[stateful["serviceName"]]["publishNotReadyAddresses"]
    names = {f"server.{index + 1}": f"ringkeeper-{index}.{stateful['serviceName']}:2888:3888;2181"
             for index in range(stateful["replicas"])}
    assert names.items() <= config.items()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"client": 2181, "quorum": 2888, "admin": 8080} and config["admin.serverAddress"] == "0.0.0.0"
    assert (folder / "pod/conf/peer-secret").stat().st_mode & 0o777 == 0o600
