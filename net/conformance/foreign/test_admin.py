"""The admin listener: the same questions to Apache ZooKeeper's AdminServer and to the server under test have answers
with the same status, and the same fields in the same order."""

import contextlib
import http.client
import json
import ssl
import subprocess

import pytest
from kazoo.client import KazooClient

import server as server_module
from certificates import Authority
from server import BINARY, SUBJECT, Server, free_port, running

# Fields that Java alone has are not looked for here.
OPEN_ENDED = {"environment", "monitor", "system_properties"}

COMMANDS = """configuration conf config connection_stat_reset crst connections cons dirs dump environment env envi
get_trace_mask gtmk hash initial_configuration icfg is_read_only isro last_snapshot lsnp leader lead monitor mntr
observer_connection_stat_reset orst observers obsr ruok server_stats srvr set_trace_mask?traceMask=77
set_trace_mask set_trace_mask?traceMask=x stat_reset srst stats stat system_properties sysp voting_view watches wchc
watches_by_path wchp watch_summary wchs zabstate nonsense snapshot""".split()


def start(subject, **config):
    """A server with its admin listener on a port of its own."""
    port = free_port()
    config = {"admin.enableServer": "true", "admin.serverAddress": "127.0.0.1", "admin.serverPort": port, **config}
    server = Server(subject=subject, **config)
    server.admin_port = port
    return server


def ask(server, path, method="GET", **headers):
    """Status, headers and body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.admin_port, timeout=20)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def shape(value):
    """The fields, in their order, and the kinds of what they hold. What ringkeeper shows as text beside a number is
    left out."""
    if isinstance(value, dict):
        if value and all(key.isdigit() or key.startswith("/") for key in value):
            # One of the entries stands for all. Apache ZooKeeper keeps empty lists of sessions for a while.
            shapes = [shape(each) for each in value.values() if each]
            return {"each": shapes[0]} if shapes else []
        if "provider_null" in value:
            # Java takes these in the order that the virtual machine happens to tell.
            value = dict(sorted(value.items()))
        return [(key, shape(inner)) for key, inner in value.items() if not key.endswith("_hex")]
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def answer(server, command):
    status, headers, body = ask(server, f"/commands/{command}")
    shown = json.loads(body)
    if shown.get("command") in OPEN_ENDED:
        shown = {key: shown[key] for key in ("command", "error")}
    return status, headers.get_content_type(), shape(shown), shown["command"], shown.get("error")


@contextlib.contextmanager
def client(server):
    """A session with an ephemeral znode and a watch."""
    kazoo = KazooClient(server.address, timeout=10)
    kazoo.start()
    try:
        kazoo.create("/e", b"", ephemeral=True)
        kazoo.get("/e", watch=lambda event: None)
        yield kazoo
    finally:
        kazoo.stop()
        kazoo.close()


@pytest.fixture(scope="module")
def pair():
    with running([start("zookeeper"), start(SUBJECT)]) as servers, client(servers[0]), client(servers[1]):
        yield servers


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_answered_as_by_zookeeper(pair, command):
    theirs, ours = (answer(server, command) for server in pair)
    assert ours == theirs


def test_what_java_does_not_name_is_named_alike(pair):
    shown = [json.loads(ask(server, "/commands/monitor")[2]) for server in pair]
    for name in ("version", "server_state", "znode_count", "watch_count", "ephemerals_count", "num_alive_connections"):
        theirs, ours = (one[name] for one in shown)
        assert shape(ours) == shape(theirs), name
    theirs, ours = (json.loads(ask(server, "/commands/environment")[2]) for server in pair)
    assert {"zookeeper.version", "host.name", "os.name", "user.dir"} <= theirs.keys() & ours.keys()


@pytest.mark.parametrize(("method", "path"), [
    ("HEAD", "/commands/stats"), ("PUT", "/commands/stats"), ("GET", "/commands"), ("GET", "/nonsense"),
])
def test_methods_and_paths_have_the_status_of_zookeeper(pair, method, path):
    theirs, ours = (ask(server, path, method)[0] for server in pair)
    assert ours == theirs


def test_the_index_names_the_same_commands(pair):
    theirs, ours = (ask(server, "/commands")[2].decode().split('"')[1::2] for server in pair)
    names = ["ensemble", "feature_level", "feed", "hand_over", "log_level", "slow_requests"] if SUBJECT == "ringkeeper" else []
    own = [f"/commands/{name}" for name in names]
    assert sorted(ours) == sorted(theirs + own)


def test_a_snapshot_is_sent_to_who_may_have_it(pair):
    answers = [ask(server, "/commands/snapshot", Authorization="digest u:p") for server in pair]
    for status, headers, body in answers:
        assert status == 200 and headers.get_content_type() == "application/octet-stream"
        assert headers["last_zxid"].startswith("0x") and int(headers["snapshot_size"]) == len(body)
        assert body[:8] == b"ZKSN\0\0\0\2"
    for wrong in ("digest", "nonsense u:p", "digest u:p x"):
        theirs, ours = (ask(server, "/commands/snapshot", Authorization=wrong)[0] for server in pair)
        assert ours == theirs, wrong


def ensemble(subject):
    """Three servers, of which the last one is an observer."""
    lines = {"initLimit": "10", "syncLimit": "5"}
    for number in (1, 2, 3):
        role = ":observer" if number == 3 else ":participant"
        lines[f"server.{number}"] = f"127.0.0.1:{free_port()}:{free_port()}{role}"
    servers = [start(subject, **lines) for _ in range(3)]
    for number, server in enumerate(servers, 1):
        (server.data_dir / "myid").write_text(f"{number}\n")
    return servers


@pytest.fixture(scope="module")
def ensembles():
    servers = ensemble("zookeeper") + ensemble(SUBJECT)
    with running(servers):
        yield servers[:3], servers[3:]


def role(server):
    return server_module.four_letter_word(server.port, "mntr").split("zk_server_state\t")[1].split("\n")[0]


def test_a_leader_names_its_observers(ensembles):
    for servers in ensembles:
        leader = next(server for server in servers if role(server) == "leader")
        shown = json.loads(ask(leader, "/commands/observers")[2])
        assert shown["synced_observers"] == 1
        (observer,) = shown["observers"]
        assert observer["sid"] == 3
        assert all(isinstance(observer[name], int) for name in ("queued_packets", "queued_packets_size", "last_zxid"))


@pytest.mark.parametrize("command", [
    "configuration", "is_read_only", "last_snapshot", "leader", "server_stats", "voting_view", "zabstate",
    "observer_connection_stat_reset", "dump",
])
@pytest.mark.parametrize("wanted", ["leader", "follower", "observer"])
def test_a_member_answers_as_zookeepers(ensembles, wanted, command):
    found = [next(server for server in servers if role(server) == wanted) for servers in ensembles]
    theirs, ours = (answer(server, command) for server in found)
    assert ours == theirs


def encrypted(server, authority, certificate=None):
    """Status and headers of an answer with TLS; nothing if the connection is refused."""
    context = ssl.create_default_context(cafile=authority.certificate)
    if certificate:
        context.load_cert_chain(certificate)
    connection = http.client.HTTPSConnection("127.0.0.1", server.admin_port, timeout=20, context=context)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/commands/ruok")
        answer = connection.getresponse()
        return answer.status, answer.headers["Strict-Transport-Security"]


def in_the_clear(server):
    """Status of an answer; nothing if the connection is refused."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        return ask(server, "/commands/ruok")[0]


