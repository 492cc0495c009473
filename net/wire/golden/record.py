#!/usr/bin/env python3
"""Records the golden vectors: real conversations of Apache ZooKeeper with its clients.

    record.py --jars DIR [--port PORT]

DIR holds zookeeper-3.9.x.jar and what it depends on (`mvn dependency:copy-dependencies`); Python needs
kazoo, and a JDK must be on the path. An ensemble of one server runs in a temporary folder, on PORT to
PORT+3. All clients go through a recording proxy. Every exchange becomes one file in `vectors/`.
"""

import argparse
import base64
import hashlib
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time

import kazoo
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.security import make_acl

from jute_text import OPS, Text

HERE = pathlib.Path(__file__).resolve().parent
SUPER = "super:golden"
QUIET_S = 0.25  # after an exchange, for replies and events still under way
PING_XID, NOTIFICATION_XID = -2, -1


class Recorder:
    """Collects the frames of one exchange at a time and writes them out."""

    def __init__(self, server):
        self.server, self.lock, self.blocks, self.kept = server, threading.Lock(), None, None

    def start(self, name, meaning, client, pings=False):
        with self.lock:
            self.kept, self.blocks = (name, meaning, client, pings), []

    def add(self, direction, kind, lines, frame, ping):
        with self.lock:
            if self.blocks is not None and (self.kept[3] or not ping):
                self.blocks.append("\n".join([direction + " " + kind] + lines + [frame.hex()]))

    def finish(self):
        time.sleep(QUIET_S)
        with self.lock:
            (name, meaning, client, _), blocks, self.blocks = self.kept, self.blocks, None
        if not blocks:
            raise SystemExit("nothing recorded for " + name)
        # What the server itself could not parse has no meaning; ours must refuse it too.
        if any(re.search(r"err: -[56] ", block) for block in blocks):
            blocks = [re.sub(r"(?m)^(> .*\n.*\n).*$", r"\1refused", block) for block in blocks]
        head = "# %s\n# %s, %s\n\n" % (meaning, self.server, client)
        (HERE / "vectors" / (name + ".txt")).write_text(head + "\n\n".join(blocks) + "\n")
        print("recorded", name, len(blocks))


class Connection:
    """One proxied connection: cuts both streams into frames and says what they mean."""

    def __init__(self, recorder, client, server):
        self.recorder, self.ops, self.sockets = recorder, {}, (client, server)
        for source, sink, describe, direction in (
            (client, server, self.describe_request, ">"), (server, client, self.describe_reply, "<")):
            threading.Thread(target=self.pump, args=(source, sink, describe, direction), daemon=True).start()

    def pump(self, source, sink, describe, direction):
        pending, first = b"", True
        try:
            while chunk := source.recv(65536):
                pending += chunk
                while len(pending) >= 4 and len(pending) >= 4 + (length := struct.unpack(">i", pending[:4])[0]):
                    frame, pending = pending[:4 + length], pending[4 + length:]
                    kind, lines, ping = describe(frame[4:], first)
                    self.recorder.add(direction, kind, lines, frame, ping)
                    first = False
                sink.sendall(chunk)
        except OSError:
            pass
        self.close()

    def close(self):
        for each in self.sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def describe_request(self, payload, first):
        text = Text(payload)
        if first:
            return "connect", [text.record("ConnectRequest")], False
        xid, op = struct.unpack(">ii", payload[:8])
        self.ops.setdefault(xid, []).append(op)
        lines = [text.record("RequestHeader")]
        try:
            lines.append(text.request(op))
        except (KeyError, ValueError):
            lines.append("refused")
        return OPS.get(op, str(op)), lines, xid == PING_XID

    def describe_reply(self, payload, first):
        text = Text(payload)
        if first:
            return "connect", [text.record("ConnectResponse")], False
        xid, _zxid, err = struct.unpack(">iqi", payload[:16])
        lines = [text.record("ReplyHeader")]
        if xid == NOTIFICATION_XID:
            return "notification", lines + [text.record("WatcherEvent")], False
        op = self.ops[xid].pop(0)
        if err == 0:
            lines.append(text.response(op))
        return OPS.get(op, str(op)), lines, xid == PING_XID


