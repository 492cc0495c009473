"""The server under test: ringkeeper, or Apache ZooKeeper as the reference, behind one face.

Which one, and where its parts are, comes from the environment, set by `run`:

  SUBJECT              ringkeeper (default) or zookeeper
  RINGKEEPER_BINARY    the server's binary
  FOREIGN_DIR          what `setup` has collected
  PORT_BASE            first of the TCP ports that the tests may use
"""

import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
FOREIGN_DIR = pathlib.Path(os.environ.get("FOREIGN_DIR", HERE.parents[2] / "target" / "foreign"))
SUBJECT = os.environ.get("SUBJECT", "ringkeeper")
BINARY = os.environ.get("RINGKEEPER_BINARY", str(HERE.parents[2] / "target" / "release" / "ringkeeper"))

START_TIMEOUT_S = 30

# Every feature that a client can reach is switched on. The super user's password is "test".
CONFIG = {
    "tickTime": "1000",
    "maxClientCnxns": "0",
    "minSessionTimeout": "1000",
    "maxSessionTimeout": "60000",
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "*",
    "extendedTypesEnabled": "true",
    "reconfigEnabled": "true",
    "DigestAuthenticationProvider.superDigest": "super:D/InIHSb7yEEbrWz8b9l71RjZJU=",
}

# Tests that run side by side have ranges of ports of their own.
PORTS_A_WORKER = 1000
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_next_port = int(os.environ.get("PORT_BASE", "22000")) + PORTS_A_WORKER * _worker


def free_port():
    """A TCP port nobody listens on, from the range given to this run."""
    global _next_port
    for _ in range(500):
        port, _next_port = _next_port, _next_port + 1
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise RuntimeError("no free port in 500 tries")


def four_letter_word(port, word):
    """What the server answers to an administrative word such as `srvr`."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(word.encode())
        answer = bytearray()
        while chunk := connection.recv(65536):
            answer += chunk
    return answer.decode(errors="replace")


def serves(port):
    """Whether a session can be opened and closed."""
    connect = struct.pack(">iqiqi16s?", 0, 0, 10_000, 0, 16, bytes(16), False)
    close = struct.pack(">ii", 1, -11)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            for request in (connect, close):
                connection.sendall(struct.pack(">i", len(request)) + request)
                if not connection.recv(4096):
                    return False
        return True
    except OSError:
        return False


def classpath(*folders):
    """The class path of every jar in `folders`, for the log configuration's sake preceded by ours."""
    jars = [str(jar) for folder in folders for jar in sorted((FOREIGN_DIR / folder).glob("*.jar"))]
    return os.pathsep.join([str(HERE / "java"), *jars])


def command(config_path, port, data_dir, subject=SUBJECT, java_properties=(), release="lib"):
    """The command line of a server that reads `config_path`. Apache ZooKeeper alone needs properties, and comes in the
    releases that `setup` has collected."""
    if subject == "zookeeper":
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8",
                "-Dreadonlymode.enabled=true", *java_properties,
                "-cp", classpath(release, "adminserver", "prometheus"), main, str(config_path)]
    return [BINARY, "server", "--config", str(config_path),
            "--data-dir", str(data_dir), "--client-port", str(port)]


class Server:
    """One server that stands alone, on a port and a folder of its own."""

    def __init__(self, subject=SUBJECT, release="lib", java_properties=(), **config):
        self.subject = subject
        self.release = release
        self.java_properties = java_properties
        # A command that runs the server's.
        self.launcher = []
        self.port = free_port()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringkeeper-foreign-"))
        self.data_dir = self.folder / "data"
        self.data_dir.mkdir()
        self.config_path = self.folder / "zoo.cfg"
        self.config = {**CONFIG, **config, "dataDir": self.data_dir, "clientPort": self.port}
        self.config_path.write_text("".join(f"{key}={value}\n" for key, value in self.config.items()))
        self.process = None

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def launch(self):
        """Starts it."""
        # Apache ZooKeeper takes these from its command line only.
        properties = [f"-D{key}={value}" for key, value in self.config.items() if key.startswith("znode.container.")]
        arguments = [*self.launcher, *command(self.config_path, self.port, self.data_dir, self.subject,
                                              [*self.java_properties, *properties], self.release)]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(arguments, stdout=log, stderr=log, cwd=self.folder)

    def start(self):
        """Starts it and waits until it serves."""
        self.launch()
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            if serves(self.port):
                return self
            time.sleep(0.05)
        raise RuntimeError(f"{self.subject} does not serve:\n{self.log_tail()}")

    def log(self):
        """What the server has written."""
        return (self.folder / "log").read_text(errors="replace")

    def log_tail(self):
        """The last lines that the server has written."""
        return "\n".join(self.log().splitlines()[-30:])

    def kill(self):
        """Ends it at once, as SIGKILL does; its folder stays."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self):
        """Ends it in order; its folder stays."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
            self.process = None

    def remove(self):
        """Ends it and removes its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def start_together(servers):
    """Starts servers side by side: the members of an ensemble serve when a quorum of them runs."""
    with concurrent.futures.ThreadPoolExecutor(len(servers)) as pool:
        list(pool.map(Server.start, servers))


@contextlib.contextmanager
def running(servers):
    """Servers that serve until the block ends; their folders go with them."""
    try:
        start_together(servers)
        yield servers
    finally:
        for server in servers:
            server.remove()
