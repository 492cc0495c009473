"""Whole servers on what older kernels have of io_uring. The machine's own kernel is made to look old: a library that is
preloaded refuses what the old one refuses (c/old_kernel.c)."""

import subprocess
import threading

import pytest
from kazoo.client import KazooClient

from server import HERE, SUBJECT, Server, free_port, running

pytestmark = pytest.mark.skipif(SUBJECT != "ringkeeper", reason="Apache ZooKeeper does not use io_uring")

VOTERS = (1, 2, 3)
LACKS = {
    "5.8": {"such a flag of rings", "rings of buffers"},
    "5.15": {"such a flag of rings", "rings of buffers"},
    "6.0": {"such a flag of rings"},
}


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    library = tmp_path_factory.mktemp("shim") / "old_kernel.so"
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o", library,
                    HERE / "c" / "old_kernel.c"], check=True)
    return library


def ensemble(shim, version):
    lines = {f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()}" for number in VOTERS}
    servers = [Server(initLimit="10", syncLimit="5", **lines) for _ in VOTERS]
    for number, server in zip(VOTERS, servers):
        (server.data_dir / "myid").write_text(f"{number}\n")
        server.launcher = ["env", f"LD_PRELOAD={shim}", f"OLD_KERNEL={version}"]
    return servers


@pytest.mark.parametrize("version", LACKS)
def test_clients_are_served_and_nothing_is_lost_on_an_old_kernel(shim, version):
    with running(ensemble(shim, version)) as servers:
        for server in servers:
            told = [line.partition(" has no ")[2] for line in server.log().splitlines() if line.startswith("old kernel: ")]
            assert set(told) == LACKS[version], "the server has not met what this kernel lacks, or not only that"
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
