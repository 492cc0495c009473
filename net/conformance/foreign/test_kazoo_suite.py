"""kazoo's own test-suite, against the server under test.

The suite runs as it is (see `kazoo_harness.py`), with one server and with its own cluster of three. What it
cannot do with one server is left out below; everything else passes on Apache ZooKeeper and, but for what
ringkeeper does not offer, must pass here. It takes some three minutes on either server, nearly all of it spent in
the suite's own pauses.
"""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from server import HERE, SUBJECT, free_port

# These fail on Apache ZooKeeper too when it stands alone: reconfiguration, a list of several hosts, and
# read-only mode need an ensemble.
NEED_AN_ENSEMBLE = ("TestReconfig", "test_update_host_list", "test_read_only")

# A race of its own: where the refusal of the login comes before kazoo's `start` looks whether it is connected, that
# says "time-out". test_sasl.py has refused logins.
RACES = ("test_invalid_sasl_auth",)

# The suite's certificates are of X.509 version 1, which ringkeeper does not take; test_tls.py has others.
NOT_OFFERED = {"ringkeeper": ("TestSSLClient",), "zookeeper": ()}[SUBJECT]


@pytest.mark.parametrize("servers", [1, 3])
def test_kazoos_own_suite_passes(servers, tmp_path):
    first_port = free_port()
    for _ in range(40):
        free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "ZOOKEEPER_VERSION": "3.9.5",
        "ZOOKEEPER_CLUSTER_SIZE": str(servers),
        "ZOOKEEPER_PORT_OFFSET": str(first_port),
        "ZOOKEEPER_JAAS_AUTH": "digest",
    }
    by_size = NEED_AN_ENSEMBLE if servers == 1 else ()
    left_out = " and ".join(f"not {name}" for name in (*by_size, *RACES, *NOT_OFFERED))
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
