"""kazoo's client and recipes, with the server killed and restarted in between, and what its own suite
(test_kazoo_suite.py) does not ask."""

import subprocess
import sys
import threading
import time

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import LockTimeout
from kazoo.recipe.watchers import ChildrenWatch, DataWatch

WAIT_S = 30


@pytest.fixture
def connect(server):
    """A function that starts a client; all are stopped afterwards."""
    clients = []

    def connect_client(**options):
        client = KazooClient(server.address, timeout=20, **options)
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
