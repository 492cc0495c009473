"""Rules for the subtrees of identities, on an ensemble of three: set while clients run, and in force wherever a client
goes, whatever happens to the servers."""

import contextlib
import shutil
import subprocess
import threading
import time

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadArgumentsError, NoAuthError
from kazoo.security import make_acl, make_digest_acl_credential

import server as server_module
from server import BINARY, HERE, SUBJECT, Server, classpath, free_port, running, start_together
from test_admin import ask
from test_admin import start as server_with_admin

pytestmark = pytest.mark.skipif(SUBJECT != "ringkeeper", reason="ZooKeeper has no such rules")

PLACE = "/zookeeper/authorisation"
USERS = {user: f"{user}:password of {user}" for user in ("tenant", "auditor")}
WAIT_S = 30


@pytest.fixture
def members():
    """The servers of an ensemble, running. Snapshots are taken all the time."""
    lines = {"initLimit": "10", "syncLimit": "5", "snapCount": "20"}
    for number in (1, 2, 3):
        lines[f"server.{number}"] = f"127.0.0.1:{free_port()}:{free_port()}"
    servers = [Server(**lines) for _ in range(3)]
    for number, server in enumerate(servers, 1):
        (server.data_dir / "myid").write_text(f"{number}\n")
    with running(servers):
        yield servers


