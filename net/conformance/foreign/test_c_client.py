"""ZooKeeper's C client, multi-threaded, through a program that is compiled here."""

import subprocess

from server import FOREIGN_DIR, HERE


def shell(server, mechanism, command, *options):
    """What the shell of the C client prints for a command after a login by SASL."""
    arguments = [FOREIGN_DIR / "cclient" / "shell", "-h", server.address, "-n", mechanism, *options, "-c", command]
    with subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as client:
        try:
            return client.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired:
            client.kill()
            return client.communicate()[0]


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
