"""Logins by SCRAM-SHA-256: a client that we did not write, and ringkeeper's own shell. Apache ZooKeeper has no such
mechanism."""

import contextlib
import os
import subprocess
import time

import pytest
import scramp

import server as server_module
from test_throttles import Client, buffer

pytestmark = pytest.mark.skipif(server_module.SUBJECT != "ringkeeper", reason="ZooKeeper has no SCRAM")

SASL, WHO_AM_I = 102, 107
USERS = {"alice": "pw of alice", "m\u00fcller,=": "p\u00e4ss", "root": "pw of root"}


def add_user(file, user, password):
    """Runs the command that adds users."""
    subprocess.run([server_module.BINARY, "scram", "add", user, "--file", file], input=password + "\n", text=True,
                   timeout=60, check=True)


@pytest.fixture
def start(start, tmp_path):
    """A function that starts a server on which USERS can log in; `root` is a super user."""
    file = tmp_path / "users"
    for user, password in USERS.items():
        add_user(file, user, password)
    assert not any(password in file.read_text() for password in USERS.values())

    def start_server(**config):
        server = start(**{"ringkeeper.scramFile": file, "superUser": "root", **config})
        server.users = file
        return server

    return start_server


class Scram(Client):
    """A connection that logs in with the messages of scramp."""

    def token(self, text):
        """The token of the answer and the error; nothing if the server closes the connection."""
        self.send(1, SASL, buffer(text.encode()))
        received = self.receive()
        error = int.from_bytes(received[12:16], "big", signed=True)
        length = int.from_bytes(received[16:20], "big", signed=True)
        return (received[20:20 + length].decode() if length >= 0 else None), error

    def log_in(self, user, password):
        """The error of the login."""
        client = scramp.ScramClient(["SCRAM-SHA-256"], user, password)
        token, error = self.token(client.get_client_first())
        assert error == 0
        client.set_server_first(token)
        token, error = self.token(client.get_client_final())
        if error == 0:
            client.set_server_final(token)
        return error

    def identities(self):
        """What the server takes the client for."""
        self.send(2, WHO_AM_I)
        return self.receive()


@pytest.mark.parametrize("user", USERS)
def test_a_user_logs_in(start, user):
    server = start(sessionRequireClientSASLAuth="true")
    client = Scram(server)
    assert client.log_in(user, USERS[user]) == 0
    assert user.encode() in client.identities()


@pytest.mark.parametrize("required, refusal", [("false", -115), ("true", -124)])
@pytest.mark.parametrize("user, password", [("alice", "wrong"), ("mallory", "pw"), ("root", "pw of alice")])
def test_a_wrong_password_and_an_unknown_user_are_refused(start, required, refusal, user, password):
    client = Scram(start(sessionRequireClientSASLAuth=required))
    assert client.log_in(user, password) == refusal
    with contextlib.suppress(ConnectionError):
        assert client.receive() is None


def test_an_unknown_user_is_asked_like_a_known_one(start):
    server = start()

    def challenge(user):
        """Salt and iterations."""
        return Scram(server).token(f"n,,n={user},r=abc")[0].split(",")[1:]

    assert challenge("mallory") == challenge("mallory") != challenge("trudy")
    assert challenge("mallory")[1] == challenge("alice")[1]
    assert len(challenge("mallory")[0]) == len(challenge("alice")[0])


def test_channel_binding_is_refused(start):
    assert Scram(start()).token("p=tls-unique,,n=alice,r=abc") == (None, -115)


def test_a_changed_file_is_read_again(start):
    server = start()
    add_user(server.users, "alice", "another one")
    deadline = time.monotonic() + 20
    while Scram(server).log_in("alice", "another one") != 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    server.users.write_text("nonsense")
    deadline = time.monotonic() + 20
    while "users:1: neither a user" not in server.log():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert Scram(server).log_in("alice", "another one") == 0
    assert Scram(server).log_in("alice", USERS["alice"]) == -115


def test_digest_md5_is_there_only_with_users_of_its_own(start):
    assert Scram(start()).token("") == (None, -115)


def test_a_file_that_others_can_read_stops_the_start(start):
    server = start()
    server.stop()
    server.users.chmod(0o640)
    with pytest.raises(RuntimeError, match="chmod 600"):
        server.start()


def test_the_shell_of_ringkeeper_logs_in(start):
    server = start(sessionRequireClientSASLAuth="true")

    def whoami(login):
        """What the shell prints, and its exit status."""
        done = subprocess.run([server_module.BINARY, "shell", "--servers", server.address, "--login-mechanism",
                               "scram-sha-256", "whoami"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=60, env={**os.environ, "RINGKEEPER_LOGIN": login}, check=False)
        return done.stdout, done.returncode

    for user, password in USERS.items():
        printed, status = whoami(f"{user}:{password}")
        assert status == 0 and f"sasl: {user}" in printed, printed
    printed, status = whoami("alice:wrong")
    assert status != 0 and "authentication" in printed.lower(), printed
