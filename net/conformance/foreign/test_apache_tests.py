"""Tests of Apache ZooKeeper's own, with its client, against our processes. The classes by which they start
servers inside of the test are replaced by ours, which start processes (`java/apachetests`). What a test asks
of a server's object, such as whether it leads, is answered by the process's admin listener.

Not run, since they look inside of the Java server:

| classes | what they do |
| --- | --- |
| `X509Auth*`, `SSLAuthTest`, `ClientSSL*`, `ReadOnlyModeWithSSLTest` | set its TLS up |
| `KeyAuthClientTest` | loads a class that authenticates |
| `FLE*`, `LENonTerminateTest`, `Zab1_0Test`, `CnxManagerTest` | speak its protocol between servers |
| `Learner*`, `Leader*`, `QuorumCnxManager*`, `SessionTracker*` | call its parts |
| `ReconfigDuringLeaderSyncTest`, `SessionUpgradeQuorumTest`, `QuorumPeerMainTest` | put parts of their own in |
| `LocalSessionRequestTest`, `MultiOpSessionUpgradeTest` | read its log in memory and its sessions |
| `FourLetterWordsQuorumTest` | wants `java.version` of `envi` |
| `*Oracle*`, `QuorumMajorityTest` | compute with its classes alone |

Passed when they were run by hand, and take long: `StandaloneDisabledTest` (84 s), `QuorumHammerTest`,
`ObserverQuorumHammerTest` and `ObserverHierarchicalQuorumTest` (15 s each).

`ReconfigBackupTest` and `ReconfigRecoveryTest` are about the files in which ZooKeeper has its members: they
are in our log (docs/membership.md).
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
FILES = "the members are not in files (docs/membership.md)"
BLOCKED = "clients are served at the old port until the new one is free (docs/membership.md)"
LISTS = "a server with another list of members does not count (decision 0028)"
EXCLUDED = {
    "test.ReconfigTest": {
        "testUnspecifiedClientAddress": "parses a line with Java's classes alone",
        "testJMXBeanAfterRemoveAddOne": "asks for beans",
        "testJMXBeanAfterRoleChange": "asks for beans",
        "testPortChangeToBlockedPortLeader": BLOCKED,
        "testPortChangeToBlockedPortFollower": BLOCKED,
    },
    "server.quorum.ReconfigFailureCasesTest": {
        "testObserverToParticipantConversionFails": "an observer becomes a voter in one change (docs/membership.md)",
    },
    "server.quorum.ReconfigLegacyTest": {
        "testConfigFileBackwardCompatibility": FILES,
        "testReconfigRemoveClientFromStatic": FILES,
    },
    "server.quorum.ReconfigRollingRestartCompatibilityTest": {
        "testExtendingQuorumWithNewMembers": LISTS,
        "testRollingRestartWithExtendedMembershipConfig": LISTS,
        "testRollingRestartWithHostAddedAndRemoved": LISTS,
    },
    "test.QuorumTest": {
        "testLeaderShutdown": "closes the leader's sockets",
        # testSessionMove is the same with a client that does not come back.
        "testSessionMovedWithMultiOp": "the connection that a session has left ends before its client writes again",
    },
    "test.CheckTest": {
        "testClusterDatabaseReloadAfterCheck": "reads the folder with Java's classes",
        "testStandaloneDatabaseReloadAfterCheck": "reads the folder with Java's classes",
    },
    "test.ReadOnlyModeTest": {
        "testGlobalSessionInRO": "read-only mode does not need local sessions (docs/protocol.md)",
        "testSeekForRwServer": "a server with an empty folder has no vote beside one with data (decision 0028)",
    },
    "test.ObserverMasterTest": {
        "testObserver[1]": "asks for the observer's socket",
        "testAdminCommands": "asks for beans",
    },
    "test.StandaloneTest": {
        "testClientPortInDynamicFile": "one server with a `server.N` line may grow (docs/membership.md)",
        "testClientPortInStaticFile": "one server with a `server.N` line may grow (docs/membership.md)",
        "testStandaloneReconfigFails": "starts a server inside of the test",
    },
    "server.quorum.QuorumPeerMainMultiAddressTest": {
        "shouldStartClusterWithMultipleAddresses_IPv6": "not every machine has IPv6",
        "shouldStartClusterWhenSomeAddressesAreUnreachable_IPv6": "not every machine has IPv6",
        "shouldReconfigIncrementally_IPv6": "not every machine has IPv6",
    },
}

# Methods that fail, since ringkeeper does something else. Nobody has decided that it should.
DIFFERENT = {
    "test.ObserverTest": {
        "testObserverWithStandlone": "a voter alone may have observers",
    },
    "test.ReconfigTest": {
        "testInitialConfigHasPositiveVersion": "the first version of the members is 100000001, not 100000000",
    },
}

# Methods that passed when they were run by hand, and take long.
LONG = {
    "test.ReconfigTest": {
        "testPortChange": "37 s",
        "testRemoveAddTwo": "16 s",
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
    ("test.ReconfigTest", 6, ""),
    ("test.ReconfigExceptionTest", 6, ""),
    ("test.ReconfigMisconfigTest", 1, ""),
    ("server.quorum.ReconfigFailureCasesTest", 3, ""),
    ("server.quorum.ReconfigLegacyTest", 1, ""),
    ("server.quorum.ReconfigRollingRestartCompatibilityTest", 2, ""),
    ("server.quorum.QuorumPeerMainMultiAddressTest", 6, ""),
    ("test.StandaloneTest", 1, ""),
    ("test.QuorumTest", 13, ""),
    ("test.QuorumRestartTest", 3, ""),
    ("test.QuorumQuotaTest", 1, ""),
    ("test.AsyncTest", 1, ""),
    ("test.CheckTest", 2, ""),
    ("test.WatchEventWhenAutoResetTest", 4, ""),
    ("test.HierarchicalQuorumTest", 1, ""),
    ("test.ObserverLETest", 1, ""),
    ("test.ObserverMasterTest", 5, ""),
    ("test.ReadOnlyModeTest", 4, ""),
    ("test.LocalSessionsOnlyTest", 2, ""),
    ("test.SessionUpgradeTest", 4, ""),
    ("test.DuplicateLocalSessionUpgradeTest", 2, ""),
])
def test_a_class_of_tests_passes(classes, first_port, tmp_path, name, count, ignored):
    log, data = tmp_path / "log", tmp_path / "data"
    excluded = ",".join({**EXCLUDED.get(name, {}), **DIFFERENT.get(name, {}), **LONG.get(name, {})})
    command = ["java", "-XX:TieredStopAtLevel=1", f"-Dtests.binary={BINARY}", f"-Dtests.port={first_port}",
               f"-Dtests.ports={PORTS}", f"-Dtests.log={log}", f"-Dtests.ignored={ignored}",
               f"-Dtests.excluded={excluded}", f"-Dbuild.test.dir={data}",
               "-Djunit.jupiter.extensions.autodetection.enabled=true",
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
