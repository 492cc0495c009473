"""kazoo's client and recipes, with the server killed and restarted in between. Without that, its own suite tests them
(test_kazoo_suite.py)."""

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

    def connect_client():
        client = KazooClient(server.address, timeout=20)
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
