"""Read-only mode with Java's own client, on Apache ZooKeeper and on ringkeeper alike."""

import subprocess

from kazoo.client import KazooClient

from server import HERE, Server, classpath, free_port, running, start_together


def test_javas_client_reads_without_a_quorum_and_finds_the_way_back(tmp_path):
    # ZooKeeper has this mode for local sessions only.
    config = {"initLimit": "10", "syncLimit": "5", "readonlymode.enabled": "true", "localSessionsEnabled": "true",
              "localSessionsUpgradingEnabled": "true"}
    servers = [Server(**config) for _ in range(3)]
    lines = "".join(f"server.{number}=127.0.0.1:{free_port()}:{free_port()}\n" for number in (1, 2, 3))
    for number, server in enumerate(servers, start=1):
        (server.data_dir / "myid").write_text(f"{number}\n")
        with server.config_path.open("a") as file:
            file.write(lines)
    with running(servers):
        writer = KazooClient(",".join(server.address for server in servers))
        writer.start(30)
        writer.create("/kept", b"kept")
        writer.stop()
        writer.close()
        for server in servers[1:]:
            server.kill()
        output = tmp_path / "client.log"
        with output.open("wb") as log:
            client = subprocess.Popen(
                ["java", "-cp", classpath("lib"), HERE / "java" / "ReadOnly.java",
                 ",".join(server.address for server in servers)], stdout=log, stderr=log)
        try:
            while client.poll() is None and "writes are refused" not in output.read_text():
                try:
                    client.wait(0.1)
                except subprocess.TimeoutExpired:
                    pass
            start_together(servers[1:])
            assert client.wait(90) == 0, output.read_text() + servers[0].log_tail()
        finally:
            client.kill()
            client.wait()
