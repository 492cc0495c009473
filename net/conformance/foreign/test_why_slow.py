"""What makes a server slow is named: each cause is planted on real servers, then `ringkeeper admin why-slow` and the
dashboard are asked, as an operator would."""

import asyncio
import contextlib
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest
from kazoo.client import KazooClient
from playwright.sync_api import expect, sync_playwright

from server import BINARY, SUBJECT, Server, free_port, running

pytestmark = pytest.mark.skipif(SUBJECT != "ringkeeper", reason="Apache ZooKeeper does not explain slow requests")

ADMIN = {"admin.enableServer": "true", "admin.serverAddress": "127.0.0.1"}

NAMED_WITHIN_S = 30


class Links:
    """The network between servers: everything passes through ports of this process, which delay what they are told."""

    def __init__(self, ids):
        self.ports = {n: (free_port(), free_port()) for n in ids}
        self.delays_s = {}
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.ways = {(a, b): tuple(self._listen(a, b, port) for port in self.ports[b])
                     for a in ids for b in ids if a != b}

    def lines(self, own):
        """How the server `own` reaches the others: each with its quorum port and its election port."""
        ports = {n: self.ports[n] if n == own else self.ways[own, n] for n in self.ports}
        return {f"server.{n}": f"127.0.0.1:{quorum}:{election}" for n, (quorum, election) in ports.items()}

    @contextlib.contextmanager
    def slow(self, server, delay_s):
        """All that goes to and from a server takes so much longer."""
        ways = [way for way in self.ways if server in way]
        self.delays_s.update(dict.fromkeys(ways, delay_s))
        try:
            yield
        finally:
            for way in ways:
                self.delays_s.pop(way)

    def _listen(self, a, b, port):
        listening = free_port()
        accept = asyncio.start_server(lambda r, w: self._pass(a, b, port, r, w), "127.0.0.1", listening)
        asyncio.run_coroutine_threadsafe(accept, self.loop).result(10)
        return listening

    async def _pass(self, a, b, port, reader, writer):
        try:
            there = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return writer.close()
        await asyncio.gather(self._pump(a, b, reader, there[1]), self._pump(a, b, there[0], writer))

    async def _pump(self, a, b, reader, writer):
        waiting = asyncio.Queue()

        async def deliver():
            while chunk := await waiting.get():
                at, data = chunk
                await asyncio.sleep(max(0, at - time.monotonic()))
                writer.write(data)
                await writer.drain()

        delivers = asyncio.ensure_future(deliver())
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                waiting.put_nowait((time.monotonic() + self.delays_s.get((a, b), 0), data))
        waiting.put_nowait(None)
        with contextlib.suppress(OSError):
            await delivers
        writer.close()


@contextlib.contextmanager
def slow_disk(server, writes_per_second):
    """The disk takes no more writes of this server."""
    device = os.stat(server.data_dir).st_dev
    disk = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if (disk / "partition").exists():
        disk = disk.resolve().parent
    old, new = pathlib.Path("/sys/fs/cgroup/blkio"), pathlib.Path("/sys/fs/cgroup")
    root, file, limit, none = (old, "blkio.throttle.write_iops_device", "{} {}", "{} 0") if old.exists() \
        else (new, "io.max", "{} wiops={}", "{} wiops=max")
    group = root / f"ringkeeper-{server.process.pid}"
    try:
        number = (disk / "dev").read_text().strip()
        if root is new:
            (new / "cgroup.subtree_control").write_text("+io")
        group.mkdir()
        (group / file).write_text(limit.format(number, writes_per_second))
        (group / "cgroup.procs").write_text(str(server.process.pid))
    except OSError as error:
        pytest.skip(f"disks cannot be slowed here: {error}")
    try:
        yield
    finally:
        (group / file).write_text(none.format(number))
        (root / "cgroup.procs").write_text(str(server.process.pid))
        group.rmdir()


def url(server):
    return f"http://127.0.0.1:{server.config['admin.serverPort']}/"


