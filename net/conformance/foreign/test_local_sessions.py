"""Local sessions as clients see them, on Apache ZooKeeper and on ringkeeper alike."""

import contextlib
import socket
import struct
import threading

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from server import SUBJECT, Server, four_letter_word, free_port, running

SESSION_EXPIRED, EPHEMERAL_ON_LOCAL_SESSION = -112, -120
CLOSE_SESSION, CREATE, MULTI = -11, 1, 14
PERSISTENT, EPHEMERAL = 0, 1
# Everybody may do everything.
OPEN = struct.pack(">ii", 1, 31) + b"".join(struct.pack(">i", len(text)) + text for text in (b"world", b"anyone"))


@contextlib.contextmanager
def ensemble(upgrading):
    """Three servers with local sessions, by their ids."""
    members = (1, 2, 3)
    ports = {number: (free_port(), free_port()) for number in members}
    lines = {f"server.{number}": f"127.0.0.1:{quorum}:{election}" for number, (quorum, election) in ports.items()}
    config = {"initLimit": "10", "syncLimit": "5", "localSessionsEnabled": "true",
              "localSessionsUpgradingEnabled": "true" if upgrading else "false", **lines}
    servers = {number: Server(**config) for number in members}
    for number, server in servers.items():
        (server.data_dir / "myid").write_text(f"{number}\n")
    with running(list(servers.values())):
        yield servers


def client(server, session=None):
    """A client of one server, whose session may be one that it has had."""
    kazoo = KazooClient(server.address, timeout=10, client_id=session)
    kazoo.start(30)
    return kazoo


def metric(server, name):
    lines = dict(line.split("\t")[:2] for line in four_letter_word(server.port, "mntr").splitlines() if "\t" in line)
    return int(float(lines[f"zk_{name}"]))


def leader_and_follower(servers):
    modes = {number: four_letter_word(server.port, "srvr") for number, server in servers.items()}
    leader = next(number for number, text in modes.items() if "Mode: leader" in text)
    return servers[leader], servers[next(number for number in servers if number != leader)]


def drop(kazoo):
    """Breaks the client's connection, which it notices."""
    kazoo._connection._socket.shutdown(socket.SHUT_RDWR)


class Raw:
    """A session whose replies need no name for their errors."""

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        self.send(struct.pack(">iqiqi16s?", 0, 0, 10_000, 0, 16, bytes(16), False))
        _, _, session, _, password = struct.unpack_from(">iiqi16s", self.receive())
        self.session = (session, password)
        self.xid = 0

    def send(self, frame):
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self):
        def exactly(length):
            data = b""
            while len(data) < length:
                part = self.socket.recv(length - len(data))
                assert part, "the server hangs up"
                data += part
            return data
        return exactly(struct.unpack(">i", exactly(4))[0])

    def call(self, op, body=b""):
        """The error of the reply's header, and its body."""
        self.xid += 1
        self.send(struct.pack(">ii", self.xid, op) + body)
        reply = self.receive()
        xid, _, error = struct.unpack_from(">iqi", reply)
        assert xid == self.xid
        return error, reply[16:]


def create(path, flags):
    return struct.pack(">i", len(path)) + path + struct.pack(">i", 1) + b"x" + OPEN + struct.pack(">i", flags)


def test_a_local_session_is_its_servers_alone():
    with ensemble(upgrading=True) as servers:
        leader, follower = leader_and_follower(servers)
        before = metric(leader, "global_sessions")
        kazoo = client(follower)
        assert metric(follower, "local_sessions") == 1
        assert metric(leader, "global_sessions") == before
        assert "Local Session" in four_letter_word(follower.port, "dump")
        kazoo.create("/a", b"1")
        changed = threading.Event()
        kazoo.get("/a", watch=lambda _: changed.set())
        other = client(leader)
        other.set("/a", b"2")
        kazoo.sync("/")
        assert kazoo.get("/a")[0] == b"2"
        assert changed.wait(30)
        session = kazoo.client_id
        drop(kazoo)
        assert kazoo.retry(kazoo.get, "/a")[0] == b"2"
        assert kazoo.client_id[0] == session[0], "the session is resumed where it was"
        # Another server does not know it.
        elsewhere = client(leader, session)
        assert elsewhere.client_id[0] != session[0]
        for each in (kazoo, other, elsewhere):
            each.stop()
            each.close()
        assert metric(follower, "local_sessions") == 0


@pytest.mark.parametrize("in_a_multi", [False, True], ids=["create", "multi"])
@pytest.mark.parametrize("at_the_leader", [False, True], ids=["follower", "leader"])
def test_the_first_ephemeral_upgrades_the_session(in_a_multi, at_the_leader):
    with ensemble(upgrading=True) as servers:
        leader, follower = leader_and_follower(servers)
        own, other = (leader, follower) if at_the_leader else (follower, leader)
        kazoo, watcher = client(own), client(other)
        session = kazoo.client_id
        if in_a_multi:
            transaction = kazoo.transaction()
            transaction.create("/a", b"")
            transaction.create("/mine", b"", ephemeral=True)
            assert transaction.commit() == ["/a", "/mine"]
        else:
            assert kazoo.create("/mine", b"", ephemeral=True) == "/mine"
        assert kazoo.client_id == session, "the client does not notice"
        watcher.sync("/")
        assert watcher.get("/mine")[1].ephemeralOwner == session[0]
        assert metric(other, "global_sessions") == 1
        kazoo.stop()
        kazoo.close()
        watcher.sync("/")
        with pytest.raises(NoNodeError):
            watcher.get("/mine")
        watcher.stop()
        watcher.close()


def test_an_upgraded_session_moves_to_another_server():
    with ensemble(upgrading=True) as servers:
        leader, follower = leader_and_follower(servers)
        raw = Raw(follower)
        assert raw.call(CREATE, create(b"/mine", EPHEMERAL))[0] == 0
        raw.socket.close()
        moved = client(leader, raw.session)
        assert moved.client_id == raw.session
        assert moved.get("/mine")[1].ephemeralOwner == raw.session[0]
        moved.stop()
        moved.close()


@pytest.mark.parametrize("at_the_leader", [False, True], ids=["follower", "leader"])
def test_without_upgrades_there_is_no_ephemeral(at_the_leader):
    with ensemble(upgrading=False) as servers:
        leader, follower = leader_and_follower(servers)
        raw = Raw(leader if at_the_leader else follower)
        assert raw.call(CREATE, create(b"/mine", EPHEMERAL))[0] == EPHEMERAL_ON_LOCAL_SESSION
        assert raw.call(CREATE, create(b"/a", PERSISTENT))[0] == 0
        operations = [create(b"/b", PERSISTENT), create(b"/mine", EPHEMERAL)]
        body = b"".join(struct.pack(">i?i", CREATE, False, -1) + one for one in operations)
        error, results = raw.call(MULTI, body + struct.pack(">i?i", -1, True, -1))
        assert error == 0
        codes = [struct.unpack_from(">i", results, at)[0] for at in (9, 22)]
        # Apache's leader does not know why a follower did not upgrade the session.
        unexplained = SUBJECT == "zookeeper" and not at_the_leader
        assert codes == [0, SESSION_EXPIRED if unexplained else EPHEMERAL_ON_LOCAL_SESSION]
        assert raw.call(CLOSE_SESSION)[0] == 0
