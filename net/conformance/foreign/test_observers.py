"""Observers that learn from followers (observerMasterPort) as clients see them, on Apache ZooKeeper and on ringkeeper
alike."""

import contextlib
import threading
import time

from kazoo.client import KazooClient

from server import Server, four_letter_word, free_port, running

VOTERS, OBSERVERS = (1, 2, 3), (4, 5)


@contextlib.contextmanager
def ensemble():
    """Three voters and two observers, by their ids."""
    roles = {**dict.fromkeys(VOTERS, "participant"), **dict.fromkeys(OBSERVERS, "observer")}
    # An address each, since the port for observers is the same on all.
    lines = {f"server.{number}": f"127.0.0.{number}:{free_port()}:{free_port()}:{role}" for number, role in roles.items()}
    config = {"initLimit": "10", "syncLimit": "5", "observerMasterPort": free_port(), **lines}
    servers = {number: Server(**config) for number in roles}
    for number, server in servers.items():
        (server.data_dir / "myid").write_text(f"{number}\n")
    with running(list(servers.values())):
        yield servers


def shown(server):
    return dict(line.split("\t")[:2] for line in four_letter_word(server.port, "mntr").splitlines() if "\t" in line)


def leader_and_fed(servers, numbers):
    """Waits until followers feed all observers: the leader's id, and how many each follower feeds."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        voters = {number: shown(servers[number]) for number in numbers}
        states = {number: lines.get("zk_server_state") for number, lines in voters.items()}
        leaders = [number for number, state in states.items() if state == "leader"]
        fed = {number: float(lines.get("zk_synced_observers", 0)) for number, lines in voters.items()}
        if len(leaders) == 1 and fed.pop(leaders[0]) == 0 and sum(fed.values()) == len(OBSERVERS):
            return leaders[0], fed
        time.sleep(0.1)
    raise AssertionError(f"no followers feed the observers: {voters}")


def client(server):
    kazoo = KazooClient(server.address, timeout=20)
    kazoo.start(30)
    return kazoo


def test_clients_of_observers_behind_followers_do_everything_and_outlive_the_follower():
    with ensemble() as servers:
        leader, fed = leader_and_fed(servers, VOTERS)
        one, other = (client(servers[number]) for number in OBSERVERS)
        sessions = [one.client_id[0], other.client_id[0]]
        one.create("/one", b"1", ephemeral=True)
        other.sync("/")
        heard = threading.Event()
        assert other.get("/one", watch=lambda event: heard.set())[0] == b"1"
        direct = client(servers[leader])
        direct.set("/one", b"2")
        assert heard.wait(10)
        one.sync("/")
        assert one.get("/one")[0] == b"2"
        follower = max(fed, key=fed.get)
        servers[follower].kill()
        left = [number for number in VOTERS if number != follower]
        leader_and_fed(servers, left)
        for number, kazoo in enumerate((one, other)):
            kazoo.retry(kazoo.create, f"/after-{number}", b"")
        assert [one.client_id[0], other.client_id[0]] == sessions
        assert direct.exists("/one").ephemeralOwner == sessions[0]
        servers[follower].start()
        for kazoo in (one, other):
            kazoo.sync("/")
            assert {"after-0", "after-1", "one"} <= set(kazoo.get_children("/"))
        one.stop()
        other.stop()
        direct.sync("/")
        assert direct.exists("/one") is None, "the session ended with its client"
        direct.stop()
