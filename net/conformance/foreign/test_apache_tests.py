"""Tests of Apache ZooKeeper's own, with its client, against our process. Their base class, which starts a server inside
of the test, is replaced by one that starts ours (`java/apachetests/ClientBase.java`).

Not run, since they look inside of the Java server: `X509AuthTest`, `X509AuthFailureTest`, `SSLAuthTest`, `ClientSSL*`;
and `KeyAuthClientTest`, whose server loads a class that authenticates.
"""

import re
import subprocess

import pytest

import server as server_module
from server import BINARY, HERE, classpath, free_port

FOLDERS = ("lib", "apachetests")
PORTS = 40

pytestmark = pytest.mark.skipif(server_module.SUBJECT != "ringkeeper", reason="Apache ZooKeeper runs them at home")


@pytest.fixture(scope="session")
def classes(tmp_path_factory):
    """The folder of the compiled base class."""
    folder = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "-d", folder, "-cp", classpath(*FOLDERS), HERE / "java" / "apachetests" / "ClientBase.java"],
                   check=True, timeout=300)
    return folder


# How many tests each has: what is not found does not fail.
@pytest.mark.parametrize("name, count, ignored", [
    ("AuthTest", 7, "authProvider.1"),
    ("AuthSHA2Test", 7, "authProvider.1"),
    ("AuthSHA3Test", 7, "authProvider.1"),
    ("DigestAuthDisabledTest", 1, ""),
    ("ACLRootTest", 1, ""),
])
def test_a_class_of_tests_passes(classes, tmp_path, name, count, ignored):
    first = [free_port() for _ in range(PORTS)][0]
    log = tmp_path / "log"
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", f"-Dtests.binary={BINARY}", f"-Dtests.port={first}", f"-Dtests.log={log}",
         f"-Dtests.ignored={ignored}", f"-Dbuild.test.dir={tmp_path}", "-cp", f"{classes}:{classpath(*FOLDERS)}",
         "org.junit.platform.console.ConsoleLauncher", "--disable-banner", "--details=tree",
         "--select-class", f"org.apache.zookeeper.test.{name}"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
    said = done.stdout[-6000:] + (log.read_text(errors="replace")[-3000:] if log.exists() else "")
    assert done.returncode == 0, said
    successful = re.search(r"(\d+) tests successful", done.stdout)
    assert successful and int(successful[1]) == count, said
