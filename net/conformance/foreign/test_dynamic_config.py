"""ZooKeeper's dynamic configuration files: read at the first start, and written for Apache ZooKeeper."""

import shutil
import subprocess

import pytest
from kazoo.client import KazooClient

import server
from test_reconfig import FIRST, SUPER, Members, change, named, refuses, wait_until

pytestmark = pytest.mark.skipif(server.SUBJECT != "ringkeeper", reason="ringkeeper's own commands")


def ringkeeper(*arguments):
    """Runs a command that has to succeed."""
    done = subprocess.run([server.BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def members():
    """Four servers, of which the first three make the ensemble, by a dynamic file with a version in its name."""
    ensemble = Members()
    for number, one in ensemble.servers.items():
        dynamic = one.folder / "zoo.cfg.dynamic.100000000"
        lines = one.config_path.read_text().splitlines()
        dynamic.write_text("\n".join(line for line in lines if line.startswith("server.")))
        static = [line for line in lines if not line.startswith(("server.", "clientPort="))]
        one.config_path.write_text("\n".join([*static, f"dynamicConfigFile={dynamic}", ""]))
    with server.running([ensemble.servers[number] for number in FIRST]):
        try:
            yield ensemble
        finally:
            for one in ensemble.servers.values():
                one.remove()


def test_apache_zookeeper_goes_on_with_the_members_that_were_exported(members):
    operator = members.client(*FIRST, auth_data=SUPER)
    operator.create("/kept", b"by ringkeeper")
    server.start_together([members.servers[4]])
    change(operator, joining=members.lines[4])
    shrunk, _ = change(operator, leaving="1")
    assert named(shrunk) == [2, 3, 4]
    version = shrunk.decode().split("version=")[1]
    operator.stop()

    left = (2, 3, 4)
    for number in left:
        one = members.servers[number]
        ringkeeper("export-config", "--config", one.config_path, "--to", one.folder / "running")
    for number in left:
        one = members.servers[number]
        one.stop()
        # Stopped, it writes the same.
        ringkeeper("export-config", "--config", one.config_path, "--to", one.folder / "conf",
                   "--data-dir", one.folder / "apache")
        name = f"zoo.cfg.dynamic.{version}"
        texts = {(one.folder / folder / name).read_text() for folder in ("running", "conf")}
        assert texts == {"\n".join(members.lines[number] for number in left)}
    members.servers[1].stop()

    newest = members.servers[left[0]]
    ringkeeper("export", "--zookeeper", "--from", newest.data_dir, "--to", newest.folder / "apache")
    apaches = []
    for number in left:
        one = members.servers[number]
        if one is not newest:
            shutil.copytree(newest.folder / "apache", one.folder / "apache")
        (one.folder / "apache" / "myid").write_text(f"{number}\n")
        one.subject, one.config_path = "zookeeper", one.folder / "conf" / "zoo.cfg"
        apaches.append(one)
    server.start_together(apaches)
    client = KazooClient(",".join(one.address for one in apaches), timeout=10)
    client.start(30)
    assert client.get("/kept")[0] == b"by ringkeeper"
    client.sync("/zookeeper/config")
    assert client.get("/zookeeper/config")[0] == shrunk
    client.stop()


def test_lines_that_the_log_contradicts_are_named_at_the_start(members):
    operator = members.client(*FIRST, auth_data=SUPER)
    change(operator, leaving="1")
    operator.stop()
    one = members.servers[2]
    assert "RK0111" not in one.log()
    one.stop()
    one.start()
    assert "RK0111" in one.log() and "lines=\"server.1\"" in one.log()
    # Nor does the doctor look for a server that the running one, or else its folder, knows to be none of them.
    looked_for = [finding for finding in doctor(one) if "server 1" in finding or "server 3" in finding]
    assert len(looked_for) == 1 and "server 3: 127.0.0.1:" in looked_for[0], looked_for
    one.stop()
    members.servers[1].stop()
    looked_for = [finding for finding in doctor(one) if "server 1" in finding]
    assert len(looked_for) == 1 and looked_for[0].startswith("ok ") and "no voter by the log" in looked_for[0]


def doctor(one):
    done = subprocess.run([server.BINARY, "doctor", "--config", one.config_path], capture_output=True, text=True,
                          timeout=120, check=False)
    return [line for line in done.stdout.splitlines() if line.split()[1] == "peers"]


def test_a_running_server_whose_client_port_has_moved_is_asked_there_and_starts_with_what_is_written(members):
    one, now = members.servers[2], server.free_port()
    operator = members.client(1, 3, auth_data=SUPER)
    change(operator, joining=members.lines[2].replace(f";127.0.0.1:{one.port}", f";127.0.0.1:{now}"))
    wait_until(lambda: server.serves(now) and refuses("127.0.0.1", one.port), "it has moved")
    command = ["export-config", "--config", one.config_path, "--to", one.folder / "conf"]
    refused = subprocess.run([server.BINARY, *map(str, command)], capture_output=True, text=True, timeout=60,
                             check=False)
    assert refused.returncode != 0 and f"not take clients on 127.0.0.1:{one.port}" in refused.stderr, refused.stderr
    assert "--server" in refused.stderr
    ringkeeper(*command, "--server", f"127.0.0.1:{now}")
    one.stop()
    one.config_path = one.folder / "conf" / "zoo.cfg"
    one.launch()
    wait_until(lambda: server.serves(now), "it serves where it has moved")
    operator.stop()
