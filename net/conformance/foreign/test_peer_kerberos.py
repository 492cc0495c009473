"""Kerberos between servers (`quorum.auth.*`): a KDC of our own, and three servers with names and keytabs, on Apache
ZooKeeper and on ringkeeper alike where they do the same."""

import contextlib
import os
import pathlib
import time

import pytest
from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

import server as server_module
from certificates import Authority
from server import SUBJECT, Server, four_letter_word, free_port, start_together
from test_kerberos import MODULE, REALM, Kdc

NUMBERS = (1, 2, 3)
DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule required"
PASSWORD = {"QuorumServer": f'{DIGEST} user_zk="a password";',
            "QuorumLearner": f'{DIGEST} username="zk" password="a password";'}
REQUIRED = {"quorum.auth.enableSasl": "true", "quorum.auth.learnerRequireSasl": "true",
            "quorum.auth.serverRequireSasl": "true"}

only_ringkeeper = pytest.mark.skipif(SUBJECT != "ringkeeper", reason="of ringkeeper's own log")


@pytest.fixture
def kdc():
    before = dict(os.environ)
    names = [f"{service}/zoo{number}" for service in ("zkquorum", "learner") for number in (*NUMBERS, 9)]
    kdc = Kdc(REALM, [*names, "HTTP/zoo3"])
    os.environ.update({"KRB5_CONFIG": str(kdc.krb5_conf), "KRB5RCACHEDIR": str(kdc.folder)})
    yield kdc
    kdc.remove()
    os.environ.clear()
    os.environ.update(before)


def keytab(kdc, principal):
    return f'{MODULE} keyTab="{kdc.keytab(principal)}" principal="{principal}@{REALM}";'


class Members:
    """Three servers whose names are known to them alone."""

    def __init__(self, kdc, folder):
        self.kdc, self.folder = kdc, pathlib.Path(folder)
        hosts = self.folder / "hosts"
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"127.0.0.1{n} zoo{n}\n" for n in NUMBERS))
        lines = {f"server.{n}": f"zoo{n}:{free_port()}:{free_port()}" for n in NUMBERS}
        self.servers = {}
        for number in NUMBERS:
            jaas = self.folder / f"jaas{number}.conf"
            # ringkeeper reads the line, Apache ZooKeeper the property.
            settings = {"java_properties": [f"-Djava.security.auth.login.config={jaas}", *kdc.java(),
                                            "-Dzookeeper.fips-mode=false"],
                        "java.security.auth.login.config": jaas, "initLimit": "10", "syncLimit": "5",
                        "quorum.auth.kerberos.servicePrincipal": "zkquorum/_HOST",
                        "clientPortAddress": "127.0.0.1", **REQUIRED, **lines}
            server = Server(**settings)
            server.launcher = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"',
                               str(hosts)]
            (server.data_dir / "myid").write_text(f"{number}\n")
            self.servers[number] = server
            self.log_in(number)

    def log_in(self, number, accepts=None, dials=None):
        """Says by which login modules a server accepts and dials others, which is by keytabs of its own."""
        accepts = accepts or keytab(self.kdc, f"zkquorum/zoo{number}")
        dials = dials or keytab(self.kdc, f"learner/zoo{number}")
        jaas = self.folder / f"jaas{number}.conf"
        jaas.write_text(f"QuorumServer {{ {accepts} }};\nQuorumLearner {{ {dials} }};\n")
        jaas.chmod(0o600)

    def start(self, *numbers):
        start_together([self.servers[number] for number in numbers or NUMBERS])

    def restart(self, number):
        self.servers[number].stop()
        self.servers[number].start()

    def leader(self):
        return next(number for number, server in self.servers.items() if is_leader(server))

    def logs(self, number, text):
        """Waits until the log of a server has a line with this."""
        until(lambda: text in self.servers[number].log(), f"{text!r} in the log of server {number}")

    def follows(self, number):
        """Waits until a server serves."""
        until(lambda: "Mode: " in four_letter_word(self.servers[number].port, "srvr"), f"server {number} serves")

    @contextlib.contextmanager
    def client(self, *numbers):
        hosts = ",".join(self.servers[number].address for number in numbers or NUMBERS)
        retry = {"max_tries": -1, "max_delay": 1, "ignore_expire": False}
        client = KazooClient(hosts, timeout=20, connection_retry=retry, command_retry=retry)
        client.start(30)
        try:
            yield client
        finally:
            client.stop()
            client.close()


@pytest.fixture
def members(kdc, tmp_path):
    members = Members(kdc, tmp_path)
    yield members
    for server in members.servers.values():
        server.remove()


def is_leader(server):
    return server.process is not None and "Mode: leader" in four_letter_word(server.port, "srvr")


def until(holds, what):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if holds():
                return
        time.sleep(0.1)
    raise AssertionError(f"not within a minute: {what}")


def write(client, path):
    """Creates a znode, whatever becomes of the connection meanwhile."""
    retry = KazooRetry(max_tries=-1, max_delay=1, deadline=60)
    retry(client.ensure_path, path)


def test_an_ensemble_forms_and_survives_the_end_of_its_leader(members):
    members.start()
    with members.client() as client:
        write(client, "/before")
        leader = members.leader()
        members.servers[leader].kill()
        write(client, "/after")
        members.servers[leader].start()
        members.follows(leader)
        with members.client(leader) as behind:
            assert behind.exists("/before") and behind.sync("/") == "/" and behind.exists("/after")


def test_a_keytab_of_another_host_lets_nobody_in(members, kdc):
    members.log_in(3, dials=keytab(kdc, "learner/zoo9"))
    go_on_without_the_third(members)
    if SUBJECT == "ringkeeper":
        members.logs(1, f"learner/zoo9@{REALM} cannot be server 3, whose principal is learner/zoo3@{REALM}")
        members.logs(3, f"it refuses the ticket of learner/zoo9@{REALM}")


