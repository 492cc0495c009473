"""Logins by SASL with Kerberos: a KDC of our own on a loopback address, kazoo, ZooKeeper's own shell and its C client, and
tokens that are not what they should be."""

import base64
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import time

import kazoo.client
import kazoo.security
import kerberos
import pytest

import server as server_module
import test_c_client
from test_zkcli import shell

REALM, STRANGE_REALM = "RINGKEEPER.TEST", "STRANGE.TEST"
SERVICE = "zookeeper/localhost"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true useTicketCache=false"
# A ticket is refused when it was made so long ago; Java's and MIT's libraries read it from krb5.conf.
SKEW_S = 6


class Kdc:
    """A realm with its KDC, its own folder and its own port."""

    def __init__(self, realm, principals):
        self.realm, self.port = realm, server_module.free_port()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringkeeper-kdc-"))
        self.krb5_conf = self.folder / "krb5.conf"
        self.krb5_conf.write_text(f"""
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    clockskew = {SKEW_S}
    udp_preference_limit = 1
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{self.port}
    }}
""")
        (self.folder / "kdc.conf").write_text(f"""
[kdcdefaults]
    kdc_listen = 127.0.0.1:{self.port}
    kdc_tcp_listen = 127.0.0.1:{self.port}
[realms]
    {realm} = {{
        database_name = {self.folder}/principal
        key_stash_file = {self.folder}/stash
        acl_file = {self.folder}/acl
    }}
[logging]
    kdc = FILE:{self.folder}/kdc.log
""")
        self.environment = {**os.environ, "KRB5_CONFIG": str(self.krb5_conf),
                            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
                            "KRB5RCACHEDIR": str(self.folder)}
        self.run("kdb5_util", "create", "-s", "-P", "master", "-r", realm)
        for principal in principals:
            self.run("kadmin.local", "-q", f"addprinc -randkey {principal}@{realm}")
            self.keytab(principal)
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(["krb5kdc", "-n"], env=self.environment, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError("the KDC does not answer")

    def stop(self):
        self.process.kill()
        self.process.wait()

    def remove(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *arguments):
        subprocess.run(arguments, env=self.environment, check=True, capture_output=True, timeout=60)

    def keytab(self, principal):
        """The file with the keys of a principal."""
        path = self.folder / (principal.replace("/", "-") + ".keytab")
        if not path.exists():
            self.run("kadmin.local", "-q", f"ktadd -norandkey -k {path} {principal}@{self.realm}")
        return path

    def log_in(self, principal):
        """Makes `principal` who this process is for Kerberos."""
        cache = self.folder / (principal.replace("/", "-") + ".cache")
        self.run("kinit", "-c", cache, "-k", "-t", self.keytab(principal), f"{principal}@{self.realm}")
        os.environ.update({"KRB5_CONFIG": str(self.krb5_conf), "KRB5CCNAME": str(cache)})

    def java(self):
        return [f"-Djava.security.krb5.conf={self.krb5_conf}"]


@pytest.fixture(scope="module")
def kdcs():
    """The realm of the servers, and another one with the same names."""
    before = dict(os.environ)
    names = [SERVICE, "other/localhost", "alice", "bob", "bob/host", "root"]
    kdcs = [Kdc(REALM, names), Kdc(STRANGE_REALM, names)]
    yield kdcs
    for kdc in kdcs:
        kdc.remove()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def start(start, kdcs, tmp_path):
    """A function that starts a server to which principals of the first realm can log in; `root` is a super user."""
    own, _ = kdcs

    def start_server(**config):
        jaas_file = tmp_path / "jaas.conf"
        jaas_file.write_text(f'Server {{ {MODULE} keyTab="{own.keytab(SERVICE)}" principal="{SERVICE}@{REALM}"; }};')
        jaas_file.chmod(0o600)
        os.environ.update({"KRB5_CONFIG": str(own.krb5_conf), "KRB5RCACHEDIR": str(own.folder)})
        # ringkeeper reads the line, Apache ZooKeeper the property.
        properties = [f"-Djava.security.auth.login.config={jaas_file}", *own.java()]
        return start(**{"java_properties": properties, "java.security.auth.login.config": jaas_file,
                        "superUser": f"root@{REALM}",
                        "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider", **config})

    return start_server


def kazoo_identities(server):
    """What the server calls a client of kazoo with the tickets of this process."""
    # kazoo names the service by the host that it connects to.
    client = kazoo.client.KazooClient(hosts=f"localhost:{server.port}", timeout=10,
                                      sasl_options={"mechanism": "GSSAPI", "service": "zookeeper"})
    client.start(15)
    path = client.create("/who-", b"", acl=[kazoo.security.make_acl("auth", "", all=True)], sequence=True)
    identities = [acl.id.id for acl in client.get_acls(path)[0]]
    client.delete(path)
    client.stop()
    return identities


def java_identities(server, kdc, principal, tmp_path):
    """What the server calls ZooKeeper's shell with the keytab of a principal."""
    client_file = tmp_path / "client.conf"
    client_file.write_text(f'Client {{ {MODULE} keyTab="{kdc.keytab(principal)}" principal="{principal}@{REALM}"; }};')
    printed = shell(server.address, "whoami\n", "lib",
                    [f"-Djava.security.auth.login.config={client_file}", *kdc.java(),
                     f"-Dzookeeper.server.principal={SERVICE}@{REALM}"])
    return re.findall(r"^sasl: (\S*)", printed, re.MULTILINE)


RULES = "RULE:[2:$1-$2](bob-.*)s/-/_/ RULE:[1:$1@$0](al.*@RINGKEEPER.TEST)s/^(a)(.*)@.*/$2$1/ DEFAULT"


@pytest.mark.parametrize("config, users", [
    ({}, {"alice": f"alice@{REALM}", "bob/host": f"bob/host@{REALM}"}),
    ({"kerberos.removeHostFromPrincipal": "true", "kerberos.removeRealmFromPrincipal": "true"},
     {"alice": "alice", "bob/host": "bob"}),
    ({"security.auth_to_local": RULES, "kerberos.removeRealmFromPrincipal": "true"},
     {"alice": "licea", "bob/host": "bob_host/host", "bob": "bob"}),
    # No rule applies to alice, who is the user's name then.
    ({"security.auth_to_local": "RULE:[2:$1]", "kerberos.removeRealmFromPrincipal": "true"},
     {"alice": f"alice@{REALM}", "bob/host": "bob/host"}),
])
def test_a_principal_becomes_a_user_by_the_operators_rules(start, kdcs, tmp_path, config, users):
    own, _ = kdcs
    server = start(sessionRequireClientSASLAuth="true", **config)
    for principal, user in users.items():
        own.log_in(principal)
        assert kazoo_identities(server) == [user]
        assert java_identities(server, own, principal, tmp_path) == [user]


def test_acls_and_super_users_are_by_the_users_name(start, kdcs):
    own, _ = kdcs
    server = start()
    clients = {}
    for principal in ("alice", "bob", "root"):
        own.log_in(principal)
        clients[principal] = kazoo.client.KazooClient(hosts=f"localhost:{server.port}", timeout=10,
                                                      sasl_options={"mechanism": "GSSAPI", "service": "zookeeper"})
        clients[principal].start(15)
    clients["alice"].create("/mine", b"1", acl=[kazoo.security.make_acl("sasl", f"alice@{REALM}", all=True)])
    assert (clients["alice"].get("/mine")[0], clients["root"].get("/mine")[0]) == (b"1", b"1")
    with pytest.raises(kazoo.exceptions.NoAuthError):
        clients["bob"].get("/mine")
    for client in clients.values():
        client.stop()


def test_the_c_client_logs_in_as_itself(start, kdcs):
    own, _ = kdcs
    own.log_in("alice")
    server = start(sessionRequireClientSASLAuth="true")
    client = kazoo.client.KazooClient(hosts=f"localhost:{server.port}", timeout=10,
                                      sasl_options={"mechanism": "GSSAPI", "service": "zookeeper"})
    client.start(15)
    client.create("/mine", b"of alice", acl=[kazoo.security.make_acl("sasl", f"alice@{REALM}", all=True)])
    client.stop()

    def read(*user):
        return test_c_client.shell(server, "GSSAPI", "get /mine", "-o", "localhost", "-z", "zookeeper", *user)

    # Whom it acts for is nobody, its name in the realm, or its principal.
    for user in ((), ("-u", "alice"), ("-u", f"alice@{REALM}")):
        assert "of alice" in read(*user), user
    own.log_in("bob")
    assert "rc = -102" in read()


class RawClient:
    """A session without a login."""

    def __init__(self, server):
        self.connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        self.exchange(struct.pack(">iqiqi16s?", 0, 0, 30_000, 0, 16, bytes(16), False))

    def exchange(self, frame):
        self.connection.sendall(struct.pack(">i", len(frame)) + frame)
        return self.read(struct.unpack(">i", self.read(4))[0])

    def read(self, count):
        read = bytearray()
        while len(read) < count:
            chunk = self.connection.recv(count - len(read))
            if not chunk:
                raise EOFError
            read += chunk
        return bytes(read)

    def sasl(self, token):
        """The error code and the token of the answer to a token; no token is None."""
        answer = self.exchange(struct.pack(">iii", 7, 102, len(token)) + token)
        xid, zxid, error, length = struct.unpack(">iqii", answer[:20])
        assert (xid, zxid) == (7, 0)
        return error, None if length < 0 else answer[20:]

    def is_closed(self):
        try:
            return self.connection.recv(1) == b""
        except ConnectionError:
            return True


def ticket(service="zookeeper@localhost"):
    """A client's side of the login, and its first token."""
    _, context = kerberos.authGSSClientInit(service)
    kerberos.authGSSClientStep(context, "")
    return context, base64.b64decode(kerberos.authGSSClientResponse(context))


def continue_with(context, token):
    kerberos.authGSSClientStep(context, base64.b64encode(token).decode())
    return base64.b64decode(kerberos.authGSSClientResponse(context) or "")


def choice(context, offer, text):
    """The client's signed answer to the offer of layers."""
    kerberos.authGSSClientUnwrap(context, base64.b64encode(offer).decode())
    kerberos.authGSSClientWrap(context, base64.b64encode(text).decode())
    return base64.b64decode(kerberos.authGSSClientResponse(context))


AUTH_FAILED = -115


def test_tokens_are_answered_as_zookeeper_does(start, kdcs):
    own, strange = kdcs
    server = start()
    own.log_in("alice")

    def log_in(token, text):
        """The answers of a whole login that ends with `text`."""
        context, first = token
        client = RawClient(server)
        error, answer = client.sasl(first)
        assert error == 0
        assert continue_with(context, answer) == b""
        error, offer = client.sasl(b"")
        assert error == 0
        return client.sasl(choice(context, offer, text)), client

    replayed = ticket()
    stale, other = ticket(), ticket("other@localhost")
    (last, client) = log_in(replayed, b"\x01\0\0\0" + f"alice@{REALM}".encode())
    assert last == (0, None)
    # A second login on one connection.
    assert client.sasl(ticket()[1]) == (AUTH_FAILED, None) and client.is_closed()
    # A layer that was not offered.
    (last, client) = log_in(ticket(), b"\x02\0\0\0")
    assert last == (AUTH_FAILED, None) and client.is_closed()
    strange.log_in("alice")
    foreign = ticket()
    time.sleep(SKEW_S + 2)
    for token in (stale[1], other[1], foreign[1], replayed[1], b"nonsense", stale[1][:-1]):
        client = RawClient(server)
        assert client.sasl(token) == (AUTH_FAILED, None)
        assert client.is_closed()


@pytest.mark.skipif(server_module.SUBJECT != "ringkeeper", reason="Apache ZooKeeper takes the name that is asked for, and "
                                                                  "Kerberos alone")
def test_what_is_stricter_or_wider_than_zookeeper(start, kdcs, tmp_path):
    own, _ = kdcs
    own.log_in("alice")
    server = start()
    context, first = ticket()
    client = RawClient(server)
    continue_with(context, client.sasl(first)[1])
    assert client.sasl(choice(context, client.sasl(b"")[1], b"\x01\0\0\0root")) == (AUTH_FAILED, None)
    # A ticket once more, in time.
    client = RawClient(server)
    assert client.sasl(first) == (AUTH_FAILED, None)
    assert "Request is a replay" in server.log()

    # The keys are replaced while the server runs.
    keytab = own.keytab(SERVICE)
    keytab.unlink()
    own.run("kadmin.local", "-q", f"ktadd -k {keytab} {SERVICE}@{REALM}")
    own.log_in("alice")
    assert kazoo_identities(server) == [f"alice@{REALM}"]

    jaas = tmp_path / "jaas.conf"
    jaas.write_text(jaas.read_text().replace(SERVICE, "nobody/localhost"))
    done = subprocess.run([server_module.BINARY, "server", "--config", server.config_path, "--client-port",
                           str(server_module.free_port()), "--data-dir", tmp_path / "data"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 78 and "cannot accept logins with" in done.stderr, done.stderr
