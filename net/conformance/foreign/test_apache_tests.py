"""Tests of Apache ZooKeeper's own, with its client, against our processes. The classes by which they start servers
inside of the test are replaced by ours, which start processes (`java/apachetests`). What a test asks of a server's
object, such as whether it leads, is answered by the process's admin listener.

Not run, since they look inside of the Java server:

| classes | what they do |
| --- | --- |
| `X509AuthTest`, `X509AuthFailureTest`, `SSLAuthTest`, `ClientSSL*`, `ReadOnlyModeWithSSLTest` | set its TLS up |
| `KeyAuthClientTest` | loads a class that authenticates |
| `FLE*Test`, `LE*`, `QuorumCnxManager*`, `CnxManagerTest`, `Zab1_0Test`, `Learner*`, `Leader*` | speak its protocol between servers, or call its parts |
| `ReconfigDuringLeaderSyncTest`, `SessionUpgradeQuorumTest`, `QuorumPeerMainTest`, `DIFFSync*` | replace parts of its server by their own |
| `ReconfigBackupTest`, `ReconfigRecoveryTest` | read and write the files of its members, which are in our log (docs/membership.md) |
| `LocalSessionRequestTest`, `MultiOpSessionUpgradeTest`, `EagerACLFilterTest` | read its queues, its log in memory and its sessions |
| `Oracle*`, `QuorumMajorityTest`, `HierarchicalQuorum`'s unit tests | compute with its classes alone |
| `Observer`'s `testAdminCommands`, `JMX*` | ask its beans |
"""

import os
import re
import shutil
import signal
import subprocess

import pytest

import server as server_module
from server import BINARY, HERE, classpath, free_port

FOLDERS = ("lib", "apachetests")
PORTS = 200

pytestmark = pytest.mark.skipif(server_module.SUBJECT != "ringkeeper", reason="Apache ZooKeeper runs them at home")

# Methods that look inside of the Java server, or want what is different here on purpose.
EXCLUDED = {
    "test.ReconfigTest": {
        "testUnspecifiedClientAddress": "parses a line with Java's classes alone",
        "testJMXBeanAfterRemoveAddOne": "asks for beans",
        "testJMXBeanAfterRoleChange": "asks for beans",
    },
    "server.quorum.ReconfigFailureCasesTest": {
        "testObserverToParticipantConversionFails": "an observer becomes a voter in one change (docs/membership.md)",
    },
    "test.QuorumTest": {
        "testLeaderShutdown": "closes the leader's sockets",
    },
}

# Methods that fail, since ringkeeper does something else. Nobody has decided that it should.
DIFFERENT = {
    "test.ReconfigTest": {
        "testPortChange": "a changed client port is not listened at until the next start",
        "testPortChangeToBlockedPortLeader": "a changed client port is not listened at until the next start",
        "testPortChangeToBlockedPortFollower": "a changed client port is not listened at until the next start",
        "testReconfigEnablemntWithRollingRestart": "a changed address of a follower cuts its link, and the reply is lost",
        "testRemoveAddOne": "a changed address of a follower cuts its link, and the reply is lost",
        "testInitialConfigHasPositiveVersion": "the first version of the members is 100000001, not 100000000",
        "testRemoveAddTwo": "a server that serves already does not count yet for the quorum of a change",
        "testBulkReconfig": "changed quorum ports of several servers cut the leader off before they know the change",
    },
    "test.ReconfigExceptionTest": {
        "testReconfigEnabledWithAuthAndACL": "a changed address of a follower cuts its link, and the reply is lost",
        "testReconfigEnabledWithSuperUser": "a changed address of a follower cuts its link, and the reply is lost",
    },
}


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """The folder of the compiled classes that stand in for Apache ZooKeeper's."""
    folder = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "-nowarn", "-d", folder, "-cp", classpath(*FOLDERS),
                    *(HERE / "java" / "apachetests").glob("*.java")],
                   check=True, timeout=300)
    shutil.copy(HERE / "java" / "apachetests" / "logback.xml", folder)
    extensions = folder / "META-INF" / "services"
    extensions.mkdir(parents=True)
    (extensions / "org.junit.jupiter.api.extension.Extension").write_text("ringkeeper.Excluded\n")
    return folder


@pytest.fixture(scope="module")
def first_port():
    """The first of the ports that the tests use, one class after the other."""
    return [free_port() for _ in range(PORTS)][0]


# How many tests each has: what is not found does not fail.
@pytest.mark.parametrize("name, count, ignored", [
    ("test.AuthTest", 7, "authProvider.1"),
    ("test.AuthSHA2Test", 7, "authProvider.1"),
    ("test.AuthSHA3Test", 7, "authProvider.1"),
    ("test.DigestAuthDisabledTest", 1, ""),
    ("test.ACLRootTest", 1, ""),
    ("test.ReconfigTest", 3, ""),
    ("test.ReconfigExceptionTest", 4, ""),
    ("test.ReconfigMisconfigTest", 1, ""),
    ("server.quorum.ReconfigFailureCasesTest", 3, ""),
    ("test.QuorumTest", 14, ""),
    ("test.QuorumRestartTest", 3, ""),
    ("test.QuorumQuotaTest", 1, ""),
    ("test.WatchEventWhenAutoResetTest", 4, ""),
    ("test.ObserverLETest", 1, ""),
    ("test.LocalSessionsOnlyTest", 2, ""),
    ("test.SessionUpgradeTest", 4, ""),
    ("test.DuplicateLocalSessionUpgradeTest", 2, ""),
])
def test_a_class_of_tests_passes(classes, first_port, tmp_path, name, count, ignored):
    log, data = tmp_path / "log", tmp_path / "data"
    excluded = ",".join({**EXCLUDED.get(name, {}), **DIFFERENT.get(name, {})})
    command = ["java", "-XX:TieredStopAtLevel=1", f"-Dtests.binary={BINARY}", f"-Dtests.port={first_port}",
               f"-Dtests.ports={PORTS}", f"-Dtests.log={log}", f"-Dtests.ignored={ignored}", f"-Dtests.excluded={excluded}",
               f"-Dbuild.test.dir={data}", "-Djunit.jupiter.extensions.autodetection.enabled=true",
               "-cp", f"{classes}:{classpath(*FOLDERS)}",
               "org.junit.platform.console.ConsoleLauncher", "--disable-banner", "--details=tree",
               "--select-class", f"org.apache.zookeeper.{name}"]
    output = tmp_path / "output"
    with output.open("wb") as file:
        tests = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
        try:
            status = tests.wait(600)
        finally:
            # The servers of a test that fails, or takes too long, are in its group.
            try:
                os.killpg(tests.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            tests.wait()
            shutil.rmtree(data, ignore_errors=True)
    told = output.read_text(errors="replace")
    said = told[-6000:] + (log.read_text(errors="replace")[-3000:] if log.exists() else "")
    assert status == 0, said
    successful = re.search(r"(\d+) tests successful", told)
    assert successful and int(successful[1]) == count, said
