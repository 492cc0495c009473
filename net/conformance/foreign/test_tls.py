"""TLS on the client port, with OpenSSL's client, kazoo and ZooKeeper's own shell."""

import contextlib
import subprocess

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