@pytest.mark.parametrize(("settings", "clear", "anonymous"), [
    ({"admin.portUnification": "true"}, True, True),
    ({"admin.forceHttps": "true"}, False, True),
    ({"admin.forceHttps": "true", "admin.needClientAuth": "true"}, False, False),
])
@pytest.mark.parametrize("subject", sorted({"zookeeper", SUBJECT}))
def test_tls_takes_the_stores_of_the_links_between_servers(tmp_path, subject, settings, clear, anonymous):
    authority = Authority(tmp_path)
    stores = {
        "ssl.quorum.keyStore.location": authority.issue("server"),
        "ssl.quorum.keyStore.type": "PEM",
        "ssl.quorum.trustStore.location": authority.certificate,
        "ssl.quorum.trustStore.type": "PEM",
    }
    with running([start(subject, **stores, **settings)]) as (server,):
        status, security = encrypted(server, authority, authority.issue("client"))
        assert (status, security.split(";")[0]) == (200, "max-age=86400")
        assert (encrypted(server, authority) is not None) == anonymous
        assert (in_the_clear(server) == 200) == clear
        if subject == "ringkeeper":
            stores = ["--tls-trust-store", authority.certificate, "--tls-key-store", authority.issue("operator")]
            url = f"https://localhost:{server.config['admin.serverPort']}"
            asked = subprocess.run([BINARY, "admin", "why-slow", "--server", url, *stores], capture_output=True, text=True,
                                   timeout=30)
            assert "No request took longer" in asked.stdout, asked.stderr