class Proxy:
    def __init__(self, recorder, port, server_port):
        self.connections = []
        listener = socket.create_server(("127.0.0.1", port))

        def accept():
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", server_port))
                self.connections.append(Connection(recorder, client, server))

        threading.Thread(target=accept, daemon=True).start()

    def drop_connections(self):
        for connection in self.connections:
            connection.close()
        self.connections.clear()


class Raw:
    """A client without opinions, for what the others never send."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(5)

    def send(self, payload):
        self.socket.sendall(struct.pack(">i", len(payload)) + payload)
        return self.receive()

    def receive(self):
        head = self.socket.recv(4, socket.MSG_WAITALL)
        return self.socket.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL) if head else b""

    def connect(self, session=0, password=bytes(16), read_only=b"\0", seen=0):
        request = struct.pack(">iqiq", 0, seen, 10000, session) + buf(password) + read_only
        reply = self.send(request)
        return struct.unpack(">q", reply[8:16])[0], reply[20:36]

    def call(self, xid, op, body=b""):
        return self.send(struct.pack(">ii", xid, op) + body)


def buf(data):
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def text(value):
    return buf(None if value is None else value.encode())


def texts(*values):
    return struct.pack(">i", len(values)) + b"".join(map(text, values))


OPEN_ACL = struct.pack(">ii", 1, 31) + text("world") + text("anyone")


def create_body(path, data=b"", acl=OPEN_ACL, flags=0):
    return text(path) + buf(data) + acl + struct.pack(">i", flags)


def multi_body(*ops):
    entries = b"".join(struct.pack(">i?i", op, False, -1) + body for op, body in ops)
    return entries + struct.pack(">i?i", -1, True, -1)


def raw_scenarios(recorder, port):
    def step(name, meaning, action, pings=False):
        recorder.start("raw_" + name, meaning, "raw", pings)
        result = action()
        recorder.finish()
        return result

    old = Raw(port)
    step("connect_old", "a new session; the request ends before the readOnly byte, so does the answer",
         lambda: old.connect(read_only=b""))
    raw = Raw(port)
    session, password = step("connect_new", "a new session; the client asks for a read-write server", raw.connect)
    step("connect_resume", "a session is resumed on a second connection",
         lambda: Raw(port).connect(session, password))
    step("connect_expired", "a wrong password: the answer says that the session has expired",
         lambda: Raw(port).connect(session, b"x" * 16))
    step("connect_expired_old", "the same without the readOnly byte",
         lambda: Raw(port).connect(session, b"x" * 16, b""))
    # ZooKeeper closes the session's connection before it looks at the password, so begin anew.
    raw = Raw(port)
    raw.connect()
    step("ping", "a ping", lambda: raw.call(PING_XID, 11), pings=True)
    step("create_null_data", "create with null data", lambda: raw.call(1, 1, create_body("/raw", None)))
    step("get_null_data", "getData of null data", lambda: raw.call(2, 4, text("/raw") + b"\0"))
    step("create_empty_data", "create with empty data", lambda: raw.call(3, 1, create_body("/raw/empty", b"")))
    step("get_empty_data", "getData of empty data", lambda: raw.call(4, 4, text("/raw/empty") + b"\0"))
    step("create_null_acl", "create with a null ACL: INVALIDACL",
         lambda: raw.call(5, 1, create_body("/raw/a", acl=struct.pack(">i", -1))))
    step("create_null_scheme", "create with a null scheme and id in the ACL: INVALIDACL",
         lambda: raw.call(6, 1, create_body("/raw/a", acl=struct.pack(">ii", 1, 31) + text(None) + text(None))))
    step("create_null_path", "create with a null path: MARSHALLINGERROR",
         lambda: raw.call(7, 1, create_body(None)))
    step("get_data_cut_short", "getData without its watch flag: MARSHALLINGERROR, and the connection stays",
         lambda: raw.call(8, 4, text("/raw")))
    step("get_data_trailing", "getData with bytes after the record, which are ignored",
         lambda: raw.call(9, 4, text("/raw") + b"\0" + b"more"))
    step("unknown_watcher_type", "checkWatches with a type that does not exist: MARSHALLINGERROR",
         lambda: raw.call(10, 17, text("/raw") + struct.pack(">i", 9)))
    step("unknown_add_watch_mode", "addWatch with a mode that does not exist: MARSHALLINGERROR",
         lambda: raw.call(11, 106, text("/raw") + struct.pack(">i", 9)))
    step("get_ephemerals_null", "getEphemerals with a null prefix", lambda: raw.call(12, 103, text(None)))
    step("multi_empty", "a multi without operations", lambda: raw.call(13, 14, multi_body()))
    step("multi_creates", "a multi with create, create2, createContainer, createTTL and create with flag 4",
         lambda: raw.call(14, 14, multi_body(
             (1, create_body("/raw/m1")), (15, create_body("/raw/m2")), (19, create_body("/raw/m3", flags=4)),
             (21, create_body("/raw/m4", flags=5) + struct.pack(">q", 60000)), (1, create_body("/raw/m5", flags=4)))))
    step("multi_ttl_flag", "a multi whose create has a TTL flag but no TTL: MARSHALLINGERROR",
         lambda: raw.call(15, 14, multi_body((1, create_body("/raw/m6", flags=5)))))
    step("multi_bad_flag", "a multi whose create has an unknown flag",
         lambda: raw.call(16, 14, multi_body((1, create_body("/raw/m6", flags=7)))))
    step("multi_ttl_plain_flag", "a multi whose createTTL has the flag of a plain create",
         lambda: raw.call(17, 14, multi_body((21, create_body("/raw/m7") + struct.pack(">q", 60000)))))
    step("multi_read_inside", "a multi with a getData inside: MARSHALLINGERROR",
         lambda: raw.call(18, 14, multi_body((4, text("/raw") + b"\0"))))
    step("multi_read_write_inside", "a multiRead with a delete inside: MARSHALLINGERROR",
         lambda: raw.call(19, 22, multi_body((2, text("/raw/m1") + struct.pack(">i", -1)))))
    step("multi_read_empty", "a multiRead without operations", lambda: raw.call(20, 22, multi_body()))
    step("multi_null_path", "a multi with a null path inside: MARSHALLINGERROR",
         lambda: raw.call(21, 14, multi_body((2, text(None) + struct.pack(">i", -1)))))
    step("set_watches", "setWatches (without persistent lists), with catch-up events", lambda: (
        raw.call(-8, 101, struct.pack(">q", 0) + texts("/raw", "/gone") + texts("/raw/empty") + texts("/raw")),
        [raw.receive() for _ in range(3)]))
    step("set_watches_negative_count", "setWatches with vector counts below -1, which are empty vectors",
         lambda: raw.call(-8, 101, struct.pack(">qiii", 0, -2, -3, -4)))
    step("check_alone", "check outside of a multi: UNIMPLEMENTED, and the connection is closed",
         lambda: raw.call(22, 13, text("/raw") + struct.pack(">i", -1)))
    raw = Raw(port)
    raw.connect()
    step("unknown_op", "an opcode that does not exist: UNIMPLEMENTED, and the connection is closed",
         lambda: raw.call(1, 99))


def kazoo_scenarios(recorder, port):
    client_name = "kazoo " + kazoo.__version__

    def step(name, meaning, action):
        recorder.start("kazoo_" + name, meaning, client_name)
        try:
            return action()
        except KazooException as error:
            print("  ", type(error).__name__)
        finally:
            recorder.finish()

    zk = KazooClient("127.0.0.1:%d" % port, timeout=30)
    other = KazooClient("127.0.0.1:%d" % port, timeout=30)
    other.start()
    step("connect", "a new session", zk.start)
    acl = [make_acl("world", "anyone", all=True)]
    step("create", "create", lambda: zk.create("/kazoo", b"first", acl))
    step("create_exists", "create of what exists: NODEEXISTS", lambda: zk.create("/kazoo", b"", acl))
    step("create2_sequential", "create2 of a sequential ephemeral",
         lambda: zk.create("/kazoo/s-", b"\x00\xff", acl, ephemeral=True, sequence=True, include_data=True))
    step("create_no_parent", "create without a parent: NONODE", lambda: zk.create("/none/a", b"", acl))
    step("create_utf8", "create with a path beyond ASCII", lambda: zk.create("/kazoo/h\u00e9l\u00e8ne", b"", acl))
    step("get", "getData", lambda: zk.get("/kazoo"))
    step("get_missing", "getData of what does not exist: NONODE", lambda: zk.get("/none"))
    step("exists", "exists", lambda: zk.exists("/kazoo"))
    step("exists_missing", "exists of what does not exist: NONODE", lambda: zk.exists("/none"))
    step("set", "setData", lambda: zk.set("/kazoo", b"k" * 1024, 0))
    step("set_bad_version", "setData with a stale version: BADVERSION", lambda: zk.set("/kazoo", b"x", 0))
    step("get_1k", "getData of 1 KiB", lambda: zk.get("/kazoo"))
    step("children", "getChildren", lambda: zk.get_children("/kazoo"))
    step("children2", "getChildren2", lambda: zk.get_children("/kazoo", include_data=True))
    step("children_none", "getChildren2 of a znode without children",
         lambda: zk.get_children("/kazoo/h\u00e9l\u00e8ne", include_data=True))
    step("sync", "sync", lambda: zk.sync("/kazoo"))
    step("get_acl", "getACL", lambda: zk.get_acls("/kazoo"))
    step("auth", "auth by digest", lambda: zk.add_auth("digest", "user:secret"))
    step("set_acl", "setACL to the authenticated identity", lambda: zk.set_acls(
        "/kazoo/h\u00e9l\u00e8ne", [make_acl("auth", "", all=True), make_acl("ip", "127.0.0.1", read=True)]))
    step("no_auth", "setData by a stranger: NOAUTH", lambda: other.set("/kazoo/h\u00e9l\u00e8ne", b"x"))
    step("delete_not_empty", "delete of a parent: NOTEMPTY", lambda: zk.delete("/kazoo"))
    zk.create("/kazoo/gone", b"", acl)
    step("delete", "delete", lambda: zk.delete("/kazoo/gone", 0))
    seen = []
    step("watch", "getData leaves a watch", lambda: zk.get("/kazoo", watch=seen.append))
    step("notification", "another session sets the data: notification", lambda: other.set("/kazoo", b"y"))

    def transaction(*ops):
        request = zk.transaction()
        for name, *arguments in ops:
            getattr(request, name)(*arguments)
        return request.commit()

    step("multi", "a multi that succeeds", lambda: transaction(
        ("check", "/kazoo", 2), ("create", "/kazoo/t", b"t", acl), ("set_data", "/kazoo/t", b"u", 0),
        ("delete", "/kazoo/t", 1)))
    step("multi_failed", "a multi whose second operation fails", lambda: transaction(
        ("create", "/kazoo/t", b"t", acl), ("check", "/kazoo", 77), ("delete", "/kazoo", -1)))
    step("close", "closeSession", zk.stop)
    raw_auth = KazooClient("127.0.0.1:%d" % port, timeout=30)
    raw_auth.start()
    step("auth_failed", "auth under a scheme that does not exist: AUTHFAILED, and the connection is closed",
         lambda: raw_auth.add_auth("nobody", "user:secret"))
    for each in (raw_auth, other):
        each.stop()
        each.close()
    zk.close()


def java_scenarios(recorder, proxy, port, jars, client_name, scratch):
    jaas = scratch / "client-jaas.conf"
    command = ["java", "-Djava.security.auth.login.config=%s" % jaas, "-Dzookeeper.fips-mode=false",
               "-cp", "%s/*" % jars, str(HERE / "JavaScenario.java"), "127.0.0.1:%d" % port]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    recording = False
    for line in process.stdout:
        line = line.rstrip("\n")
        if not line.startswith("@"):
            print("  ", line)
            continue
        if recording:
            recorder.finish()
        recording = False
        word, _, meaning = line[1:].partition(" ")
        if word == "drop":
            recorder.start(meaning.partition(" ")[0], meaning.partition(" ")[2], client_name)
            recording = True
            proxy.drop_connections()
        elif word != "silent":
            recorder.start(word, meaning, client_name)
            recording = True
        process.stdin.write("\n")
        process.stdin.flush()
    if process.wait() != 0:
        raise SystemExit("the Java scenario failed")


def start_server(jars, port, scratch):
    hashed = base64.b64encode(hashlib.sha1(SUPER.encode()).digest()).decode()
    (scratch / "data").mkdir()
    (scratch / "data" / "myid").write_text("1")
    (scratch / "dynamic.cfg").write_text(
        "server.1=127.0.0.1:%d:%d:participant;127.0.0.1:%d\n" % (port + 2, port + 3, port))
    (scratch / "zoo.cfg").write_text(
        "dataDir=%s/data\ntickTime=2000\ninitLimit=10\nsyncLimit=5\nstandaloneEnabled=false\n"
        "reconfigEnabled=true\nadmin.enableServer=false\nmaxSessionTimeout=60000\n"
        "dynamicConfigFile=%s/dynamic.cfg\n" % (scratch, scratch))
    (scratch / "server-jaas.conf").write_text(
        'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_bob="secret"; };\n')
    (scratch / "client-jaas.conf").write_text(
        'Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="bob" password="secret"; };\n')
    return subprocess.Popen(
        ["java", "-Xmx256m", "-Dzookeeper.extendedTypesEnabled=true", "-Dzookeeper.fips-mode=false",
         "-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
         "-Djava.security.auth.login.config=%s/server-jaas.conf" % scratch,
         "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:" + hashed,
         "-cp", "%s/*" % jars, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(scratch / "zoo.cfg")],
        stdout=open(scratch / "server.log", "w"), stderr=subprocess.STDOUT)


def wait_for_server(port):
    for _ in range(120):
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as connection:
                connection.sendall(b"srvr")
                if b"Zookeeper version" in connection.recv(4096):
                    return
        except OSError:
            pass
        time.sleep(0.5)
    raise SystemExit("the server did not start")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jars", type=pathlib.Path, required=True)
    parser.add_argument("--port", type=int, default=21000)
    arguments = parser.parse_args()
    jar = next(arguments.jars.glob("zookeeper-3.*.jar"))
    version = re.fullmatch(r"zookeeper-(.*)\.jar", jar.name)[1]
    port, proxy_port = arguments.port, arguments.port + 1
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="golden-"))
    server = start_server(arguments.jars, port, scratch)
    try:
        wait_for_server(port)
        for old in (HERE / "vectors").glob("*.txt"):
            old.unlink()
        recorder = Recorder("Apache ZooKeeper " + version)
        proxy = Proxy(recorder, proxy_port, port)
        kazoo_scenarios(recorder, proxy_port)
        raw_scenarios(recorder, proxy_port)
        java_scenarios(recorder, proxy, proxy_port, arguments.jars, "its Java client " + version, scratch)
    except BaseException:
        print((scratch / "server.log").read_text()[-3000:])
        raise
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