def tells(server, command):
    with urllib.request.urlopen(f"{url(server)}commands/{command}", timeout=10) as answer:
        return json.load(answer)


def probe(server, name):
    """Status and text of a probe."""
    try:
        with urllib.request.urlopen(f"{url(server)}{name}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def why_slow(server):
    """What the command prints."""
    address = f"127.0.0.1:{server.config['admin.serverPort']}"
    asked = subprocess.run([BINARY, "admin", "why-slow", "--server", address], capture_output=True, text=True,
                           timeout=30)
    assert asked.returncode == 0, asked.stderr
    return asked.stdout


def named(server, *words, load=lambda: None):
    """Asks until one finding has all words, under load."""
    deadline = time.monotonic() + NAMED_WITHIN_S
    while True:
        load()
        text = why_slow(server)
        if any(all(word in line for word in words) for line in text.splitlines()):
            return text
        assert time.monotonic() < deadline, text


def shown(server, *words):
    """The same on the dashboard."""
    with sync_playwright() as playwright:
        # A sandbox of its own needs what containers do not permit.
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        for screen in "overview", "slow":
            page.goto(f"{url(server)}dashboard/#{screen}")
            finding = page.locator(".findings li")
            for word in words:
                finding = finding.filter(has_text=word)
            expect(finding.first).to_be_visible(timeout=10_000)
        browser.close()


@contextlib.contextmanager
def client(server):
    kazoo = KazooClient(server.address, timeout=20)
    kazoo.start()
    try:
        yield kazoo
    finally:
        kazoo.stop()
        kazoo.close()


def raw_session(server):
    """A connection with a session."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    connect = struct.pack(">iqiqi16s?", 0, 0, 20_000, 0, 16, bytes(16), False)
    connection.sendall(struct.pack(">i", len(connect)) + connect)
    assert connection.recv(4096)
    return connection


def request(xid, op, path, rest):
    name = path.encode()
    body = struct.pack(">iii", xid, op, len(name)) + name + rest
    return struct.pack(">i", len(body)) + body


def read_replies(connection, count):
    """Reads so many replies."""
    with connection.makefile("rb") as replies:
        for _ in range(count):
            (length,) = struct.unpack(">i", replies.read(4))
            replies.read(length)


@pytest.fixture(scope="module")
def ensemble():
    """Three servers: leader, and two followers; and the network between them."""
    links = Links([1, 2, 3])
    servers = {n: Server(**ADMIN, **{"admin.serverPort": free_port(), "initLimit": "10", "syncLimit": "10",
                                 "ringkeeper.peerTimeoutMs": "8000"},
                         **links.lines(n)) for n in links.ports}
    for number, server in servers.items():
        (server.data_dir / "myid").write_text(f"{number}\n")
    with running(list(servers.values())):
        yield servers, links


def roles(servers):
    """The numbers of the leader and of the followers."""
    leader = next(n for n, server in servers.items() if tells(server, "ensemble")["server_state"] == "leader")
    return leader, [n for n in servers if n != leader]


def writes(kazoo, path):
    """A load of small writes."""
    kazoo.ensure_path(path)

    def load():
        for number in range(10):
            kazoo.set(path, b"%d" % number)
    return load


def test_a_followers_slow_disk_is_named_by_the_leader_and_by_the_follower(ensemble):
    servers, _ = ensemble
    leader, (slow, _) = roles(servers)
    with client(servers[leader]) as kazoo:
        load = writes(kazoo, "/disk")
        load()
        with slow_disk(servers[slow], 4):
            named(servers[leader], f"the disk of server {slow} is slow", load=load)
            named(servers[slow], "this server's disk is slow", load=load)
            shown(servers[leader], f"the disk of server {slow} is slow")


def test_a_follower_that_its_slow_disk_leaves_behind_is_not_ready_until_it_has_caught_up(ensemble):
    servers, _ = ensemble
    leader, (slow, _) = roles(servers)
    with client(servers[leader]) as kazoo:
        kazoo.ensure_path("/lag")
    set_data = struct.pack(">i", 100) + bytes(100) + struct.pack(">i", -1)
    many = b"".join(request(xid, 5, "/lag", set_data) for xid in range(1, 1001))

    def await_lag(expected, load=lambda: time.sleep(0.1)):
        deadline = time.monotonic() + NAMED_WITHIN_S
        while True:
            load()
            status, told = probe(servers[slow], "readyz/lag")
            if status == expected:
                return told
            assert time.monotonic() < deadline, told

    with raw_session(servers[leader]) as connection:
        def load():
            connection.sendall(many)
            read_replies(connection, 1000)
        with slow_disk(servers[slow], 1):
            told = await_lag(503, load)
            assert "transactions behind the leader, more than 10000" in told, told
            assert probe(servers[leader], "readyz")[0] == 200
    await_lag(200)


def test_a_leaders_slow_disk_is_named_and_requests_wait_for_the_appends_before_them(ensemble):
    servers, _ = ensemble
    leader, _ = roles(servers)
    with client(servers[leader]) as kazoo:
        load = writes(kazoo, "/disk")
        with slow_disk(servers[leader], 4):
            text = named(servers[leader], "this server's disk is slow", load=load)
            assert "\nbatch " in text, text


def test_the_slow_network_to_a_follower_is_named_by_the_leader_and_the_leader_by_the_follower(ensemble):
    servers, links = ensemble
    leader, (_, slow) = roles(servers)
    with links.slow(slow, 0.15), client(servers[slow]) as kazoo:
        load = writes(kazoo, "/link")
        named(servers[leader], f"the network to server {slow} is slow", load=load)
        named(servers[slow], f"waited for the leader, server {leader}", load=load)
        shown(servers[leader], f"the network to server {slow} is slow")


def test_a_leader_that_its_host_paused_is_named_by_itself_and_by_who_waited(ensemble):
    servers, _ = ensemble
    leader, (other, _) = roles(servers)
    with client(servers[other]) as kazoo:
        load = writes(kazoo, "/pause")
        load()
        process = servers[leader].process
        process.send_signal(signal.SIGSTOP)
        try:
            waits = kazoo.set_async("/pause", b"")
            time.sleep(2)
        finally:
            process.send_signal(signal.SIGCONT)
        waits.get(timeout=20)
        assert roles(servers)[0] == leader, "it was paused for less than the others wait"
        # Others take it for milliseconds at most.
        named(servers[leader], "this server was off the CPU", " s at most", "s ago")
        assert "RK0212" in (servers[leader].folder / "log").read_text()
        named(servers[other], f"waited for the leader, server {leader}")
        shown(servers[leader], "this server was off the CPU")


def test_a_client_that_reads_late_is_named_with_its_address(server_alone):
    with client(server_alone) as kazoo:
        kazoo.create("/large", bytes(500_000))
    with raw_session(server_alone) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.sendall(b"".join(request(xid, 4, "/large", b"\0") for xid in range(1, 61)))
        address = "%s:%d" % connection.getsockname()

        def load():
            for _ in range(10):
                time.sleep(0.05)
                connection.recv(200_000)
        named(server_alone, "reads its replies late", address, load=load)
        shown(server_alone, "reads its replies late", address)


def test_a_hot_path_is_named(server_alone):
    with client(server_alone) as kazoo, raw_session(server_alone) as connection:
        kazoo.create("/hot")
        kazoo.create("/cold")
        set_data = struct.pack(">i", 20_000) + bytes(20_000) + struct.pack(">i", -1)
        many = b"".join(request(xid, 5, "/hot", set_data) for xid in range(1, 301))

        def load():
            connection.sendall(many)
            kazoo.set("/cold", b"")
            read_replies(connection, 300)
        named(server_alone, "slow requests are of /hot", load=load)
        shown(server_alone, "slow requests are of /hot")


@pytest.fixture
def server_alone(start):
    return start(**ADMIN, **{"admin.serverPort": free_port(), "ringkeeper.slowRequestMs": "10"})