def go_on_without_the_third(members):
    """Starts all servers, of which the third is not let in."""
    members.start(1, 2)
    with members.client(1, 2) as client:
        with pytest.raises(RuntimeError, match="does not serve"):
            start_for(members.servers[3], 8)
        write(client, "/without")


def start_for(server, seconds):
    """Starts a server that has so long to serve."""
    before, server_module.START_TIMEOUT_S = server_module.START_TIMEOUT_S, seconds
    try:
        server.start()
    finally:
        server_module.START_TIMEOUT_S = before


@only_ringkeeper
def test_another_service_of_a_members_host_is_no_member(members, kdc):
    members.log_in(3, dials=keytab(kdc, "HTTP/zoo3"))
    go_on_without_the_third(members)
    members.logs(1, f"HTTP/zoo3@{REALM} cannot be server 3")


def test_keys_that_the_kdc_does_not_know_let_nobody_in(members, kdc):
    kdc.run("kadmin.local", "-q", f"cpw -randkey learner/zoo3@{REALM}")
    go_on_without_the_third(members)
    if SUBJECT == "ringkeeper":
        members.logs(3, 'code="RK0309"')
        members.logs(3, f"learner/zoo3@{REALM} for zkquorum/zoo1@{REALM}: ")
        assert "for zkquorum/zoo1" not in members.servers[2].log()


@only_ringkeeper
def test_without_a_kdc_links_stand_and_come_back_and_new_ones_are_tried_until_it_is_there(members, kdc):
    members.start()
    with members.client() as client:
        write(client, "/before")
        kdc.stop()
        write(client, "/without")
        # The others dial it, and have their tickets.
        members.servers[1].kill()
        members.servers[1].start()
        write(client, "/again")
        # It dials the others, and has none.
        members.servers[3].kill()
        with pytest.raises(RuntimeError, match="does not serve"):
            start_for(members.servers[3], 8)
        members.logs(3, "Cannot contact any KDC")
        write(client, "/two")
        kdc.start()
        members.follows(3)
        with members.client(3) as behind:
            behind.sync("/")
            assert behind.exists("/two")


@only_ringkeeper
def test_replaced_keys_count_from_the_next_connection_on(members, kdc):
    members.start()
    with members.client() as client:
        write(client, "/before")
        members.servers[1].kill()
        replaced = kdc.keytab("zkquorum/zoo1")
        replaced.unlink()
        kdc.run("kadmin.local", "-q", f"ktadd -k {replaced} zkquorum/zoo1@{REALM}")
        members.servers[1].start()
        members.logs(1, "shows a ticket that is refused")
        with members.client(1) as behind:
            assert behind.exists("/before")
        write(client, "/after")


@only_ringkeeper
def test_a_running_ensemble_moves_from_passwords_to_kerberos(members, kdc):
    rounds = [
        lambda number: (PASSWORD["QuorumServer"] + keytab(kdc, f"zkquorum/zoo{number}"), PASSWORD["QuorumLearner"]),
        lambda number: (PASSWORD["QuorumServer"] + keytab(kdc, f"zkquorum/zoo{number}"), None),
        lambda number: (None, None),
    ]
    for number in NUMBERS:
        members.log_in(number, PASSWORD["QuorumServer"], PASSWORD["QuorumLearner"])
    members.start()
    with members.client() as client:
        for step, modules in enumerate(rounds):
            for number in NUMBERS:
                members.log_in(number, *modules(number))
                members.restart(number)
                write(client, f"/{step}-{number}")
        assert len(client.get_children("/")) == len(rounds) * len(NUMBERS) + 1
        # Who has the password alone stays out.
        members.servers[3].stop()
        members.log_in(3, dials=PASSWORD["QuorumLearner"])
        with pytest.raises(RuntimeError, match="does not serve"):
            start_for(members.servers[3], 8)
        members.logs(1, "it shows no ticket of Kerberos")


@only_ringkeeper
def test_certificates_and_tickets_are_demanded_together(members, kdc, tmp_path):
    authority = Authority(tmp_path)
    certificates = {number: authority.issue(f"zoo{number}", host=f"zoo{number}") for number in NUMBERS}
    for number, server in members.servers.items():
        with server.config_path.open("a") as config:
            config.write(f"sslQuorum=true\nssl.quorum.trustStore.location={authority.certificate}\n"
                         f"ssl.quorum.keyStore.location={certificates[number]}\n")
    members.start()
    with members.client() as client:
        write(client, "/both")
        members.servers[3].stop()
        members.log_in(3, dials=keytab(kdc, "learner/zoo9"))
        with pytest.raises(RuntimeError, match="does not serve"):
            start_for(members.servers[3], 8)
        members.logs(1, f"learner/zoo9@{REALM} cannot be server 3")


@only_ringkeeper
@pytest.mark.parametrize("change, reason", [
    ({"dials": ("zkquorum/zoo1", "learner/zoo1")}, "cannot get tickets with"),
    ({"accepts": ("learner/zoo1", "zkquorum/zoo1")}, "cannot accept logins with"),
])
def test_a_keytab_without_the_principal_stops_the_start(members, kdc, change, reason):
    ((role, (file, principal)),) = change.items()
    members.log_in(1, **{role: keytab(kdc, file).replace(f"{file}@", f"{principal}@")})
    with pytest.raises(RuntimeError, match="does not serve"):
        members.servers[1].start()
    log = members.servers[1].log()
    assert f"{principal} {reason}" in log or f"{principal}@{REALM} {reason}" in log, log
