"""The throttles: clients are refused as by Apache ZooKeeper, and the same counters say so."""

import contextlib
import socket
import struct

from server import four_letter_word

PING, CREATE, SET_DATA, THROTTLED_OP = 11, 1, 5, -127
OPEN_ACL = struct.pack(">ii", 1, 31) + b"\0\0\0\5world\0\0\0\6anyone"


def frame(payload):
    return struct.pack(">i", len(payload)) + payload


def buffer(data):
    return struct.pack(">i", len(data)) + data


class Client:
    """A connection that has asked for a session."""

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        self.socket.sendall(frame(struct.pack(">iqiqi16s?", 0, 0, 30_000, 0, 16, bytes(16), False)))
        self.is_served = self.receive() is not None

    def receive(self):
        """The next frame; nothing if the server closes the connection."""
        with contextlib.suppress(ConnectionError):
            header = self.exactly(4)
            return header and self.exactly(struct.unpack(">i", header)[0])

    def exactly(self, length):
        received = b""
        while len(received) < length:
            chunk = self.socket.recv(length - len(received))
            if not chunk:
                return None
            received += chunk
        return received

    def send(self, xid, op, body=b""):
        self.socket.sendall(frame(struct.pack(">ii", xid, op) + body))

    def reply(self):
        """Xid and error; nothing if the server closes the connection."""
        received = self.receive()
        return received and struct.unpack(">iqi", received[:16])[::2]

    def create(self, path):
        """Whether it is not throttled."""
        self.send(1, CREATE, buffer(path) + buffer(b"") + OPEN_ACL + struct.pack(">i", 0))
        reply = self.reply()
        assert reply in ((1, 0), (1, THROTTLED_OP))
        return reply == (1, 0)

    def set(self, xid, path, data):
        self.send(xid, SET_DATA, buffer(path) + buffer(data) + struct.pack(">i", -1))


def metric(server, name):
    lines = dict(line.split("\t") for line in four_letter_word(server.port, "mntr").splitlines())
    return float(lines[f"zk_{name}"])


def test_sessions_beyond_the_tokens_are_refused(start):
    server = start(connection_throttle_tokens=6, connection_throttle_fill_count=0)
    # Whoever waited for the start has taken some.
    taken = metric(server, "cnt_connection_token_deficit")
    before = metric(server, "connection_rejected")
    clients = [Client(server) for _ in range(8)]
    served = [client.is_served for client in clients]
    assert served == [number < 6 - taken for number in range(8)]
    assert metric(server, "connection_rejected") - before == served.count(False)
    assert metric(server, "max_connection_token_deficit") == 6
    assert metric(server, "sum_connection_token_deficit") == 1 + 2 + 3 + 4 + 5 + 6
    assert metric(server, "connection_drop_probability") == 0
    clients[0].send(2, PING)
    assert clients[0].reply() == (-2, 0)


def test_a_session_costs_its_weight(start):
    server = start(connection_throttle_tokens=4, connection_throttle_fill_count=0,
                   connection_throttle_weight_enabled="true")
    taken = metric(server, "cnt_connection_token_deficit")
    served = [Client(server).is_served for _ in range(5)]
    assert served == [number < 4 - taken for number in range(5)]
    assert metric(server, "max_connection_token_deficit") == 12


def test_who_finds_the_bucket_empty_makes_a_share_of_all_be_refused(start):
    server = start(connection_throttle_tokens=3, connection_throttle_fill_count=0,
                   connection_throttle_freeze_time=0, connection_throttle_drop_increase=1)
    while metric(server, "connection_drop_probability") < 1:
        Client(server)
    assert not Client(server).is_served


def test_a_large_request_without_room_closes_its_connection(start):
    server = start(largeRequestThreshold=1000, largeRequestMaxBytes=1500)
    client, greedy, late = Client(server), Client(server), Client(server)
    assert client.create(b"/a")
    for xid in (2, 3, 4):
        client.set(xid, b"/a", bytes(1400))
        assert client.reply() == (xid, 0)
    greedy.set(1, b"/a", bytes(1500))
    assert greedy.reply() is None
    late.socket.sendall(struct.pack(">i", 1501))
    assert late.reply() is None
    client.set(5, b"/a", b"")
    assert client.reply() == (5, 0)
    assert metric(server, "large_requests_rejected") == 2


def test_requests_that_waited_too_long_are_refused_and_pings_are_not(start):
    server = start(request_throttle_max_requests=1, throttled_op_wait_time=1)
    clients = [Client(server) for _ in range(20)]
    # On a busy machine, Apache ZooKeeper takes more than a millisecond to begin with a request.
    while not clients[0].create(b"/a"):
        pass
    before = metric(server, "throttled_ops")
    for client in clients:
        for xid in range(2, 32):
            client.set(xid, b"/a", bytes(100))
            client.send(-2, PING)
    replies = [[client.reply() for _ in range(60)] for client in clients]
    assert all([xid for xid, _ in got] == [n for xid in range(2, 32) for n in (xid, -2)] for got in replies)
    errors = [reply for got in replies for reply in got if reply[1] != 0]
    assert errors and {error for _, error in errors} == {THROTTLED_OP}
    assert -2 not in {xid for xid, _ in errors}
    assert metric(server, "throttled_ops") - before == len(errors)
    assert metric(server, "request_throttle_wait_count") > 0
