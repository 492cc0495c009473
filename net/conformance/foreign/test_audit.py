"""The audit log: the same operations leave the same records as with Apache ZooKeeper."""

import contextlib
import time

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, KazooException
from kazoo.security import make_acl, make_digest_acl

from server import SUBJECT, Server

LOGBACK = """<configuration>
  <appender name="AUDIT" class="ch.qos.logback.core.FileAppender">
    <file>{file}</file><encoder><pattern>%d{{ISO8601}} %p %c{{2}}: %m%n</pattern></encoder>
  </appender>
  <logger name="org.apache.zookeeper.audit.Slf4jAuditLogger" additivity="false" level="INFO">
    <appender-ref ref="AUDIT"/>
  </logger>
  <root level="WARN"/>
</configuration>
"""

SUCCESS, FAILURE = "success", "failure"
EPHEMERAL_ENDS = "ephemeralZNodeDeletionOnSessionCloseOrExpire"


@pytest.fixture
def audited(tmp_path):
    """A server that keeps an audit log in a folder."""
    folder = tmp_path / "audit"
    logback = tmp_path / "logback.xml"
    logback.write_text(LOGBACK.format(file=folder / "audit.log"))
    config = {"audit.enable": "true"}
    if SUBJECT == "ringkeeper":
        config["ringkeeper.audit.to"] = folder
    server = Server(java_properties=[f"-Dlogback.configurationFile={logback}"], **config)
    server.audit_folder = folder
    try:
        yield server.start()
    finally:
        server.remove()


def whole_text(server):
    return "".join(file.read_text() for file in sorted(server.audit_folder.iterdir()))


def records(server):
    """The fields of all records, in order."""
    found = []
    for line in whole_text(server).splitlines():
        head, _, fields = line.partition(": ")
        assert head.endswith(("INFO o.a.z.a.Slf4jAuditLogger", "ERROR o.a.z.a.Slf4jAuditLogger")), line
        found.append(dict(field.split("=", 1) for field in fields.split("\t")))
        assert ("ERROR" in head) == (found[-1]["result"] == FAILURE), line
    return found


def attempt(call, *arguments, **options):
    with contextlib.suppress(KazooException):
        return call(*arguments, **options)


def operate(client):
    """Changes of every kind, of which some fail."""
    attempt(client.create, "/a", b"1")
    attempt(client.create, "/a", b"1")
    attempt(client.create, "/e", b"", ephemeral=True)
    attempt(client.create, "/s-", b"", sequence=True)
    attempt(client.set, "/a", b"2")
    attempt(client.set, "/a", b"2", version=99)
    attempt(client.set, "/none", b"")
    attempt(client.set_acls, "/a", [make_digest_acl("bob", "pw", all=True), make_acl("world", "anyone", read=True)])
    attempt(client.set_acls, "/none", [make_acl("world", "anyone", all=True)])
    attempt(client.delete, "/a", version=5)
    attempt(client.delete, "/a")
    multi = client.transaction()
    multi.create("/m", b"")
    multi.set_data("/m", b"x")
    multi.check("/m", 1)
    multi.delete("/s-0000000002")
    multi.commit()
    multi = client.transaction()
    multi.create("/m2", b"")
    multi.delete("/none")
    multi.commit()
    attempt(client.create, "/one\x01", b"")
    attempt(client.get, "/m")


def expected():
    """What they leave: operation, znode, its type, result."""
    # Apache ZooKeeper writes control characters as they are.
    one = "/one\\u{1}" if SUBJECT == "ringkeeper" else "/one\x01"
    return [
        ("create", "/a", "persistent", SUCCESS),
        ("create", "/a", "persistent", FAILURE),
        ("create", "/e", "ephemeral", SUCCESS),
        ("create", "/s-0000000002", "persistent_sequential", SUCCESS),
        ("setData", "/a", None, SUCCESS),
        ("setData", "/a", None, FAILURE),
        ("setData", "/none", None, FAILURE),
        ("setAcl", "/a", None, SUCCESS),
        ("setAcl", "/none", None, FAILURE),
        ("delete", "/a", None, FAILURE),
        ("delete", "/a", None, SUCCESS),
        ("create", "/m", "persistent", SUCCESS),
        ("setData", "/m", None, SUCCESS),
        ("delete", "/s-0000000002", None, SUCCESS),
        ("multiOperation", None, None, FAILURE),
        ("create", one, "persistent", FAILURE),
        (EPHEMERAL_ENDS, "/e", None, SUCCESS),
    ]


def test_changes_leave_the_records_that_zookeeper_writes(audited):
    client = KazooClient(audited.address)
    client.start()
    session = hex(client.client_id[0])
    client.add_auth("digest", "bob:pw")
    client.add_auth("digest", "amy:pw")
    operate(client)
    client.stop()
    client.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and EPHEMERAL_ENDS not in whole_text(audited):
        time.sleep(0.05)
    audited.stop()

    found = records(audited)
    assert (found[0]["operation"], found[0]["result"]) == ("serverStart", SUCCESS)
    assert (found[-1]["operation"], found[-1]["result"]) == ("serverStop", "invoked")
    ours = [record for record in found if record.get("session") == session]
    shown = [(r["operation"], r.get("znode"), r.get("znode_type"), r["result"]) for r in ours]
    assert shown == expected()
    for record in ours:
        if record["operation"] == EPHEMERAL_ENDS:
            assert record["user"] == found[0]["user"] and "ip" not in record
        else:
            assert sorted(record["user"].split(",")) == ["127.0.0.1", "amy", "bob"]
            assert record["ip"] == "127.0.0.1"
    acl = next(record["acl"] for record in ours if "acl" in record)
    # Of a digest, ringkeeper does not show the hash of the password.
    bob = "digest:bob:x" if SUBJECT == "ringkeeper" else "digest:bob:ikIaKsbtGweaHnb/jKn7OHqbunM="
    assert acl == f"{bob}:cdrwaworld:anyone:r"


@pytest.mark.skipif(SUBJECT == "zookeeper", reason="Apache ZooKeeper records no logins")
def test_refused_logins_are_recorded(audited):
    client = KazooClient(audited.address)
    client.start()
    with pytest.raises(AuthFailedError):
        client.add_auth("unknown", "somebody")
    client.stop()
    client.close()
    audited.stop()
    refused = [record for record in records(audited) if record["operation"] == "login"]
    assert [(r["scheme"], r["user"], r["result"]) for r in refused] == [("unknown", "127.0.0.1", FAILURE)]
