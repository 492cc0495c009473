"""kazoo's own test-suite, against the server under test.

The suite runs as it is, with one server in place of its cluster of three (see `kazoo_harness.py`). What it
cannot do with one server is left out below; everything else passes on Apache ZooKeeper and must pass here.
"""

import os
import subprocess
import sys

from server import HERE, free_port

# These fail on Apache ZooKeeper too when it stands alone: reconfiguration, a list of several hosts, and
# read-only mode need an ensemble.
NEED_AN_ENSEMBLE = ("TestReconfig", "test_update_host_list", "test_read_only")


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
    left_out = " and ".join(f"not {name}" for name in NEED_AN_ENSEMBLE)
    command = [sys.executable, "-m", "pytest", "-p", "kazoo_harness", "--pyargs", "kazoo.tests", "-q", "-rfE",
               "--timeout", "60", "-p", "no:cacheprovider", "-k", left_out]
    result = subprocess.run(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, timeout=900, check=False)
    print(result.stdout[-3000:])
    assert result.returncode == 0, result.stdout[-10000:]
