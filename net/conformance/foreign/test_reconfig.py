"""Members that join and leave while clients of kazoo and Curator work, on Apache ZooKeeper and on ringkeeper alike."""

import contextlib
import signal
import socket
import subprocess
import time

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    ConnectionLoss,
    NewConfigNoQuorumError,
    NoAuthError,
)

from server import (
    HERE,
    SUBJECT,
    Server,
    classpath,
    four_letter_word,
    free_port,
    running,
    serves,
    start_together,
)

SUPER = [("digest", "super:test")]
FIRST, ALL = (1, 2, 3), (1, 2, 3, 4, 5)


class Members:
    """Five servers, of which the first three make the ensemble; the others have yet to join."""

    def __init__(self):
        self.servers = {number: Server(initLimit="10", syncLimit="5") for number in ALL}
        ports = {number: (free_port(), free_port()) for number in ALL}
        self.lines = {
            number: f"server.{number}=127.0.0.1:{quorum}:{election}:participant;127.0.0.1:{self.servers[number].port}"
            for number, (quorum, election) in ports.items()
        }
        for number, server in self.servers.items():
            listed = [self.lines[other] for other in sorted({*FIRST, number})]
            (server.data_dir / "myid").write_text(f"{number}\n")
            with server.config_path.open("a") as config:
                config.write("\n".join(listed) + "\n")

    def client(self, *numbers, **options):
        hosts = ",".join(self.servers[number].address for number in numbers)
        client = KazooClient(hosts, timeout=10, **options)
        client.start(30)
        return client


@pytest.fixture
def members():
    ensemble = Members()
    with running([ensemble.servers[number] for number in FIRST]):
        try:
            yield ensemble
        finally:
            for number in set(ALL) - set(FIRST):
                ensemble.servers[number].remove()


def named(data):
    """The ids that the text of /zookeeper/config names."""
    return [int(line.split("=")[0].removeprefix("server.")) for line in data.decode().split("\n")[:-1]]


def change(client, **words):
    """Asks until the new voters have caught up."""
    words = {"joining": None, "leaving": None, "new_members": None, **words}
    deadline = time.monotonic() + 60
    while True:
        try:
            return client.reconfig(**words)
        except NewConfigNoQuorumError:
            assert time.monotonic() < deadline, "the new voters do not catch up"
            time.sleep(0.2)


def leader_of(members):
    return next(number for number in FIRST if "Mode: leader" in four_letter_word(members.servers[number].port, "srvr"))


def test_servers_join_and_leave_and_a_watcher_hears_of_it_once(members):
    operator, watcher = members.client(*FIRST, auth_data=SUPER), members.client(*FIRST)
    heard = []
    data, stat = watcher.get("/zookeeper/config", watch=heard.append)
    assert named(data) == list(FIRST) and stat.version == -1
    watcher.create("/kept", b"before")
    joiners = [members.servers[number] for number in (4, 5)]
    start_together(joiners)
    grown, _ = change(operator, joining=f"{members.lines[4]},{members.lines[5]}")
    assert named(grown) == list(ALL)
    for number in ALL:
        client = members.client(number)
        client.sync("/")
        assert client.get("/kept")[0] == b"before"
        assert client.get("/zookeeper/config")[0] == grown
        client.stop()
    # Of three servers two would be needed, and they are gone: those who joined make the majority.
    members.servers[1].kill()
    members.servers[2].kill()
    survivor = members.client(3, 4, 5, auth_data=SUPER)
    survivor.retry(survivor.set, "/kept", b"by three of five")
    shrunk, _ = survivor.retry(change, survivor, leaving="1,2")
    assert named(shrunk) == [3, 4, 5]
    members.servers[3].kill()
    survivor.retry(survivor.set, "/kept", b"by two of three")
    assert survivor.retry(survivor.get, "/kept")[0] == b"by two of three"
    assert [event.type for event in heard] == ["CHANGED"]
    for client in (operator, watcher, survivor):
        client.stop()


def refuses(host, port):
    try:
        socket.create_connection((host, port), 1).close()
    except ConnectionRefusedError:
        return True
    return False


def wait_until(holds, what):
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, f"not within 20 s: {what}"
        time.sleep(0.1)


def test_a_member_moves_to_other_ports_while_its_clients_go_on(members):
    leader = leader_of(members)
    moved, third = sorted(set(FIRST) - {leader})
    operator, client = members.client(leader, auth_data=SUPER), members.client(moved)
    before, now = members.servers[moved].port, free_port()
    line = f"server.{moved}=127.0.0.1:{free_port()}:{free_port()}:participant;127.0.0.1:{now}"
    change(operator, joining=line)
    client.retry(client.create, "/kept", b"")
    newcomer = KazooClient(f"127.0.0.1:{now}", timeout=10)
    newcomer.start(30)
    newcomer.retry(newcomer.set, "/kept", b"by a newcomer")
    wait_until(lambda: refuses("127.0.0.1", before), "the old port is closed")
    # The same port, and another address of this machine.
    assert refuses("127.0.0.2", now)
    change(operator, joining=line.replace(f";127.0.0.1:{now}", f";0.0.0.0:{now}"))
    wait_until(lambda: not refuses("127.0.0.2", now), "it listens at all addresses")
    # Who starts now finds it where it has moved.
    members.servers[third].kill()
    members.servers[third].start()
    members.servers[leader].kill()
    newcomer.retry(newcomer.set, "/kept", b"by two of three")
    for each in (operator, client, newcomer):
        each.stop()


