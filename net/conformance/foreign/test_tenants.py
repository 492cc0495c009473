"""Tenants, as kazoo's clients meet them: who asks for too much waits, is refused with errors that clients know, and keeps
its session; its neighbours go on."""

import contextlib
import time

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadArgumentsError, QuotaExceededError, ThrottledOpError

from server import SUBJECT

pytestmark = pytest.mark.skipif(SUBJECT != "ringkeeper", reason="ZooKeeper has no tenants")

LIMITS = "/zookeeper/quota/t/ringkeeper_limits"
WAIT_S = 60


@contextlib.contextmanager
def session(server, timeout=10):
    """A session of kazoo, and the states of its connection."""
    client = KazooClient(server.address, timeout=timeout)
    client.states = []
    client.add_listener(client.states.append)
    client.start(WAIT_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture
def admin(start, request):
    """A session with a server whose subtree `/t` has the limits of the test's parameter."""
    limits, settings = request.param
    server = start(**settings)
    with session(server) as client:
        client.server = server
        for path in ("/t/a", "/u"):
            client.create(path, b"12345", makepath=True)
        client.create(LIMITS, limits, makepath=True)
        yield client


@pytest.mark.parametrize("admin", [(b"ops=20", {})], indirect=True)
def test_who_is_over_its_rate_waits_and_its_neighbour_does_not(admin):
    with session(admin.server) as noisy, session(admin.server) as neighbour:
        began = time.monotonic()
        asked = [noisy.get_async("/t/a") for _ in range(100)]
        for _ in range(50):
            assert neighbour.get("/u")[0] == b"12345"
        assert not asked[-1].ready(), "50 requests of the neighbour came first"
        assert all(one.get(timeout=WAIT_S)[0] == b"12345" for one in asked)
        # A second's worth at once, then 20 a second: no machine is quicker.
        assert time.monotonic() - began > 3.5


@pytest.mark.parametrize("admin", [(b"ops=10", {})], indirect=True)
def test_a_client_that_waits_for_longer_than_its_session_lasts_keeps_it(admin):
    with session(admin.server, timeout=4) as client:
        client.create("/u/ephemeral", ephemeral=True)
        before = client.client_id
        asked = [client.get_async("/t") for _ in range(100)]
        assert all(one.get(timeout=WAIT_S) for one in asked)
        assert client.client_id == before
        assert client.states == ["CONNECTED"]
        assert admin.exists("/u/ephemeral")


@pytest.mark.parametrize("admin", [(b"ops=1", {"ringkeeper.tenantDelayMaxMs": 100})], indirect=True)
def test_who_would_wait_too_long_is_told_so(admin):
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(session(admin.server)) for _ in range(5)]
        asked = [client.get_async("/t") for client in clients]
        for one in asked:
            one.wait(WAIT_S)
        refused = [one for one in asked if not one.successful()]
        assert refused and all(isinstance(one.exception, ThrottledOpError) for one in refused)
        assert len(refused) < len(asked)
        admin.delete(LIMITS)
        for client in clients:
            client.sync("/u")
            assert client.get("/t")


@pytest.mark.parametrize("admin", [(b"znodes=3 data=12 sessions=1 watches=1", {})], indirect=True)
def test_what_is_beyond_a_limit_is_refused_with_an_error_that_clients_know(admin):
    with session(admin.server) as client, session(admin.server) as other:
        client.create("/t/b", b"")
        for beyond in (lambda: client.create("/t/c"), lambda: client.set("/t/a", bytes(13))):
            with pytest.raises(QuotaExceededError):
                beyond()
        client.set("/t/a", bytes(12))
        client.get("/t/a", watch=print)
        with pytest.raises(QuotaExceededError):
            client.get("/t", watch=print)
        client.get("/t")
        with pytest.raises(QuotaExceededError):
            other.get("/t")
        other.get("/u")
        with pytest.raises(BadArgumentsError):
            other.set(LIMITS, b"znodes=many")
        other.set(LIMITS, b"")
        assert other.get("/t")
