"""From Apache ZooKeeper to ringkeeper and back: the same tree, node by node, and the same sessions."""

import subprocess
import threading
import time

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl

import apache_tree
import server

pytestmark = pytest.mark.skipif(server.SUBJECT != "ringkeeper", reason="ringkeeper's own commands")

SNAPSHOTS_OFTEN = {"snapCount": "100"}


@pytest.fixture
def made():
    """A function that makes a server, not started; all are removed afterwards."""
    servers = []

    def make(*args, **config):
        servers.append(server.Server(*args, **config))
        return servers[-1]

    yield make
    for one in servers:
        one.remove()


def ringkeeper(*arguments):
    """Runs a command that has to succeed. Returns what it says."""
    done = subprocess.run([server.BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def filled(make, release, compression=""):
    """The folder of a server of Apache ZooKeeper that was killed, what clients saw, clients with ephemerals, their sessions."""
    properties = [f"-Dzookeeper.snapshot.compression.method={compression}"]
    apache = make("zookeeper", release, properties, **SNAPSHOTS_OFTEN).start()
    churning = threading.Thread(target=apache_tree.churn, args=(apache.address, 300))
    churning.start()
    owners = apache_tree.fill(apache.address)
    churning.join()
    expected = apache_tree.describe(apache.address)
    sessions = [owner.client_id[0] for owner in owners]
    apache.kill()
    return apache.data_dir, expected, owners, sessions


def follow(client, address):
    """Lets a client go on elsewhere, with its session and the last zxid that it has seen. Returns the session."""
    client.set_hosts(address)
    deadline = time.monotonic() + 30
    while not client.connected:
        assert time.monotonic() < deadline, "no client comes back"
        time.sleep(0.02)
    return client.client_id[0]


def assert_same(found, expected):
    assert sorted(found) == sorted(expected)
    for path, znode in expected.items():
        assert found[path] == znode, path


@pytest.mark.parametrize("release, compression", [("lib", ""), ("lib", "gz"), ("lib", "snappy"), ("lib38", "")])
def test_there_and_back(made, release, compression):
    folder, expected, owners, sessions = filled(made, release, compression)
    lost = []
    for owner in owners:
        owner.add_listener(lambda state: lost.append(state) if state == KazooState.LOST else None)

    ours = made("ringkeeper")
    said = ringkeeper("import", "--from", folder, "--to", ours.data_dir)
    assert "note:" not in said
    ours.start()
    assert_same(apache_tree.describe(ours.address), expected)
    assert [follow(owner, ours.address) for owner in owners] == sessions
    assert_same(apache_tree.describe(ours.address), expected)

    newcomer = apache_tree.connect(ours.address, timeout=40)
    began_here = newcomer.client_id[0]
    assert newcomer.create("/queue/item-", b"", sequence=True) == "/queue/item-0000000010"
    newcomer.create("/ours", b"made here")
    newcomer.create("/ours/ephemeral", b"", ephemeral=True)
    newcomer.set("/app", b"changed here")
    newcomer.delete("/app/counted")
    owners[0].create("/ours/of-an-old-session", b"", ephemeral=True)
    apache_tree.create_container(newcomer, "/ours/container")
    apache_tree.create_with_ttl(newcomer, "/ours/ttl", 50_000_000)
    used, _ = newcomer.get("/zookeeper/quota/app/zookeeper_stats")
    assert used != expected["/zookeeper/quota/app/zookeeper_stats"][0]
    # Later transactions have higher zxids.
    assert newcomer.exists("/ours").czxid > max(stat[1] for _, stat, _ in expected.values())
    changed = apache_tree.describe(ours.address)
    ours.stop()

    back = made("zookeeper")
    ringkeeper("export", "--zookeeper", "--from", ours.data_dir, "--to", back.data_dir)
    back.start()
    assert_same(apache_tree.describe(back.address), changed)
    # Their passwords are Apache's, that of the newcomer is not.
    assert [follow(owner, back.address) for owner in owners] == sessions
    assert lost == []
    assert follow(newcomer, back.address) != began_here
    newcomer.create("/apache", b"goes on")
    assert newcomer.exists("/apache").czxid > max(stat[1] for _, stat, _ in changed.values())
    for client in [*owners, newcomer]:
        client.stop()
        client.close()


def test_an_ensemble_goes_on_from_one_folder(made):
    folder, expected, owners, sessions = filled(made, "lib")
    members = {number: made("ringkeeper") for number in (1, 2, 3)}
    lines = [f"server.{number}=127.0.0.1:{server.free_port()}:{server.free_port()}" for number in members]
    for number, member in members.items():
        ringkeeper("import", "--from", folder, "--to", member.data_dir, "--myid", number)
        with open(member.config_path, "a") as config:
            config.write("\n".join(["initLimit=10", "syncLimit=5", *lines]) + "\n")
    server.start_together(members.values())
    expected.pop("/zookeeper/config")
    expected.pop("/zookeeper")
    for member in members.values():
        found = apache_tree.describe(member.address)
        assert b"server.1" in found.pop("/zookeeper/config")[0]
        # It is written once all members are connected, and counts among the children.
        found.pop("/zookeeper/feature_level", None)
        found.pop("/zookeeper")
        assert_same(found, expected)
    addresses = ",".join(member.address for member in members.values())
    assert [follow(owner, addresses) for owner in owners] == sessions
    client = apache_tree.connect(members[2].address)
    client.create("/ours", b"made here")
    for member in members.values():
        other = KazooClient(member.address)
        other.start(timeout=30)
        other.sync("/")
        assert other.get("/ours")[0] == b"made here"
        other.stop()
    for one in [*owners, client]:
        one.stop()


def test_acl_entries_that_nobody_can_satisfy_are_listed(made):
    provider = "org.apache.zookeeper.server.auth.{}AuthenticationProvider".format
    apache = made("zookeeper", "lib", **{"authProvider.1": provider("Key"), "authProvider.2": provider("X509")}).start()
    client = apache_tree.connect(apache.address)
    for path, *entries in [
        ("/key", ("key", "alice")),
        ("/either", ("key", "bob"), ("world", "anyone")),
        ("/certificate", ("x509", "CN=alice,O=example"), ("key", "alice")),
        ("/here", ("ip", "+127.00.0.1/+8")),
    ]:
        client.create(path, b"x", acl=[make_acl(*entry, all=True) for entry in entries])
    client.stop()
    apache.kill()

    ours = made("ringkeeper")
    said = ringkeeper("import", "--from", apache.data_dir, "--to", ours.data_dir)
    notes = [line for line in said.splitlines() if line.startswith("note: ")]
    assert len(notes) == 1
    assert "scheme key" in notes[0] and "on 3 znodes, such as" in notes[0] and "on 1 znodes of these" in notes[0]
    ours.start()
    client = apache_tree.connect(ours.address)
    assert [client.get(path)[0] for path in ("/either", "/here")] == [b"x", b"x"]
    for path in ("/key", "/certificate"):
        with pytest.raises(NoAuthError):
            client.get(path)
    client.stop()


def test_what_cannot_be_done_is_said_in_a_sentence(made, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    blank = tmp_path / "blank"
    (blank / "version-2").mkdir(parents=True)
    for arguments, sentence in [
        (["import", "--from", tmp_path / "missing", "--to", tmp_path / "new"], "there is no such folder"),
        (["import", "--from", tmp_path / "full", "--to", tmp_path / "new"], "not a data folder of Apache ZooKeeper"),
        (["import", "--from", blank, "--to", tmp_path / "full"], "full is not empty: name another folder"),
        (["import", "--from", blank, "--to", tmp_path / "new"], "holds no snapshot and no log"),
        (["import", "--from", blank, "--to", blank / "new"], "which is only read"),
        (["export", "--zookeeper", "--from", tmp_path / "full", "--to", tmp_path / "new"], "not a data folder of ringkeeper"),
        (["export", "--from", tmp_path / "full", "--to", tmp_path / "new"], "--zookeeper"),
    ]:
        done = subprocess.run([server.BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0
        assert sentence in done.stderr
    assert not list((tmp_path / "new").glob("*"))
