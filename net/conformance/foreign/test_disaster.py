"""The drill: three servers and their disks are gone, and come back from an object store."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.security import make_digest_acl

from certificates import Authority
from object_store import prepare
from server import BINARY, SUBJECT, Server, free_port, running, start_together

pytestmark = pytest.mark.skipif(SUBJECT != "ringkeeper", reason="Apache ZooKeeper has no backup")


@pytest.fixture
def object_store(tmp_path):
    """Yields the environment of its clients."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    command, environment = prepare(tmp_path, endpoint)
    with open(tmp_path / "s3.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for("the object store", lambda: answers(endpoint))
        yield {**os.environ, **environment}
    finally:
        process.kill()
        process.wait()


def answers(endpoint):
    try:
        urllib.request.urlopen(endpoint, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def wait_for(what, look):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within a minute")


def ringkeeper(*arguments, **options):
    """What a command prints; it has to succeed."""
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def members():
    """Three servers with an admin listener each, not started."""
    lines = {"admin.enableServer": "true", "admin.serverAddress": "127.0.0.1", "initLimit": "10", "syncLimit": "5"}
    lines |= {f"server.{n}": f"127.0.0.1:{free_port()}:{free_port()}" for n in (1, 2, 3)}
    servers = [Server(**lines, **{"admin.serverPort": free_port()}) for _ in range(3)]
    for number, server in enumerate(servers, 1):
        (server.data_dir / "myid").write_text(f"{number}\n")
    return servers


class Writer(threading.Thread):
    """Writes until it is stopped; keeps the zxid of each create that was acknowledged."""

    def __init__(self, client, number):
        super().__init__(daemon=True)
        self.client, self.number, self.acknowledged, self.over = client, number, {}, threading.Event()

    def run(self):
        count = 0
        while not self.over.is_set():
            path = f"/drill/{self.number}-{count}"
            count += 1
            with contextlib.suppress(KazooException):
                _, stat = self.client.create(path, f"{count}".encode(), include_data=True)
                self.acknowledged[path] = stat.czxid
            # Enough to be cut anywhere, and little to read back.
            time.sleep(0.002)


@contextlib.contextmanager
def client_of(servers, **options):
    kazoo = KazooClient(",".join(server.address for server in servers), timeout=20, **options)
    kazoo.start(timeout=30)
    try:
        yield kazoo
    finally:
        kazoo.stop()
        kazoo.close()


def missing_of(client, wanted):
    """The paths of these that are not there."""
    found = set(client.get_children("/drill"))
    return [path for path in wanted if path.removeprefix("/drill/") not in found]


def test_servers_and_disks_are_gone_and_every_write_up_to_the_last_shipped_one_comes_back(
        object_store, tmp_path, capfd):
    key = tmp_path / "key"
    key.write_text("c7" * 32)
    store = ["--key-file", str(key)]
    servers = members()
    with running(servers), contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client_of(servers)) for _ in range(3)]
        clients[0].create("/drill", b"")
        clients[0].create("/ephemeral", b"", ephemeral=True)
        port = servers[0].config["admin.serverPort"]
        shipping = stack.enter_context(subprocess.Popen(
            [BINARY, "backup", "--server", f"127.0.0.1:{port}", "--to", "s3://backups/drill", "--every", "1s", *store],
            env=object_store, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        stack.callback(shipping.kill)
        writers = [Writer(client, number) for number, client in enumerate(clients)]
        for writer in writers:
            writer.start()
        said = []
        for line in shipping.stdout:
            said.append(line)
            if sum(word.startswith("shipped") for word in said) == 4:
                break
        assert shipping.poll() is None, said
        shipping.kill()
        # Some more is acknowledged, which nobody ships.
        wait_for("unshipped writes", lambda: all(len(writer.acknowledged) > 50 for writer in writers))
        time.sleep(0.2)
        for server in servers:
            server.process.kill()
        for writer in writers:
            writer.over.set()
        for server in servers:
            server.kill()
            shutil.rmtree(server.data_dir)
        acknowledged = {path: zxid for writer in writers for path, zxid in writer.acknowledged.items()}
        seen = clients[0].last_zxid

        verified = ringkeeper("backup", "verify", "--from", "s3://backups/drill", *store, env=object_store)
        end = int(re.search(r"to (0x[0-9a-f]+)\n", verified)[1], 16)
        restored = tmp_path / "restored"
        ringkeeper("restore", "--from", "s3://backups/drill", *store, "--to", str(restored),
                         "--members", "1,2,3", "--above", hex(seen), env=object_store)
        for number, server in enumerate(servers, 1):
            shutil.move(restored / str(number), server.data_dir)
        start_together(servers)

        # A client that has seen the end of the old history is served: no zxid is behind that.
        again = clients[0]
        wait_for("the old client", lambda: again.connected)
        _, stat = wait_for("a write", lambda: attempt(lambda: again.create("/after", b"", include_data=True)))
        assert stat.czxid > seen
        wanted = [path for path, zxid in acknowledged.items() if zxid <= end]
        lost = [path for path, zxid in acknowledged.items() if zxid > end]
        assert missing_of(again, wanted) == []
        assert len(missing_of(again, lost)) == len(lost), "nothing is there that was not shipped"
        assert again.exists("/ephemeral") is None
        with capfd.disabled():
            print(f"\nthe drill: {len(wanted)} acknowledged writes up to zxid {end:#x} are back, "
                  f"{len(lost)} behind it are lost", file=sys.stderr)
        assert wanted


def attempt(call):
    try:
        return call()
    except KazooException:
        return None


def test_a_deleted_subtree_comes_back_into_the_running_service(tmp_path):
    servers = members()[:1]
    server = servers[0]
    for number in (1, 2, 3):
        del server.config[f"server.{number}"]
    server.config_path.write_text("".join(f"{key}={value}\n" for key, value in server.config.items()))
    (server.data_dir / "myid").unlink()
    store = str(tmp_path / "store")
    with running(servers), client_of(servers) as kazoo:
        kazoo.create("/app/a", b"1", makepath=True)
        kazoo.create("/app/b", b"\xff", makepath=True)
        kazoo.create("/app/session", b"", ephemeral=True)
        zxid = kazoo.last_zxid
        kazoo.delete("/app", recursive=True)
        address = f"127.0.0.1:{server.config['admin.serverPort']}"
        ringkeeper("backup", "--server", address, "--to", store, "--once")
        late = subprocess.run([BINARY, "restore", "--from", store, "--at", hex(zxid), "--path", "/app",
                               "--into", server.address], capture_output=True, text=True)
        assert late.returncode == 1 and "the store begins with zxid" in late.stderr, late.stderr
        kazoo.create("/app", b"")
        kazoo.create("/app/a", b"2")
        zxid = kazoo.last_zxid
        kazoo.delete("/app", recursive=True)
        ringkeeper("backup", "--server", address, "--to", store, "--once")
        restore = [BINARY, "restore", "--from", store, "--at", hex(zxid), "--path", "/app", "--into", server.address]
        assert subprocess.run(restore, timeout=30).returncode == 0
        assert kazoo.get("/app/a")[0] == b"2"
        kazoo.set("/app/a", b"3")
        refused = subprocess.run(restore, capture_output=True, text=True, timeout=30)
        assert refused.returncode != 0 and kazoo.get("/app/a")[0] == b"3", refused.stderr
        assert subprocess.run([*restore, "--overwrite"], timeout=30).returncode == 0
        assert kazoo.get("/app/a")[0] == b"2"
        with pytest.raises(NoNodeError):
            kazoo.get("/app/session")


def test_a_backup_comes_over_tls_for_whoever_has_certificate_and_password(tmp_path):
    authority = Authority(tmp_path)
    server = Server(**{
        "admin.enableServer": "true", "admin.serverAddress": "127.0.0.1", "admin.serverPort": free_port(),
        "admin.forceHttps": "true", "admin.needClientAuth": "true", "ssl.quorum.keyStore.location": authority.issue("s"),
        "ssl.quorum.trustStore.location": authority.certificate})
    url = f"https://127.0.0.1:{server.config['admin.serverPort']}"
    trust = ["--tls-trust-store", str(authority.certificate)]
    key = ["--tls-key-store", str(authority.issue("operator"))]
    with running([server]), client_of([server]) as kazoo:
        kazoo.set_acls("/", [make_digest_acl("me", "secret", all=True)])

        def ship(*arguments, password=None):
            command = [BINARY, "backup", "--server", url, "--to", str(tmp_path / "store"), "--once", *arguments]
            done = subprocess.run(command, input=password, capture_output=True, text=True, timeout=60)
            return done.returncode, done.stderr

        for arguments, password, reason in [
            (key[:0], None, "needs a trust store"),
            (trust, None, "does not answer"),
            (trust + key, None, "Not authorized"),
            ([*trust, *key, "--user", "me"], "wrong", "Not authorized"),
        ]:
            status, said = ship(*arguments, password=password)
            assert status == 1 and reason in said, said
        assert ship(*trust, *key, "--user", "me", password="secret\n") == (0, "")
