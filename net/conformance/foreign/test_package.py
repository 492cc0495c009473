"""The Debian package: installed, started as its unit says, upgraded, removed and purged on this machine."""

import configparser
import contextlib
import os
import pathlib
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile

import pytest
from kazoo.client import KazooClient

from server import SUBJECT, free_port, four_letter_word

ROOT = pathlib.Path(__file__).resolve().parents[3]
CONFIG = pathlib.Path("/etc/ringkeeper/zoo.cfg")
DATA = pathlib.Path("/var/lib/ringkeeper")
UNIT = pathlib.Path("/usr/lib/systemd/system/ringkeeper.service")
PATIENCE_S = 30

pytestmark = [
    pytest.mark.skipif(SUBJECT != "ringkeeper", reason="our package"),
    pytest.mark.skipif(os.getuid() != 0 or not shutil.which("dpkg-deb"), reason="root on Debian installs it"),
    pytest.mark.skipif(CONFIG.exists() or DATA.exists(), reason="this machine has an installation of its own"),
]


def run(*arguments):
    done = subprocess.run(arguments, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def package():
    deb = run(ROOT / "net/package/deb", "--binary", os.environ["RINGKEEPER_BINARY"]).split()[-1]
    try:
        yield deb
    finally:
        subprocess.run(["dpkg", "--purge", "ringkeeper"], check=False, capture_output=True)
        shutil.rmtree(DATA, ignore_errors=True)
        subprocess.run(["userdel", "ringkeeper"], check=False, capture_output=True)


class Service:
    """The unit's process, and what it tells its service manager."""

    def __init__(self, folder):
        unit = configparser.ConfigParser(strict=False)
        unit.optionxform = str
        unit.read(UNIT)
        service = unit["Service"]
        assert service["Type"] == "notify"
        self.port = int(next(line for line in CONFIG.read_text().split() if line.startswith("clientPort=")).split("=")[1])
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(PATIENCE_S)
        path, self.journal = folder / "notify", folder / "journal"
        path.unlink(missing_ok=True)
        self.socket.bind(str(path))
        shutil.chown(path, service["User"])
        self.process = subprocess.Popen(
            [
                *["setpriv", "--reuid", service["User"], "--regid", service["Group"], "--clear-groups"],
                *["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"],
                *shlex.split(service["ExecStart"]),
            ],
            env={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "500000", "PATH": "/usr/bin:/bin"},
            cwd="/",
            stderr=self.journal.open("ab"),
        )

    def told(self, state):
        """Waits for a message that begins so."""
        while True:
            try:
                message = self.socket.recv(4096).decode()
            except TimeoutError:
                pytest.fail(f"{state} is not told; the journal: {self.journal.read_text()}")
            if message.startswith(state):
                return message

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.told("STOPPING=1")
        assert self.process.wait(PATIENCE_S) == 0
        self.socket.close()


@contextlib.contextmanager
def connected(*ports):
    """A client of the servers with these ports, until the end of the block."""
    client = KazooClient(",".join(f"127.0.0.1:{port}" for port in ports))
    client.start(PATIENCE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture
def folder():
    """A folder that the service's user reaches."""
    with tempfile.TemporaryDirectory() as path:
        pathlib.Path(path).chmod(0o755)
        yield pathlib.Path(path)


def test_the_package_is_installed_started_upgraded_removed_and_purged(package, folder):
    run("dpkg", "--install", package)
    assert pwd.getpwnam("ringkeeper").pw_shell == "/usr/sbin/nologin"
    assert (DATA.stat().st_mode & 0o777, DATA.owner()) == (0o700, "ringkeeper")
    assert "clientPortAddress=127.0.0.1" in CONFIG.read_text(), "nobody else reaches a fresh installation"
    run("bash", "-n", "/usr/share/bash-completion/completions/ringkeeper")
    assert pathlib.Path("/usr/share/man/man1/ringkeeper-server.1.gz").exists()
    if shutil.which("systemd-analyze"):
        assert "ringkeeper" not in run("systemd-analyze", "verify", "--man=no", UNIT)

    # The operator's change of the configuration outlasts what follows.
    CONFIG.write_text(CONFIG.read_text().replace("clientPort=2181", f"clientPort={free_port()}"))
    service = Service(folder)
    service.told("READY=1")
    service.told("STATUS=serving clients")
    for _ in range(3):
        service.told("WATCHDOG=1")
    with connected(service.port) as client:
        client.create("/kept", b"through an upgrade")
    assert {file.owner() for file in DATA.rglob("*")} == {"ringkeeper"}
    service.stop()

    run("dpkg", "--install", package)
    assert f"clientPort={service.port}" in CONFIG.read_text()
    service = Service(folder)
    service.told("READY=1")
    with connected(service.port) as client:
        assert client.get("/kept")[0] == b"through an upgrade"
    assert "standalone" in four_letter_word(service.port, "srvr")
    service.stop()

    run("dpkg", "--remove", "ringkeeper")
    assert not pathlib.Path("/usr/bin/ringkeeper").exists()
    assert CONFIG.exists() and any(DATA.iterdir())
    said = run("dpkg", "--purge", "ringkeeper")
    assert not CONFIG.exists() and "/var/lib/ringkeeper is left" in said
    assert any(DATA.iterdir()), "what clients stored is nobody's to remove but the operator's"


def test_a_mistake_in_the_configuration_is_not_tried_again_and_again(package):
    run("dpkg", "--install", package)
    CONFIG.write_text(CONFIG.read_text() + "tickTime=never\n")
    done = subprocess.run(
        ["ringkeeper", "server", "--config", CONFIG], check=False, capture_output=True, text=True, cwd="/"
    )
    assert "tickTime" in done.stderr
    assert f"RestartPreventExitStatus={done.returncode}" in UNIT.read_text()