@pytest.mark.parametrize("leader_moves", [False, pytest.param(True, marks=pytest.mark.skipif(
    SUBJECT != "ringkeeper", reason="Apache ZooKeeper does not find a leader that has moved"))])
def test_a_member_that_is_away_while_its_ports_change_comes_back(members, leader_moves):
    leader = leader_of(members)
    moved = min(set(FIRST) - {leader})
    server, operator = members.servers[moved], members.client(leader, auth_data=SUPER)
    server.kill()
    lines = [f"server.{number}=127.0.0.1:{free_port()}:{free_port()}:participant;{members.servers[number].address}"
             for number in [moved, leader][:1 + leader_moves]]
    change(operator, joining=",".join(lines))
    operator.create("/kept", b"without it")
    server.start()
    client = members.client(moved)
    assert client.get("/kept")[0] == b"without it"
    # It is found at the new place from now on.
    members.servers[leader].kill()
    members.servers[leader].start()
    client.retry(client.set, "/kept", b"by all")
    for each in (operator, client):
        each.stop()


@pytest.mark.skipif(SUBJECT != "ringkeeper", reason="Apache ZooKeeper closes the old port all the same")
def test_a_client_port_that_is_taken_is_opened_as_soon_as_it_is_free(members):
    leader = leader_of(members)
    moved = min(set(FIRST) - {leader})
    server, operator = members.servers[moved], members.client(leader, auth_data=SUPER)
    with socket.create_server(("127.0.0.1", 0)) as holder:
        now = holder.getsockname()[1]
        change(operator, joining=members.lines[moved].replace(f";127.0.0.1:{server.port}", f";127.0.0.1:{now}"))
        wait_until(lambda: "RK0214" in server.log(), "the server says that the port is taken")
        client = members.client(moved)
        client.create("/kept", b"")
        # It is tried again each second, and nobody waits for that.
        for _ in range(30):
            began = time.monotonic()
            client.set("/kept", b"meanwhile")
            assert time.monotonic() - began < 1
            time.sleep(0.1)
    wait_until(lambda: serves(now) and refuses("127.0.0.1", server.port), "it has moved")
    client.set("/kept", b"by a connection to the old port")
    # With the lines of before, it goes where the log says.
    server.kill()
    server.launch()
    wait_until(lambda: serves(now) and refuses("127.0.0.1", server.port), "it serves where it has moved")
    assert f"clientPort={now}" in four_letter_word(now, "conf")
    for each in (operator, client):
        each.stop()


@pytest.mark.skipif(SUBJECT != "ringkeeper", reason="Apache ZooKeeper does not say what is missing")
def test_a_joiner_whose_lines_lack_the_leader_says_which_line_to_add(members):
    leader = leader_of(members)
    follower = min(set(FIRST) - {leader})
    joiner = members.servers[4]
    lines = joiner.config_path.read_text().splitlines()
    lacking = [line for line in lines if line not in [members.lines[number] for number in set(FIRST) - {follower}]]
    joiner.config_path.write_text("\n".join([*lacking, ""]))
    joiner.launch()
    says = f"server {follower} follows server {leader}, which this server's configuration does not list: add its " \
        f"server.{leader} line"
    wait_until(lambda: says in joiner.log(), "it says so")
    assert says in four_letter_word(joiner.port, "srvr")
    assert "founds a new ensemble" not in four_letter_word(joiner.port, "srvr")


def test_a_change_is_refused_with_the_error_of_zookeeper(members):
    operator, anybody = members.client(*FIRST, auth_data=SUPER), members.client(*FIRST)
    version = int(operator.get("/zookeeper/config")[0].decode().split("=")[-1], 16)
    four, nobody = members.lines[4], {"joining": None, "leaving": None, "new_members": None}
    host, quorum, _, rest = four.split(":", 3)
    for client, error, words in [
        (operator, NewConfigNoQuorumError, {"joining": f"{four},{members.lines[5]}", "leaving": "1,2"}),
        (operator, BadVersionError, {"joining": four, "from_config": version + 1}),
        (operator, BadArgumentsError, {"joining": "some thing"}),
        (operator, BadArgumentsError, {"joining": four.split(";")[0]}),
        (operator, BadArgumentsError, {"joining": f"{host}:{quorum}:{quorum}:{rest}"}),
        (operator, BadArgumentsError, {"leaving": "1,2"}),
        (anybody, NoAuthError, {"leaving": "3"}),
        (anybody, BadVersionError, {"leaving": "3", "from_config": version + 1}),
        (anybody, BadArgumentsError, {"joining": "some thing"}),
    ]:
        with pytest.raises(error):
            client.reconfig(**{**nobody, **words})
    assert named(operator.get("/zookeeper/config")[0]) == list(FIRST)
    for client in (operator, anybody):
        client.stop()


