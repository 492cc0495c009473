"""kazoo's own test-suite, against the server under test.

The suite runs as it is, with one server in place of its cluster of three (see `kazoo_harness.py`). What it
cannot do with one server is left out below; everything else passes on Apache ZooKeeper and, but for what
ringkeeper does not offer, must pass here. It takes some three minutes on either server, nearly all of it spent in
the suite's own pauses.
"""

import contextlib
import os
import signal
import subprocess
import sys

from server import HERE, SUBJECT, free_port

# These fail on Apache ZooKeeper too when it stands alone: reconfiguration, a list of several hosts, and
# read-only mode need an ensemble.
NEED_AN_ENSEMBLE = ("TestReconfig", "test_update_host_list", "test_read_only")

# ringkeeper serves neither TLS nor SASL, and its start-up log says so. kazoo's SASL client, moreover, never ends its
# conversation with a server that has no SASL login, on Apache ZooKeeper neither: the suite would stand still.
NOT_OFFERED = {"ringkeeper": ("TestSSLClient", "SASL"), "zookeeper": ()}[SUBJECT]


def test_kazoos_own_suite_passes(tmp_path):
    for _ in range(20):
        free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "ZOOKEEPER_VERSION": "3.9.5",
        "ZOOKEEPER_CLUSTER_SIZE": "1",
        "ZOOKEEPER_PORT_OFFSET": str(free_port()),
        "ZOOKEEPER_JAAS_AUTH": "digest",
    }
    left_out = " and ".join(f"not {name}" for name in (*NEED_AN_ENSEMBLE, *NOT_OFFERED))
    command = [sys.executable, "-m", "pytest", "-p", "kazoo_harness", "--pyargs", "kazoo.tests", "-q", "-rfE",
               "--timeout", "60", "--timeout-method", "thread", "-p", "no:cacheprovider", "-k", left_out]
    suite = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        output, _ = suite.communicate(timeout=900)
    finally:
        # A test that ran out of time ends the suite without its servers.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(suite.pid, signal.SIGKILL)
    print(output[-3000:])
    assert suite.returncode == 0, output[-10000:]
