"""A tree with everything that a data folder of ZooKeeper can hold, made through clients, and written down."""

import collections
import struct

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, RolledBackError
from kazoo.protocol.serialization import int_struct, write_buffer, write_string
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

# `CONFIG` in server.py gives the super user this password.
SUPER = ("digest", "super:test")


def connect(address, **options):
    """A client that is connected."""
    client = KazooClient(address, **{"timeout": 30, **options})
    client.start(timeout=30)
    return client


class _CreateSpecial(collections.namedtuple("_CreateSpecial", "path data flags ttl")):
    """createContainer, or createTTL if there is a time to live; kazoo knows neither."""

    @property
    def type(self):
        return 19 if self.ttl is None else 21

    def serialize(self):
        body = bytearray(write_string(self.path) + write_buffer(self.data) + int_struct.pack(len(OPEN_ACL_UNSAFE)))
        for acl in OPEN_ACL_UNSAFE:
            body += int_struct.pack(acl.perms) + write_string(acl.id.scheme) + write_string(acl.id.id)
        body += int_struct.pack(self.flags)
        if self.ttl is not None:
            body += struct.pack(">q", self.ttl)
        return body

    @classmethod
    def deserialize(cls, reply, offset):
        return None


def create_container(client, path, data=None):
    """Creates a container; without data it has none, which is not the same as empty data."""
    _submit(client, _CreateSpecial(path, data, 4, None))


def create_with_ttl(client, path, ttl_ms, data=b""):
    """Creates a znode with a time to live."""
    _submit(client, _CreateSpecial(path, data, 5, ttl_ms))


def _submit(client, request):
    result = client.handler.async_result()
    client._call(request, result)
    result.get(timeout=30)


def fill(address):
    """Makes the tree. Returns the clients whose sessions own its ephemerals."""
    owners = [connect(address, timeout=40), connect(address, timeout=25)]
    first, second = owners
    first.create("/app", b"root of an application")
    first.create("/app/empty", b"")
    first.create("/app/config", b"v0")
    for version in range(5):
        first.set("/app/config", b"v%d" % version * 100)
    first.create("/app/umlauts-\u00e4\u00f6\u00fc", "\u4e2d".encode())
    first.create("/app/large", bytes(range(256)) * 40)
    deep = "/app"
    for level in range(30):
        deep += f"/level-{level}"
        first.create(deep, b"x" * level)
    first.create("/queue", b"")
    for _ in range(10):
        first.create("/queue/item-", b"work", sequence=True)
    for name in sorted(first.get_children("/queue"))[:4]:
        first.delete(f"/queue/{name}")
    first.create("/secret", b"for one", acl=[make_digest_acl("user", "password", all=True)])
    first.create("/shared", b"for some")
    first.set_acls("/shared", [make_digest_acl("user", "password", all=True), make_digest_acl("guest", "x", read=True)])
    first.set_acls("/app/config", [make_digest_acl("user", "password", read=True, write=True)])
    create_container(first, "/container", b"kept while it has children")
    first.create("/container/child", b"")
    create_container(first, "/container-without-children")
    create_with_ttl(first, "/ttl", 30_000_000, b"ends some time")
    create_with_ttl(first, "/ttl/child", 40_000_000)
    _quota(first)
    for owner in owners:
        for number in range(3):
            owner.create(f"/app/member-{number}-", b"here", ephemeral=True, sequence=True)
    transaction = first.transaction()
    transaction.create("/multi", b"one")
    transaction.create("/multi/child", b"two")
    transaction.set_data("/app/empty", b"no more")
    transaction.check("/queue", 0)
    transaction.create("/multi/ephemeral", b"", ephemeral=True)
    transaction.delete("/multi/child")
    assert not any(isinstance(result, Exception) for result in transaction.commit())
    failing = first.transaction()
    failing.create("/never", b"")
    failing.delete("/missing")
    assert isinstance(failing.commit()[0], RolledBackError)
    try:
        first.set("/missing", b"")
    except NoNodeError:
        pass
    leaving = connect(address)
    leaving.create("/app/leaving", b"", ephemeral=True)
    leaving.create("/app/left", b"", ephemeral=False)
    leaving.stop()
    leaving.close()
    second.create("/app/last", b"the last transaction but for those of others")
    return owners


def _quota(client):
    client.ensure_path("/zookeeper/quota/app")
    client.create("/zookeeper/quota/app/zookeeper_limits", b"count=1000,bytes=1000000")
    client.create("/zookeeper/quota/app/zookeeper_stats", b"count=0,bytes=0")
    client.create("/app/counted", b"twelve bytes")


def bulk(address, count):
    """Creates many small znodes, which make a snapshot take its time."""
    client = connect(address)
    client.ensure_path("/bulk")
    for result in [client.create_async(f"/bulk/{number}", b"") for number in range(count)]:
        result.get(timeout=30)
    client.stop()
    client.close()


def churn(address, rounds):
    """Creates and deletes under many parents without waiting, so that snapshots taken meanwhile are fuzzy."""
    client = connect(address)
    client.ensure_path("/churn")
    for parent in range(20):
        client.ensure_path(f"/churn/{parent}")
    for number in range(rounds):
        parent, name = number % 20, number % 37
        pending = [
            client.create_async(f"/churn/{parent}/{name}", b"%d" % number),
            client.set_async(f"/churn/{parent}", b"%d" % number),
            client.create_async(f"/churn/{parent}/e-", b"", ephemeral=True, sequence=True),
        ]
        if number % 3 == 0:
            pending.append(client.delete_async(f"/churn/{parent}/{name}"))
        if number % 100 == 99:
            for result in pending:
                result.wait(30)
    client.stop()
    client.close()


def describe(address):
    """Every znode as clients see it: its path with data, Stat and ACL. The root first."""
    client = connect(address)
    client.add_auth(*SUPER)
    znodes = {}
    todo = ["/"]
    while todo:
        path = todo.pop()
        data, stat = client.get(path)
        acls, _ = client.get_acls(path)
        znodes[path] = (data, tuple(stat), tuple((acl.perms, acl.id.scheme, acl.id.id) for acl in acls))
        parent = path.rstrip("/")
        todo += [f"{parent}/{name}" for name in sorted(client.get_children(path), reverse=True)]
    client.stop()
    client.close()
    return znodes
