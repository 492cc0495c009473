"""TLS on the client port, with OpenSSL's client, kazoo and ZooKeeper's own shell."""

import collections
import concurrent.futures
import contextlib
import os
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from kazoo.client import KazooClient
from kazoo.exceptions import InvalidACLError, NoAuthError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import ACL, Id, make_acl

import server as server_module
from certificates import DAY, NOW, Authority
from test_zkcli import shell

WAIT_S = 30

# Of the flood; ten times as many are for a run by hand.
HANDSHAKES = int(os.environ.get("HANDSHAKES", "1000"))


class Secured:
    """A server with a secure port, and the authority that it trusts."""

    def __init__(self, start, authority, **config):
        self.authority = authority
        self.port = server_module.free_port()
        self.server = start(**{
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "secureClientPort": self.port,
            "ssl.keyStore.location": self.authority.issue("server"),
            "ssl.trustStore.location": self.authority.certificate,
            **config,
        })

    @contextlib.contextmanager
    def kazoo(self, certificate):
        """A session of kazoo's with TLS."""
        files = {"certfile": str(certificate), "keyfile": str(certificate)} if certificate else {}
        client = KazooClient(f"127.0.0.1:{self.port}", use_ssl=True, ca=str(self.authority.certificate), **files)
        try:
            client.start(timeout=WAIT_S if certificate else 3)
            yield client
        finally:
            client.stop()
            client.close()

    def openssl(self, *arguments, certificate=None):
        """What the server answers to `ruok` through OpenSSL's client; nothing if it refuses."""
        shown = ["-cert", certificate, "-key", certificate] if certificate else []
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{self.port}", "-CAfile", self.authority.certificate,
                   "-verify_return_error", "-quiet", *shown, *arguments]
        result = subprocess.run([str(word) for word in command], input="ruok", stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, timeout=WAIT_S, check=False)
        return result.stdout


@pytest.fixture
def secured(start, tmp_path):
    """A function that starts a server with a secure port and further settings."""
    return lambda authority=None, **config: Secured(start, authority or Authority(tmp_path), **config)


def test_kazoo_speaks_tls(secured):
    service = secured()
    with service.kazoo(service.authority.issue("client")) as client:
        client.create("/a", b"x" * 500_000)
        requests = [client.get_async("/a") for _ in range(50)]
        assert all(request.get(timeout=WAIT_S)[0] == b"x" * 500_000 for request in requests)
    with pytest.raises(KazooTimeoutError), service.kazoo(None):
        pass


def test_openssl_is_served_or_refused_as_it_should(secured):
    service = secured()
    authority = service.authority
    good = authority.issue("client")
    other = Authority(authority.folder, "other ca")
    assert service.openssl(certificate=good) == "imok"
    assert service.openssl("-verify_ip", "127.0.0.1", certificate=good) == "imok"
    refused = {
        "no certificate": service.openssl(),
        "of another authority": service.openssl(certificate=other.issue("client")),
        "expired": service.openssl(certificate=authority.issue("client", NOW - DAY)),
        "TLS 1.2, while 1.3 alone is offered": service.openssl("-tls1_2", certificate=good),
        "TLS 1.1": service.openssl("-tls1_1", "-cipher", "ALL:@SECLEVEL=0", certificate=good),
        "the server has another name": service.openssl("-verify_hostname", "zoo.example", certificate=good),
    }
    assert {reason for reason, answer in refused.items() if answer} == set()


@pytest.mark.parametrize("kind, extension", [("JKS", "jks"), ("PKCS12", "p12"), ("PKCS12", "store"), ("JKS", "p12")])
def test_stores_of_keytool_are_opened_by_type_or_extension(secured, tmp_path, kind, extension):
    authority = Authority(tmp_path)
    key_store, trust_store = authority.keytools_stores(authority.issue("server"), kind, "geheim1", extension)
    (tmp_path / "password").write_text("geheim1\n")
    usual = {"JKS": "jks", "PKCS12": "p12"}[kind]
    types = {} if extension == usual else {"ssl.keyStore.type": kind, "ssl.trustStore.type": kind}
    service = secured(authority, **{
        "ssl.keyStore.location": key_store, "ssl.keyStore.password": "geheim1",
        "ssl.trustStore.location": trust_store, "ssl.trustStore.passwordPath": tmp_path / "password", **types})
    with service.kazoo(authority.issue("client")) as client:
        client.create("/a")
    assert service.openssl(certificate=Authority(tmp_path, "other ca").issue("client")) == ""


