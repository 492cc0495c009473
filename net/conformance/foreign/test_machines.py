"""Whole servers on machines that are not at hand: what older kernels have of io_uring, and more cores. A library that is
preloaded refuses what the old kernel refuses (c/old_kernel.c), or tells of more cores (c/more_cores.c)."""

import os
import pathlib
import subprocess
import threading

import pytest
from kazoo.client import KazooClient

from server import BINARY, HERE, SUBJECT, Server, free_port, running

pytestmark = pytest.mark.skipif(SUBJECT != "ringkeeper", reason="what a server makes of io_uring and of cores is ringkeeper's")

VOTERS = (1, 2, 3)
LACKS = {
    "5.8": {"such a flag of rings", "rings of buffers"},
    "5.15": {"such a flag of rings", "rings of buffers"},
    "6.0": {"such a flag of rings"},
}
CORES = 4

# Beside the program of the tests' build.
CONFORMANCE = pathlib.Path(BINARY).with_name("conformance")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libraries")
    for name in ("old_kernel", "more_cores"):
        subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o", folder / f"{name}.so",
                        HERE / "c" / f"{name}.c"], check=True)
    return folder


def old_kernel(libraries, version):
    return {"LD_PRELOAD": str(libraries / "old_kernel.so"), "OLD_KERNEL": version}


def more_cores(libraries):
    return {"LD_PRELOAD": str(libraries / "more_cores.so"), "CORES": str(CORES)}


def ensemble(machine):
    lines = {f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()}" for number in VOTERS}
    servers = [Server(initLimit="10", syncLimit="5", **lines) for _ in VOTERS]
    for number, server in zip(VOTERS, servers):
        (server.data_dir / "myid").write_text(f"{number}\n")
        server.launcher = ["env", *(f"{name}={value}" for name, value in machine.items())]
    return servers


def serve_and_lose_nothing(servers):
    hosts = ",".join(server.address for server in servers)
    one, other = KazooClient(hosts, timeout=20), KazooClient(hosts, timeout=20)
    one.start(30)
    other.start(30)
    one.create("/small", b"1", ephemeral=True)
    # Larger than any buffer of a socket, many at once, and more of them than a ring has entries.
    large = bytes(range(256)) * 3600
    one.create("/large", large)
    pending = [one.create_async(f"/large/{number:04}", b"x" * number) for number in range(1500)]
    for create in pending:
        create.get(60)
    for server in servers:
        server.kill()
        server.start()
        other.retry(other.sync, "/large")
        assert other.retry(other.get, "/large")[0] == large
        assert len(other.retry(other.get_children, "/large")) == 1500
    heard = threading.Event()
    assert other.retry(other.get, "/small", watch=lambda event: heard.set())[0] == b"1"
    one.retry(one.set, "/small", b"2")
    assert heard.wait(20)
    one.stop()
    other.sync("/")
    assert other.exists("/small") is None
    other.stop()


def crash_and_lose_nothing(machine):
    if not CONFORMANCE.exists():
        pytest.skip("the program of the crash tests is not built")
    crashes = subprocess.run([CONFORMANCE, "crash", "--binary", BINARY, "--rounds", "5"], env={**os.environ, **machine},
                             text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    assert crashes.returncode == 0, crashes.stdout[-5000:]


@pytest.mark.parametrize("version", LACKS)
def test_clients_are_served_and_nothing_is_lost_on_an_old_kernel(libraries, version):
    with running(ensemble(old_kernel(libraries, version))) as servers:
        for server in servers:
            told = [line.partition(" has no ")[2] for line in server.log().splitlines() if line.startswith("old kernel: ")]
            assert set(told) == LACKS[version], "the server has not met what this kernel lacks, or not only that"
        serve_and_lose_nothing(servers)


@pytest.mark.parametrize("version", LACKS)
def test_crashes_under_load_lose_nothing_on_an_old_kernel(libraries, version):
    crash_and_lose_nothing(old_kernel(libraries, version))


def test_clients_are_served_and_nothing_is_lost_where_each_executor_has_a_core(libraries):
    with running(ensemble(more_cores(libraries))) as servers:
        for server in servers:
            tasks = pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/comm")
            names = {task.read_text().strip() for task in tasks}
            assert {f"shard-{number}" for number in range(CORES - 1)} <= names
        serve_and_lose_nothing(servers)


def test_crashes_under_load_lose_nothing_where_each_executor_has_a_core(libraries):
    crash_and_lose_nothing(more_cores(libraries))
