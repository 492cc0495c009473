"""kazoo's client and recipes, with the server killed and restarted in between."""

import subprocess
import sys
import threading
import time

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    AuthFailedError, BadVersionError, LockTimeout, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError, RolledBackError,
)
from kazoo.protocol.states import EventType
from kazoo.recipe.watchers import ChildrenWatch, DataWatch
from kazoo.security import make_digest_acl

WAIT_S = 30


@pytest.fixture
def connect(server):
    """A function that starts a client; all are stopped afterwards."""
    clients = []

    def connect_client(chroot="", **options):
        options.setdefault("timeout", 20)
        client = KazooClient(server.address + chroot, **options)
        clients.append(client)
        client.start(timeout=WAIT_S)
        return client

    yield connect_client
    for client in clients:
        client.stop()
        client.close()


def wait_until(condition, what):
    """Waits until `condition` holds."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def restart(server, *clients):
    """Kills the server, starts it again and waits until the clients are back."""
    lost = [threading.Event() for _ in clients]
    for client, event in zip(clients, lost):
        client.add_listener(lambda state, event=event: event.set() if state != KazooState.CONNECTED else None)
    server.kill()
    for event in lost:
        assert event.wait(WAIT_S)
    server.start()
    for client in clients:
        wait_until(lambda client=client: client.connected, "no client comes back")


def test_values_and_versions(connect):
    client = connect()
    assert client.create("/a", b"one") == "/a"
    with pytest.raises(NodeExistsError):
        client.create("/a")
    data, stat = client.get("/a")
    assert (data, stat.version, stat.dataLength, stat.numChildren) == (b"one", 0, 3, 0)
    assert client.set("/a", b"two", version=0).version == 1
    with pytest.raises(BadVersionError):
        client.set("/a", b"three", version=0)
    client.create("/a/b/c", makepath=True)
    with pytest.raises(NotEmptyError):
        client.delete("/a")
    assert client.get_children("/a") == ["b"]
    client.delete("/a", recursive=True)
    assert client.exists("/a") is None
    with pytest.raises(NoNodeError):
        client.get("/a")
    path, stat = client.create("/é中", b"", include_data=True)
    assert (path, stat.version) == ("/é中", 0)


def test_writes_and_sessions_outlive_a_crash(server, connect):
    client = connect()
    session = client.client_id[0]
    client.create("/stays", b"value")
    client.create("/mine", ephemeral=True)
    first = client.create("/n-", sequence=True)
    for _ in range(3):
        restart(server, client)
        assert client.retry(client.get, "/stays")[0] == b"value"
        assert client.retry(client.exists, "/mine").ephemeralOwner == session
        later = client.retry(client.create, "/n-", sequence=True)
        assert later > first
        first = later
    assert client.client_id[0] == session


def test_watches_fire_once(connect):
    client, other = connect(), connect()
    events = []
    client.create("/w", b"")
    client.get("/w", watch=events.append)
    client.exists("/w/later", watch=events.append)
    client.get_children("/w", watch=events.append)
    other.set("/w", b"x")
    other.create("/w/later")
    other.set("/w", b"y")
    wait_until(lambda: len(events) == 3, f"events: {events}")
    assert [(event.type, event.path) for event in events] == [
        (EventType.CHANGED, "/w"), (EventType.CREATED, "/w/later"), (EventType.CHILD, "/w")]


def test_watch_recipes_see_every_state(server, connect):
    client, other = connect(), connect()
    client.create("/d", b"0")
    values, names = [], []
    DataWatch(client, "/d", lambda data, stat: values.append(data))
    ChildrenWatch(client, "/d", lambda children: names.append(sorted(children)))
    other.set("/d", b"1")
    wait_until(lambda: values[-1] == b"1", f"values: {values}")
    restart(server, client, other)
    other.retry(other.set, "/d", b"2")
    other.retry(other.create, "/d/x")
    wait_until(lambda: values[-1] == b"2" and names[-1] == ["x"], f"values: {values}, names: {names}")


def test_a_lock_is_held_by_one_and_passed_on(server, connect):
    first, second = connect(), connect()
    one, two = first.Lock("/lock", "one"), second.Lock("/lock", "two")
    assert one.acquire(timeout=WAIT_S)
    with pytest.raises(LockTimeout):
        two.acquire(timeout=0.5)
    restart(server, first, second)
    assert first.retry(one.contenders) == ["one"]
    waiter = threading.Thread(target=two.acquire, kwargs={"timeout": WAIT_S})
    waiter.start()
    one.release()
    waiter.join(WAIT_S)
    assert two.is_acquired
    two.release()


def test_a_lock_counts_under_contention(connect):
    def work(client):
        lock = client.Lock("/counted")
        for _ in range(10):
            with lock:
                value, stat = client.get("/count")
                client.set("/count", str(int(value) + 1).encode(), version=stat.version)

    clients = [connect() for _ in range(4)]
    clients[0].create("/count", b"0")
    workers = [threading.Thread(target=work, args=(client,)) for client in clients]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert clients[0].get("/count")[0] == b"40"


def test_an_election_has_one_winner_at_a_time(connect):
    led, inside = [], threading.Semaphore(1)

    def lead(name):
        assert inside.acquire(blocking=False), "two leaders"
        led.append(name)
        time.sleep(0.05)
        inside.release()

    elections = [connect().Election("/election", name) for name in "abc"]
    runners = [threading.Thread(target=election.run, args=(lead, election.lock.data.decode()))
               for election in elections]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join(WAIT_S)
    assert sorted(led) == ["a", "b", "c"]


def test_a_party_knows_its_members(server, connect):
    first, second = connect(), connect()
    one, two = first.Party("/party", "one"), second.Party("/party", "two")
    one.join()
    two.join()
    assert sorted(one) == ["one", "two"]
    restart(server, first, second)
    assert sorted(first.retry(lambda: list(one))) == ["one", "two"]
    two.leave()
    assert list(one) == ["one"]


def test_a_double_barrier_gathers(connect):
    inside = []
    # kazoo never gets in if another member leaves between its look for the ready znode and that for the members.
    all_inside = threading.Barrier(3)

    def pass_through(client):
        barrier = client.DoubleBarrier("/double", 3)
        barrier.enter()
        inside.append(len(client.get_children("/double")))
        all_inside.wait(WAIT_S)
        barrier.leave()

    members = [threading.Thread(target=pass_through, args=(connect(),)) for _ in range(3)]
    for member in members:
        member.start()
    for member in members:
        member.join(WAIT_S)
    assert len(inside) == 3 and min(inside) >= 3, inside


def test_a_barrier_blocks_until_removed(connect):
    client, other = connect(), connect()
    barrier = client.Barrier("/gate")
    barrier.create()
    assert not other.Barrier("/gate").wait(0.3)
    barrier.remove()
    assert other.Barrier("/gate").wait(WAIT_S)


def test_queues_keep_their_order_and_lose_nothing(server, connect):
    client, other = connect(), connect()
    queue = client.Queue("/queue")
    for number in range(20):
        queue.put(b"%d" % number)
    restart(server, client, other)
    taken = other.Queue("/queue")
    assert [other.retry(taken.get) for _ in range(20)] == [b"%d" % number for number in range(20)]
    locking = client.LockingQueue("/locking")
    locking.put(b"urgent", priority=1)
    locking.put(b"later")
    assert locking.get(timeout=WAIT_S) == b"urgent"
    assert locking.consume()


def test_ephemerals_go_with_their_session(connect):
    client, other = connect(), connect()
    client.create("/gone", ephemeral=True)
    seen = []
    assert other.exists("/gone", watch=seen.append)
    client.stop()
    wait_until(lambda: seen, "no event")
    assert seen[0].type == EventType.DELETED and other.exists("/gone") is None


CRASHING_CLIENT = """
import sys, time
from kazoo.client import KazooClient
client = KazooClient(sys.argv[1], timeout=2)
client.start()
client.create("/silent", ephemeral=True)
time.sleep(600)
"""


def test_a_silent_session_expires(server, connect):
    client = connect()
    crashing = subprocess.Popen([sys.executable, "-c", CRASHING_CLIENT, server.address])
    try:
        wait_until(lambda: client.exists("/silent"), "no ephemeral")
    finally:
        crashing.kill()
        crashing.wait()
    assert client.exists("/silent"), "the session ends with its connection"
    wait_until(lambda: client.exists("/silent") is None, "the session does not expire")


def test_a_session_is_resumed_with_its_password(server, connect):
    client = connect()
    client.create("/resumed", ephemeral=True)
    session = client.client_id
    again = connect(client_id=session)
    assert again.client_id == session
    assert again.exists("/resumed").ephemeralOwner == session[0]
    wrong = KazooClient(server.address, client_id=(session[0], b"x" * 16))
    wrong.start(timeout=WAIT_S)
    assert wrong.client_id[0] != session[0]
    wrong.stop()


def test_a_chroot_is_a_root(connect):
    plain = connect()
    plain.create("/jail")
    jailed = connect("/jail")
    events = []
    assert jailed.create("/cell", b"x") == "/cell"
    jailed.get("/cell", watch=events.append)
    plain.set("/jail/cell", b"y")
    wait_until(lambda: events, "no event")
    assert events[0].path == "/cell"
    assert jailed.get_children("/") == ["cell"]


def test_access_control(connect):
    client, stranger = connect(auth_data=[("digest", "alice:secret")]), connect()
    client.create("/private", b"", acl=[make_digest_acl("alice", "secret", all=True)])
    for refused in (lambda: stranger.get("/private"), lambda: stranger.set("/private", b""),
                    lambda: stranger.create("/private/x"), lambda: stranger.get_acls("/private"),
                    lambda: stranger.set_acls("/private", [make_digest_acl("bob", "pw", all=True)])):
        with pytest.raises(NoAuthError):
            refused()
    stranger.add_auth("digest", "super:test")
    assert stranger.get("/private")[0] == b""
    with pytest.raises(AuthFailedError):
        connect().add_auth("nosuch", "x")


def test_transactions_are_all_or_nothing(connect):
    client = connect()
    good = client.transaction()
    good.create("/t")
    good.create("/t/s-", sequence=True)
    good.set_data("/t", b"x", version=0)
    good.check("/t", version=1)
    assert good.commit()[:2] == ["/t", "/t/s-0000000000"]
    bad = client.transaction()
    bad.create("/t/half")
    bad.delete("/missing")
    bad.set_data("/t", b"y")
    results = bad.commit()
    assert [type(result) for result in results[:2]] == [RolledBackError, NoNodeError]
    assert client.exists("/t/half") is None and client.get("/t")[0] == b"x"


def test_sync_shows_what_others_have_written(connect):
    writer, reader = connect(), connect()
    writer.create("/synced", b"")
    for number in range(50):
        writer.set("/synced", b"%d" % number)
        reader.sync("/synced")
        assert reader.get("/synced")[0] == b"%d" % number


def test_pipelined_requests_answer_in_order(connect):
    client = connect()
    client.create("/p", b"")
    pending = []
    for number in range(300):
        pending.append(client.set_async("/p", b"%d" % number))
        pending.append(client.get_async("/p"))
    for number in range(300):
        assert pending[2 * number].get(WAIT_S).version == number + 1
        assert pending[2 * number + 1].get(WAIT_S)[0] == b"%d" % number