def test_versions_and_suites_are_those_that_are_named(secured):
    service = secured(**{"ssl.enabledProtocols": "TLSv1.2", "ssl.clientAuth": "none",
                         "ssl.ciphersuites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"})
    assert service.openssl() == "imok"
    assert service.openssl("-tls1_3") == ""
    assert service.openssl("-cipher", "ECDHE-RSA-AES256-GCM-SHA384") == "imok"
    assert service.openssl("-cipher", "ECDHE-RSA-AES128-GCM-SHA256") == ""


def test_a_certificates_subject_is_an_identity_as_java_prints_it(secured):
    attributes = [(NameOID.COUNTRY_NAME, "US"), (NameOID.ORGANIZATION_NAME, "Acme, Inc."), (NameOID.USER_ID, "u1"),
                  (NameOID.SERIAL_NUMBER, "77"), (NameOID.EMAIL_ADDRESS, "a@b.c"), (NameOID.COMMON_NAME, " client #1=")]
    subject = x509.Name([x509.NameAttribute(kind, value) for kind, value in attributes])
    printed = (r"CN=\ client \#1\=,1.2.840.113549.1.9.1=#16056140622e63,2.5.4.5=#13023737,UID=u1,"
               r"O=Acme\, Inc.,C=US")
    service = secured(**{"X509AuthenticationProvider.superUser": "CN=root"})
    issue = service.authority.issue
    with service.kazoo(issue(subject)) as client:
        client.create("/auth", acl=[ACL(31, Id("auth", ""))])
        assert client.get_acls("/auth")[0] == [ACL(31, Id("x509", printed))]
        client.create("/named", acl=[make_acl("x509", printed, all=True)])
        client.get("/named")
        with pytest.raises(InvalidACLError):
            client.create("/wrong", acl=[make_acl("x509", "client", all=True)])
    with service.kazoo(issue("other")) as other, pytest.raises(NoAuthError):
        other.get("/named")
    with service.kazoo(issue("root")) as root:
        root.get("/named")


def test_zookeepers_shell_speaks_tls(secured):
    service = secured()
    properties = {
        "client.secure": "true",
        "clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "ssl.keyStore.location": service.authority.issue("client"),
        "ssl.trustStore.location": service.authority.certificate,
    }
    output = shell(f"localhost:{service.port}", "create /a one\nget /a\n", "lib",
                   [f"-Dzookeeper.{key}={value}" for key, value in properties.items()])
    assert "Created /a" in output and "\none\n" in output, output


@pytest.mark.parametrize("subject", ["ringkeeper", "zookeeper"])
def test_ringkeepers_shell_speaks_tls(secured, tmp_path, subject):
    service = secured(subject=subject)
    stores = service.authority.keytools_stores(service.authority.issue("client"), "PKCS12", "geheim1", "p12")
    (tmp_path / "password").write_text("geheim1\n")

    def run(*words, **environment):
        command = [server_module.BINARY, "shell", "-s", f"127.0.0.1:{service.port}", "--connect-timeout", "5000",
                   *words]
        return subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True,
                              timeout=WAIT_S, check=False)

    options = ["--tls-trust-store", stores[1], "--tls-key-store", stores[0],
               "--tls-password-file", tmp_path / "password"]
    assert run(*options, "create", "/a", "one", "auth::cdrwa").returncode == 0
    environment = {"RINGKEEPER_TLS_TRUST_STORE": str(service.authority.certificate),
                   "RINGKEEPER_TLS_KEY_STORE": str(service.authority.issue("client"))}
    assert run("get", "/a", **environment).stdout == "one\n"
    other = Authority(tmp_path, "other ca")
    refused = run("--tls-trust-store", other.certificate, "get", "/a")
    assert refused.returncode == 3 and "the trust store has no authority" in refused.stderr, refused.stderr


ours = pytest.mark.skipif(server_module.SUBJECT != "ringkeeper", reason="its log and its settings")


@contextlib.contextmanager
def pinging(port):
    """A session in the clear that pings without a pause; prints how long it waited at most."""
    session = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
    session.sendall(struct.pack(">iiqiqi16s?", 45, 0, 0, 60_000, 0, 16, bytes(16), False))
    assert session.recv(4096)
    ended, waits = threading.Event(), []

    def ping():
        while not ended.is_set():
            before = time.monotonic()
            session.sendall(struct.pack(">iii", 8, -2, 11))
            assert session.recv(4096), "the session was closed"
            waits.append(time.monotonic() - before)
            time.sleep(0.001)

    with session, concurrent.futures.ThreadPoolExecutor(1) as thread:
        pings = thread.submit(ping)
        try:
            yield
        finally:
            ended.set()
            pings.result()
            print(f"{len(waits)} pings beside it, the longest took {max(waits) * 1000:.0f} ms")


