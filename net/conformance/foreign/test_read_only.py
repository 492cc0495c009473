"""Read-only mode with Java's own client, on Apache ZooKeeper and on ringkeeper alike, and with kazoo."""

import subprocess
import time

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import NotReadOnlyCallError
from kazoo.protocol.states import KeeperState

from server import HERE, SUBJECT, Server, classpath, four_letter_word, free_port, running, start_together


def ensemble(**config):
    servers = [Server(initLimit="10", syncLimit="5", **{"readonlymode.enabled": "true"}, **config) for _ in range(3)]
    lines = "".join(f"server.{number}=127.0.0.1:{free_port()}:{free_port()}\n" for number in (1, 2, 3))
    for number, server in enumerate(servers, start=1):
        (server.data_dir / "myid").write_text(f"{number}\n")
        with server.config_path.open("a") as file:
            file.write(lines)
    return servers


def test_javas_client_reads_without_a_quorum_and_finds_the_way_back(tmp_path):
    # ZooKeeper has this mode for local sessions only.
    servers = ensemble(localSessionsEnabled="true", localSessionsUpgradingEnabled="true")
    with running(servers):
        writer = KazooClient(",".join(server.address for server in servers))
        writer.start(30)
        writer.create("/kept", b"kept")
        writer.stop()
        writer.close()
        for server in servers[1:]:
            server.kill()
        output = tmp_path / "client.log"
        with output.open("wb") as log:
            client = subprocess.Popen(
                ["java", "-cp", classpath("lib"), HERE / "java" / "ReadOnly.java",
                 ",".join(server.address for server in servers)], stdout=log, stderr=log)
        try:
            while client.poll() is None and "writes are refused" not in output.read_text():
                try:
                    client.wait(0.1)
                except subprocess.TimeoutExpired:
                    pass
            start_together(servers[1:])
            assert client.wait(90) == 0, output.read_text() + servers[0].log_tail()
        finally:
            client.kill()
            client.wait()


def wait_until(happened):
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def only_reads(server):
    try:
        return four_letter_word(server.port, "isro") == "ro"
    except OSError:
        return False


@pytest.mark.skipif(SUBJECT == "zookeeper", reason="Apache ZooKeeper forgets local sessions when it loses the leader")
def test_a_local_session_goes_on_in_read_only_mode_and_after_it():
    servers = ensemble(localSessionsEnabled="true")
    with running(servers):
        own, *others = servers
        states = []
        retry = {"max_tries": -1, "backoff": 1}
        client = KazooClient(own.address, timeout=20, read_only=True, connection_retry=retry)
        client.add_listener(states.append)
        client.start(30)
        client.create("/kept", b"kept")
        session = client.client_id
        for server in others:
            server.kill()
        wait_until(lambda: client.client_state == KeeperState.CONNECTED_RO)
        assert client.get("/kept")[0] == b"kept" and client.client_id == session
        with pytest.raises(NotReadOnlyCallError):
            client.set("/kept", b"lost")
        start_together(others)
        wait_until(lambda: client.client_state == KeeperState.CONNECTED)
        client.set("/kept", b"new")
        assert client.client_id == session and KazooState.LOST not in states
        client.stop()
        client.close()


@pytest.mark.skipif(SUBJECT == "zookeeper", reason="without local sessions Apache ZooKeeper does not have this mode")
def test_a_server_without_a_leader_calls_no_session_expired_that_it_has_never_heard_of():
    servers = ensemble()
    with running(servers):
        absent, *others = servers
        absent.kill()
        states = []
        # By itself kazoo would pause for longer and longer, in the end for longer than its session lasts.
        retry = {"max_tries": -1, "backoff": 1}
        hosts = ",".join(server.address for server in servers)
        client = KazooClient(hosts, timeout=20, read_only=True, connection_retry=retry)
        client.add_listener(states.append)
        client.start(30)
        client.create("/mine", ephemeral=True)
        session = client.client_id
        for server in others:
            server.kill()
        absent.launch()
        wait_until(lambda: only_reads(absent))
        before = absent.log().count("closing a connection")
        # The client is sent on, again and again.
        wait_until(lambda: absent.log().count("closing a connection") > before + 2)
        start_together(others)
        wait_until(lambda: client.connected)
        assert client.exists("/mine") and client.client_id == session
        assert KazooState.LOST not in states
        client.stop()
        client.close()