@pytest.mark.skipif(SUBJECT == "zookeeper", reason="Apache ZooKeeper's leader leaves by an election")
def test_a_leader_that_is_removed_leads_no_more_and_its_clients_stay(members):
    leader = leader_of(members)
    operator, client = members.client(*FIRST, auth_data=SUPER), members.client(leader)
    lost = []
    client.add_listener(lost.append)
    change(operator, leaving=str(leader))
    client.create("/written", b"through the one that led", ephemeral=True)
    others = [number for number in FIRST if number != leader]
    deadline = time.monotonic() + 30
    while not any("Mode: leader" in four_letter_word(members.servers[number].port, "srvr") for number in others):
        assert time.monotonic() < deadline, "nobody leads"
        time.sleep(0.1)
    client.set("/written", b"and again")
    assert not lost
    for each in (operator, client):
        each.stop()


def lose_while_asked(operator, joiners, asked):
    """Has the joiners stand still, and asks for a change that needs them. The leader takes it as soon as it has seen
    that they have caught up."""
    for _ in range(100):
        for joiner in joiners:
            joiner.process.send_signal(signal.SIGSTOP)
        try:
            operator.reconfig(**asked)
        except NewConfigNoQuorumError:
            for joiner in joiners:
                joiner.process.send_signal(signal.SIGCONT)
            time.sleep(0.2)
        except ConnectionLoss:
            return
        else:
            pytest.fail("the change is made without the new voters")
    pytest.fail("the new voters do not catch up")


@pytest.mark.skipif(SUBJECT == "zookeeper", reason="Apache ZooKeeper waits for the new voters, and serves nobody")
def test_a_change_whose_new_voters_are_lost_is_given_up_and_can_be_made_later(members):
    leader = leader_of(members)
    others = ",".join(str(number) for number in FIRST if number != leader)
    operator = members.client(*FIRST, auth_data=SUPER)
    operator.create("/kept", b"before")
    joiners = [members.servers[number] for number in (4, 5)]
    start_together(joiners)
    for number in (4, 5):
        joiner = members.client(number)
        joiner.sync("/")
        assert joiner.get("/kept")[0] == b"before"
        joiner.stop()
    before = operator.get("/zookeeper/config")[0]
    asked = {"joining": f"{members.lines[4]},{members.lines[5]}", "leaving": others, "new_members": None}
    try:
        lose_while_asked(operator, joiners, asked)
        operator.retry(operator.set, "/kept", b"without them")
        assert operator.retry(operator.get, "/zookeeper/config")[0] == before
    finally:
        for joiner in joiners:
            joiner.process.send_signal(signal.SIGCONT)
    changed, _ = operator.retry(change, operator, **asked)
    assert named(changed) == [leader, 4, 5]
    operator.retry(operator.set, "/kept", b"with them")
    operator.stop()


@contextlib.contextmanager
def tracker(address):
    """Curator's client with its EnsembleTracker: a function that sends it a line and returns its answer."""
    program = ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath("curator"), HERE / "java" / "Tracker.java", address]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          bufsize=1) as client:

        def ask(line):
            client.stdin.write(line + "\n")
            return client.stdout.readline().rstrip()

        try:
            yield ask
        finally:
            client.kill()


def test_curators_tracker_follows_the_members_and_keeps_its_session(members):
    operator = members.client(*FIRST, auth_data=SUPER)

    def addresses(*numbers):
        return "knows " + ",".join(sorted(members.servers[number].address for number in numbers))

    # One server is all that it is told of.
    with tracker(members.servers[1].address) as ask:
        assert ask(addresses(*FIRST)) == addresses(*FIRST)
        session = ask("write by the first three")
        assert session.startswith("session ")
        start_together([members.servers[number] for number in (4, 5)])
        change(operator, joining=f"{members.lines[4]},{members.lines[5]}")
        assert ask(addresses(*ALL)) == addresses(*ALL)
        change(operator, leaving="1,2")
        assert ask(addresses(3, 4, 5)) == addresses(3, 4, 5)
        # It has to leave the server that it was told of, and then one that it has learned of first.
        for number in FIRST:
            members.servers[number].kill()
        assert ask("write by those that have joined") == session
    survivor = members.client(4, 5)
    assert survivor.get("/tracker")[0] == b"by those that have joined"
    for client in (operator, survivor):
        client.stop()