@contextlib.contextmanager
def session(servers, user=None):
    """A session of kazoo with one of these servers; `super` is the super user."""
    credentials = {**USERS, "super": "super:test"}.get(user)
    client = KazooClient(",".join(server.address for server in servers), timeout=10,
                         auth_data=credentials and [("digest", credentials)])
    client.start(WAIT_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def identity(user):
    name, password = USERS[user].split(":")
    return "digest:" + make_digest_acl_credential(name, password)


def shell(servers, *words, status=0):
    """What the super user's shell says to a command."""
    done = subprocess.run([BINARY, "shell", "-s", servers[0].address, "--auth", "digest:super:test", *words],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def is_refused(request, *arguments):
    try:
        request(*arguments)
    except NoAuthError:
        return True
    return False


def check(servers, tenant_path="/tenants/a"):
    """Whether the rules hold on each of the servers, for sessions that begin there."""
    for server in servers:
        with session([server], "tenant") as tenant, session([server], "auditor") as auditor, \
                session([server]) as nobody:
            for client in (tenant, auditor, nobody):
                client.sync("/")
            assert tenant.get(f"{tenant_path}/x")[0] == b"x"
            tenant.set(f"{tenant_path}/x", b"x")
            for path in ("/open", "/tenants/b", "/missing", "/secret", PLACE):
                for request in (tenant.get, tenant.get_children, tenant.exists, tenant.delete, tenant.create,
                                tenant.get_acls):
                    assert is_refused(request, path), f"{request.__name__} {path}"
            assert tenant.exists("/tenants") and is_refused(tenant.get, "/tenants")
            assert is_refused(tenant.get, "/zookeeper/config")
            transaction = tenant.transaction()
            transaction.create(f"{tenant_path}/y")
            transaction.set_data("/open", b"changed")
            assert isinstance(transaction.commit()[1], NoAuthError)
            assert auditor.get("/secret")[0] == b"secret"
            for request in (auditor.create, auditor.delete):
                assert is_refused(request, "/open/new")
            assert is_refused(auditor.set, "/open", b"changed") and is_refused(auditor.get, PLACE)
            assert nobody.get("/open")[0] == b"open" and is_refused(nobody.get_children, PLACE)


def role(server):
    return server_module.four_letter_word(server.port, "mntr").split("zk_server_state\t")[1].split("\n")[0]


def test_rules_hold_whatever_happens_to_the_servers(members):
    with session(members, "super") as root:
        for path, data in [("/open", b"open"), ("/tenants", b""), ("/tenants/a", b""), ("/tenants/a/x", b"x"),
                           ("/tenants/b", b"")]:
            root.create(path, data)
        root.create("/secret", b"secret", acl=[make_acl("digest", "nobody:x", all=True)])
    shell(members, "setrule", identity("tenant"), "acl", "/tenants/a")
    shell(members, "setrule", identity("auditor"), "read", "/")
    check(members)

    leader = next(server for server in members if role(server) == "leader")
    leader.kill()
    check([server for server in members if server is not leader])
    leader.start()
    check(members)

    # From the log, and from snapshots.
    with session(members, "super") as root:
        for number in range(100):
            root.set("/open", f"open {number}".encode())
        root.set("/open", b"open")
    for server in members:
        server.kill()
    start_together(members)
    check(members)

    # An empty server is filled by the others.
    replaced = members[0]
    replaced.kill()
    for entry in replaced.data_dir.iterdir():
        if entry.name != "myid":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    replaced.start()
    check(members)

    shell(members, "setrule", identity("tenant"), "acl", "/tenants/c", "acl", "/zookeeper/config")
    with session(members, "super") as root:
        root.create("/tenants/c/x", b"x", makepath=True)
    with session(members, "tenant") as tenant:
        tenant.sync("/")
        assert tenant.get("/zookeeper/config") and is_refused(tenant.get, "/tenants/a/x")
    shell(members, "delrule", identity("tenant"))
    with session(members, "tenant") as tenant:
        tenant.sync("/")
        assert tenant.get("/tenants/a/x") and tenant.set("/open", b"open")


def test_a_change_binds_clients_that_are_connected_and_their_watches(members):
    with session(members, "super") as root, session(members, "tenant") as tenant:
        for path in ("/a", "/b"):
            root.create(path)
        seen = []
        tenant.sync("/")
        for path in ("/a", "/b"):
            tenant.get(path, watch=lambda event: seen.append(event.path))
        refused, stop = [], threading.Event()

        def read():
            while not stop.is_set():
                refused.append(is_refused(tenant.get, "/b"))

        reader = threading.Thread(target=read)
        reader.start()
        shell(members, "setrule", identity("tenant"), "acl", "/a")
        root.set("/b", b"1")
        root.set("/a", b"1")
        deadline = time.monotonic() + WAIT_S
        while not (refused and refused[-1] and "/a" in seen) and time.monotonic() < deadline:
            time.sleep(0.05)
        stop.set()
        reader.join()
        assert seen == ["/a"], "the other watch was left before the rule"
        assert refused == sorted(refused), "once bound, the client stays so"
        assert is_refused(tenant.set, "/b", b"2")


def test_a_chroot_works_inside_a_subtree(members):
    with session(members, "super") as root:
        root.ensure_path("/tenants/a")
    shell(members, "setrule", identity("tenant"), "acl", "/tenants/a")
    client = KazooClient(f"{members[0].address}/tenants/a", auth_data=[("digest", USERS["tenant"])])
    client.start(WAIT_S)
    try:
        client.ensure_path("/")
        client.ensure_path("/deep/path")
        with client.Lock("/lock"):
            assert sorted(client.get_children("/")) == ["deep", "lock"]
    finally:
        client.stop()
        client.close()


def test_curators_recipes_work_inside_a_subtree(members):
    with session(members, "super") as root:
        root.ensure_path("/tenants/a")
    # It shows no credentials, and is bound by where it comes from.
    shell(members, "setrule", "ip:127.0.0.0/8", "acl", "/tenants/a")
    done = subprocess.run(["java", "-cp", classpath("curator"), HERE / "java" / "Recipes.java",
                           f"{members[0].address}/tenants/a"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


def test_a_snapshot_of_the_admin_listener_is_for_super_users_once_there_are_rules():
    server = server_with_admin(SUBJECT, **{"admin.rateLimiterIntervalInMS": "0"})
    try:
        server.start()

        def status(credentials):
            return ask(server, "/commands/snapshot?streaming=false", Authorization=f"digest {credentials}")[0]

        assert status("u:p") == 200
        shell([server], "setrule", "sasl:somebody", "acl", "/a")
        assert (status("u:p"), status("super:test")) == (403, 200)
    finally:
        server.remove()


def test_the_shell_sets_shows_and_explains_rules(members):
    who = identity("tenant")
    shell(members, "create", "/a")
    shell(members, "setrule", who, "acl", "/a", "none", "/a/closed")
    shell(members, "setrule", "ip:127.0.0.0/8", "all", "/")
    assert shell(members, "listrules") == f"{who}\n  acl /a\n  none /a/closed\nip:127.0.0.0/8\n  all /\n"
    said = shell(members, "explain", "/a", who, "ip:127.0.0.1").splitlines()
    assert said[0] == "create yes the rule of ip:127.0.0.0/8: all /"
    said = shell(members, "explain", "/a/closed/x", who, "ip:127.0.0.1").splitlines()
    assert said[0] == f"create no  the rule of {who}: none /a/closed"
    said = shell(members, "explain", "/a", "sasl:nobody").splitlines()
    assert said[0] == "create yes the ACL's entry world:anyone:cdrwa"
    assert "none, read, acl, all" in shell(members, "setrule", who, "write", "/a", status=2)
    assert "not an identity" in shell(members, "setrule", "alice", "acl", "/a", status=2)
    with session(members, "super") as root:
        with pytest.raises(BadArgumentsError):
            root.create(f"{PLACE}/sasl:bob", b"acl /a\nnonsense")
    deadline = time.monotonic() + WAIT_S
    while not any("line 2 of the rule" in server.log() for server in members):
        assert time.monotonic() < deadline, "the log says what is wrong"
        time.sleep(0.1)
