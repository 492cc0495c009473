"""ZooKeeper's C client, multi-threaded, through a program that is compiled here."""

import subprocess

from server import HERE


def test_the_c_client_works_across_a_crash_of_the_server(server, tmp_path):
    program = tmp_path / "client"
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-DTHREADED", "-o", program, HERE / "c" / "client.c",
                    "-lzookeeper_mt", "-lpthread"], check=True)
    client = subprocess.Popen([program, server.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
    try:
        lines = []
        for line in client.stdout:
            lines.append(line.rstrip())
            if lines[-1] == "restart":
                server.kill()
                server.start()
                client.stdin.write("restarted\n")
                client.stdin.flush()
        assert client.wait(60) == 0, "\n".join(lines)
        assert lines[-1] == "ok close"
    finally:
        client.kill()
