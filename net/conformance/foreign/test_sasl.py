"""Logins by SASL with DIGEST-MD5: kazoo, ZooKeeper's own shell and its C client, with a server that has a JAAS file."""

import os
import subprocess

import kazoo.client
import kazoo.exceptions
import kazoo.security
import pytest
from kazoo.handlers.threading import KazooTimeoutError

import server as server_module
import test_c_client
from test_zkcli import shell

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"
USERS = {"alice": "pw of alice", "m\u00fcller": "p\u00e4ss", "root": "pw of root"}


@pytest.fixture
def start(start, tmp_path):
    """A function that starts a server on which USERS can log in; `root` is a super user."""
    jaas_file = tmp_path / "jaas.conf"
    users = " ".join(f'"user_{name}"="{password}"' for name, password in USERS.items())
    jaas_file.write_text(f"/* users */ Server {{ {MODULE} {users}; }};")
    jaas_file.chmod(0o600)
    # ringkeeper reads the line, Apache ZooKeeper the property.
    settings = {"java_properties": [f"-Djava.security.auth.login.config={jaas_file}"],
                "java.security.auth.login.config": jaas_file, "superUser.1": "root",
                "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    return lambda **config: start(**{**settings, **config})


def connect(server, user=None, password=None, **settings):
    """A session of kazoo, logged in if there is a user."""
    options = user and {"mechanism": "DIGEST-MD5", "username": user, "password": password or USERS.get(user)}
    client = kazoo.client.KazooClient(hosts=server.address, timeout=10, sasl_options=options, **settings)
    client.start(15)
    return client


def test_an_acl_lets_the_users_in_whom_it_names(start):
    server = start()
    alice, root, nobody = connect(server, "alice"), connect(server, "root"), connect(server)
    only_alice = [kazoo.security.make_acl("sasl", "alice", all=True)]
    alice.create("/mine", b"1", acl=only_alice)
    alice.create("/auth", b"1", acl=[kazoo.security.make_acl("auth", "", all=True)])
    assert alice.get_acls("/auth")[0] == only_alice
    assert (alice.get("/mine")[0], root.get("/mine")[0]) == (b"1", b"1")
    for path in ("/mine", "/auth"):
        with pytest.raises(kazoo.exceptions.NoAuthError):
            nobody.get(path)
    for invalid in ("a@b@c", "a/b/c@d"):
        with pytest.raises(kazoo.exceptions.InvalidACLError):
            alice.create("/invalid", acl=[kazoo.security.make_acl("sasl", invalid, all=True)])
    for client in (alice, root, nobody):
        client.stop()


# kazoo's thread ends with the error that it does not expect.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("required, noted", [(False, "AUTH_FAILED closing"), (True, "SessionClosedRequireSaslError")])
@pytest.mark.parametrize("user, password", [("alice", "wrong"), ("unknown", "pw")])
def test_a_wrong_password_and_an_unknown_user_are_refused(start, caplog, required, noted, user, password):
    server = start(sessionRequireClientSASLAuth=str(required).lower())
    # The end of the session may overtake its beginning.
    with pytest.raises((kazoo.exceptions.KazooException, KazooTimeoutError)):
        connect(server, user, password).get("/")
    assert noted in caplog.text


@pytest.mark.parametrize("config", [{"sessionRequireClientSASLAuth": "true"},
                                    {"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl"}])
def test_a_login_can_be_required(start, config):
    server = start(**config)
    alice, nobody = connect(server, "alice"), connect(server)
    alice.create("/a")
    with pytest.raises(kazoo.exceptions.KazooException):
        nobody.get("/a")
    for client in (alice, nobody):
        client.stop()


@pytest.mark.parametrize("release, jars", [("3.9", "lib"), ("3.8", "lib38")])
def test_the_shell_logs_in_by_its_jaas_file(start, tmp_path, release, jars):
    server = start(sessionRequireClientSASLAuth="true")
    client_file = tmp_path / "client.conf"
    # Java hashes names and passwords as ISO 8859-1 where that has all characters.
    for user in ("alice", "m\u00fcller"):
        client_file.write_text(f'Client {{ {MODULE} username="{user}" password="{USERS[user]}"; }};')
        commands = f"create /{release}-{user} x sasl:{user}:cdrwa\ngetAcl /{release}-{user}\nwhoami\n"
        printed = shell(server.address, commands, jars,
                        [f"-Djava.security.auth.login.config={client_file}", "-Dfile.encoding=UTF-8",
                         "-Dzookeeper.fips-mode=false"])
        assert f"'sasl,'{user}" in printed, printed
        assert f"sasl: {user}" in printed, printed
    client_file.write_text(f'Client {{ {MODULE} username="alice" password="wrong"; }};')
    printed = shell(server.address, "get /\n", jars,
                    [f"-Djava.security.auth.login.config={client_file}", "-Dzookeeper.fips-mode=false"])
    assert "AuthFailed" in printed, printed


@pytest.mark.skipif(not os.path.exists(server_module.BINARY), reason="ringkeeper's shell is part of its binary")
def test_the_shell_of_ringkeeper_logs_in_by_a_file_or_the_environment(start, tmp_path):
    server = start(sessionRequireClientSASLAuth="true")

    def whoami(login, variable=None):
        """What the shell prints, and its exit status."""
        login_file = tmp_path / "login"
        login_file.write_text(login)
        login_file.chmod(0o600)
        arguments = [] if variable else ["--login-file", login_file]
        environment = {**os.environ, "RINGKEEPER_LOGIN": variable or "nobody:pw"}
        done = subprocess.run([server_module.BINARY, "shell", "--servers", server.address, *arguments, "whoami"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                              env=environment, check=False)
        return done.stdout, done.returncode

    for user, password in USERS.items():
        printed, status = whoami(f"{user}:{password}\n")
        assert status == 0 and f"sasl: {user}" in printed, printed
    assert "sasl: alice" in whoami("", variable=f"alice:{USERS['alice']}")[0]
    printed, status = whoami("alice:wrong")
    assert status != 0 and "authentication" in printed.lower(), printed


def test_the_c_client_logs_in(start, tmp_path):
    server = start()
    alice = connect(server, "alice")
    alice.create("/mine", b"of alice", acl=[kazoo.security.make_acl("sasl", "alice", all=True)])
    alice.stop()


    def read_by(user, password):
        (tmp_path / "password").write_text(password)
        return test_c_client.shell(server, "DIGEST-MD5", "get /mine", "-u", user, "-p", str(tmp_path / "password"),
                                   "-o", "zk-sasl-md5")

    for user, answer in (("alice", "of alice"), ("root", "of alice"), ("m\u00fcller", "rc = -102")):
        printed = read_by(user, USERS[user])
        assert answer in printed, printed
    # It tries on, and is never connected.
    assert "CONNECTED_STATE" not in read_by("alice", "a guess")