@ours
def test_whoever_is_refused_is_named_with_the_reason(secured, tmp_path):
    authority = Authority(tmp_path)
    bad = authority.issue("bad")
    authority.revoke([bad], tmp_path / "crl.pem")
    service = secured(authority, **{"ssl.crl": "true", "ringkeeper.ssl.crlFile": tmp_path / "crl.pem",
                                    "ssl.enabledProtocols": "TLSv1.3"})
    good, other = authority.issue("client"), Authority(tmp_path, "other ca")

    def send(port, data):
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection:
            connection.sendall(data)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(4096):
                    pass

    attempts = [
        (lambda: service.openssl(), "give the client a certificate"),
        (lambda: service.openssl("-tls1_1", "-cipher", "ALL:@SECLEVEL=0", certificate=good), "ssl.enabledProtocols"),
        (lambda: service.openssl("-tls1_2", certificate=good), "ssl.enabledProtocols"),
        (lambda: service.openssl(certificate=authority.issue("client", NOW - DAY)), "needs a new certificate"),
        (lambda: service.openssl(certificate=bad), "ringkeeper.ssl.crlFile lists the client's certificate"),
        (lambda: service.openssl(certificate=other.issue("client")), "issuer of the client's certificate"),
        (lambda: service.openssl(certificate=other.own), "the client shows an authority's certificate"),
        (lambda: service.openssl("-CAfile", other.certificate, certificate=good), "does not trust the certificate"),
        (lambda: send(service.port, b"ruok"), "does not speak TLS"),
        (lambda: send(service.port, b"\x16\x03\x01\x00\x05hello"), "TLS"),
        (lambda: send(service.server.port, bytes.fromhex("160301010001")), "client.portUnification=true"),
    ]
    with pinging(service.server.port):
        for attempt, reason in attempts:
            before, deadline = len(service.server.log()), time.monotonic() + WAIT_S
            # The log takes ten such lines at once, then one a second.
            while reason not in service.server.log()[before:]:
                assert time.monotonic() < deadline, reason
                assert not attempt(), reason
                time.sleep(0.1)
    assert service.openssl(certificate=good) == "imok"


def client_hello():
    """What a client sends first."""
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    return sent.read()


@ours
def test_half_handshakes_hold_up_nobody_and_end(secured):
    service = secured()
    client, hello = service.authority.issue("client"), client_hello()
    with pinging(service.server.port), contextlib.ExitStack() as stack:
        halves = []
        for number in range(500):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=WAIT_S))
            half.sendall([hello[:0], hello[:1], hello[:4], hello[:200], hello][number % 5])
            halves.append(half)
        assert service.openssl(certificate=client) == "imok"
        for half in halves:
            with contextlib.suppress(ConnectionResetError):
                while half.recv(4096):
                    pass
    assert "the handshake took more than 10 s" in service.server.log()
    assert "zk_unsuccessful_handshake\t500\n" in server_module.four_letter_word(service.server.port, "mntr")


@ours
def test_a_connection_is_not_negotiated_anew(secured):
    service = secured(**{"ssl.enabledProtocols": "TLSv1.2", "ssl.clientAuth": "none"})
    with subprocess.Popen(["openssl", "s_client", "-connect", f"127.0.0.1:{service.port}", "-tls1_2"], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as client:
        client.stdin.write("R\n")
        client.stdin.flush()
        output = client.communicate(timeout=WAIT_S)[0]
    assert "RENEGOTIATING" in output and "no renegotiation" in output, output


@ours
def test_a_flood_of_handshakes_is_served_beside_others(secured):
    service = secured()
    certificate = service.authority.issue("client")
    context = ssl.create_default_context(cafile=service.authority.certificate)
    context.load_cert_chain(certificate)

    def shake_hands(_):
        with socket.create_connection(("127.0.0.1", service.port), timeout=WAIT_S) as connection:
            with context.wrap_socket(connection, server_hostname="localhost") as secure:
                secure.sendall(b"ruok")
                return secure.recv(4)

    with pinging(service.server.port), concurrent.futures.ThreadPoolExecutor(200) as threads:
        answers = collections.Counter(threads.map(shake_hands, range(HANDSHAKES)))
    assert answers == {b"imok": HANDSHAKES}
