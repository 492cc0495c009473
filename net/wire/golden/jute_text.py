"""Reads ZooKeeper's records and says what they mean, in the notation of Rust's `Debug`.

Written from `zookeeper.jute`, independently of the Rust decoders that the golden test checks against it.
"""

import struct

OPS = {
    1: "create", 2: "delete", 3: "exists", 4: "get_data", 5: "set_data", 6: "get_acl", 7: "set_acl",
    8: "get_children", 9: "sync", 11: "ping", 12: "get_children2", 13: "check", 14: "multi", 15: "create2",
    16: "reconfig", 17: "check_watches", 18: "remove_watches", 19: "create_container", 21: "create_ttl",
    22: "multi_read", 100: "auth", 101: "set_watches", 102: "sasl", 103: "get_ephemerals",
    104: "get_all_children_number", 105: "set_watches2", 106: "add_watch", 107: "who_am_i",
    -11: "close_session",
}
VARIANT = {op: "".join(word.capitalize() for word in name.split("_")) for op, name in OPS.items()}
VARIANT[107] = "WhoAmI"

# Fields in order: name and type. "?" = may be null, "[]" = vector.
STAT = [("czxid", "long"), ("mzxid", "long"), ("ctime", "long"), ("mtime", "long"), ("version", "int"),
        ("cversion", "int"), ("aversion", "int"), ("ephemeral_owner", "long"), ("data_length", "int"),
        ("num_children", "int"), ("pzxid", "long")]
CREATE = [("path", "str"), ("data", "buf"), ("acl", "Acl[]?"), ("flags", "int")]
RECORDS = {
    "Stat": STAT,
    "Acl": [("perms", "Perms"), ("scheme", "str?"), ("id", "str?")],
    "ClientInfo": [("auth_scheme", "str"), ("user", "str")],
    "RequestHeader": [("xid", "Xid"), ("op", "int")],
    "ReplyHeader": [("xid", "Xid"), ("zxid", "long"), ("err", "int")],
    "WatcherEvent": [("event_type", "int"), ("state", "int"), ("path", "str")],
    "ConnectRequest": [("protocol_version", "int"), ("last_zxid_seen", "long"), ("timeout_ms", "int"),
                       ("session_id", "SessionId"), ("password", "buf"), ("read_only", "bool?")],
    "ConnectResponse": [("protocol_version", "int"), ("timeout_ms", "int"), ("session_id", "SessionId"),
                        ("password", "buf"), ("read_only", "bool?")],
    "CreateRequest": CREATE,
    "CreateTtlRequest": CREATE + [("ttl_ms", "long")],
    "DeleteRequest": [("path", "str"), ("version", "int")],
    "PathWatchRequest": [("path", "str"), ("watch", "bool")],
    "SetDataRequest": [("path", "str"), ("data", "buf"), ("version", "int")],
    "PathRequest": [("path", "str")],
    "SetAclRequest": [("path", "str"), ("acl", "Acl[]?"), ("version", "int")],
    "CheckRequest": [("path", "str"), ("version", "int")],
    "ReconfigRequest": [("joining_servers", "str?"), ("leaving_servers", "str?"), ("new_members", "str?"),
                        ("cur_config_id", "long")],
    "WatchesRequest": [("path", "str"), ("watcher_type", "WatcherType")],
    "AddWatchRequest": [("path", "str"), ("mode", "AddWatchMode")],
    "AuthRequest": [("auth_type", "int"), ("scheme", "str?"), ("auth", "buf")],
    "SaslRequest": [("token", "buf")],
    "GetEphemeralsRequest": [("prefix_path", "str?")],
    "SetWatchesRequest": [("relative_zxid", "long"), ("data_watches", "str[]"), ("exist_watches", "str[]"),
                          ("child_watches", "str[]"), ("persistent_watches", "str[]"),
                          ("persistent_recursive_watches", "str[]")],
    "CreateResponse": [("path", "str")],
    "Create2Response": [("path", "str"), ("stat", "Stat")],
    "GetDataResponse": [("data", "buf"), ("stat", "Stat")],
    "GetAclResponse": [("acl", "Acl[]?"), ("stat", "Stat")],
    "GetChildrenResponse": [("children", "str[]")],
    "GetChildren2Response": [("children", "str[]"), ("stat", "Stat")],
    "SyncResponse": [("path", "str")],
    "SetSaslResponse": [("token", "buf")],
    "AddWatchResponse": [("err", "int")],
    "GetEphemeralsResponse": [("ephemerals", "str[]")],
    "GetAllChildrenNumberResponse": [("total_number", "int")],
    "WhoAmIResponse": [("client_info", "ClientInfo[]")],
}
REQUESTS = {
    1: "CreateRequest", 15: "CreateRequest", 19: "CreateRequest", 21: "CreateTtlRequest", 2: "DeleteRequest",
    3: "PathWatchRequest", 4: "PathWatchRequest", 8: "PathWatchRequest", 12: "PathWatchRequest",
    5: "SetDataRequest", 6: "PathRequest", 9: "PathRequest", 104: "PathRequest", 7: "SetAclRequest",
    13: "CheckRequest", 16: "ReconfigRequest", 17: "WatchesRequest", 18: "WatchesRequest",
    106: "AddWatchRequest", 100: "AuthRequest", 102: "SaslRequest", 103: "GetEphemeralsRequest",
    101: "SetWatchesRequest", 105: "SetWatchesRequest",
}
RESPONSES = {
    1: ("Create", "CreateResponse"), 15: ("Create2", "Create2Response"), 19: ("Create2", "Create2Response"),
    21: ("Create2", "Create2Response"), 3: ("Stat", "Stat"), 5: ("Stat", "Stat"), 7: ("Stat", "Stat"),
    4: ("GetData", "GetDataResponse"), 16: ("GetData", "GetDataResponse"), 6: ("GetAcl", "GetAclResponse"),
    8: ("GetChildren", "GetChildrenResponse"), 12: ("GetChildren2", "GetChildren2Response"),
    9: ("Sync", "SyncResponse"), 106: ("AddWatch", "AddWatchResponse"), 102: ("Sasl", "SetSaslResponse"),
    103: ("GetEphemerals", "GetEphemeralsResponse"), 107: ("WhoAmI", "WhoAmIResponse"),
    104: ("GetAllChildrenNumber", "GetAllChildrenNumberResponse"),
}
MULTI_RESULTS = {1: ("Created", ["str"]), 15: ("Created2", ["str", "Stat"]), 2: ("Deleted", []),
                 5: ("DataSet", ["Stat"]), 13: ("Checked", []), 8: ("Children", ["str[]"]),
                 4: ("Data", ["buf", "Stat"]), -1: ("Error", ["int"])}
WATCHER_TYPES = {1: "Children", 2: "Data", 3: "Any", 4: "Persistent", 5: "PersistentRecursive"}
ADD_WATCH_MODES = {0: "Persistent", 1: "PersistentRecursive"}


class Text:
    """A cursor over one payload; every method returns the text of what it read."""

    def __init__(self, payload):
        self.payload, self.at = payload, 0

    def take(self, count):
        piece = self.payload[self.at:self.at + count]
        if len(piece) < count:
            raise ValueError("record ends too early")
        self.at += count
        return piece

    def number(self, layout):
        return struct.unpack(">" + layout, self.take(struct.calcsize(layout)))[0]

    def value(self, kind):
        if kind == "bool?":
            # The optional last byte of the handshake.
            return "None" if self.at == len(self.payload) else "Some(%s)" % self.value("bool")
        if kind.endswith("[]") or kind.endswith("[]?"):
            count = self.number("i")
            if count == -1:
                return "None"
            listed = "[%s]" % ", ".join(self.value(kind.split("[")[0]) for _ in range(count))
            return "Some(%s)" % listed if kind.endswith("?") else listed
        if kind in ("str", "str?", "buf"):
            length = self.number("i")
            if length == -1:
                return "None"
            piece = self.take(length)
            text = "[%s]" % ", ".join(map(str, piece)) if kind == "buf" else '"%s"' % quote(piece.decode())
            return text if kind == "str" else "Some(%s)" % text
        if kind == "int":
            return str(self.number("i"))
        if kind == "long":
            return str(self.number("q"))
        if kind == "bool":
            return "true" if self.number("b") else "false"
        if kind in ("Xid", "Perms"):
            return "%s(%d)" % (kind, self.number("i"))
        if kind == "SessionId":
            return hex(self.number("Q"))
        if kind == "WatcherType":
            return WATCHER_TYPES[self.number("i")]
        if kind == "AddWatchMode":
            return ADD_WATCH_MODES[self.number("i")]
        return self.record(kind)

    def record(self, name, fields=None):
        parts = ["%s: %s" % (field, self.value(kind)) for field, kind in fields or RECORDS[name]]
        return "%s { %s }" % (name, ", ".join(parts))

    def sequence(self, entry):
        entries = []
        while True:
            op, done, _err = self.number("i"), self.number("b"), self.number("i")
            if done:
                return "[%s]" % ", ".join(entries)
            entries.append(entry(op))

    def request(self, op):
        if op in (14, 22):
            listed = self.sequence(lambda sub: "%s(%s)" % (VARIANT[sub], self.record(REQUESTS[sub])))
            return "%s(%s)" % (VARIANT[op], listed)
        if op == 101:
            fields = RECORDS["SetWatchesRequest"]
            old = self.record("SetWatchesRequest", fields[:4])
            return "SetWatches(%s)" % old.replace(" }", ", persistent_watches: [], persistent_recursive_watches: [] }")
        return "%s(%s)" % (VARIANT[op], self.record(REQUESTS[op])) if op in REQUESTS else VARIANT[op]

    def multi_result(self, op):
        name, kinds = MULTI_RESULTS[op]
        return "%s(%s)" % (name, ", ".join(map(self.value, kinds))) if kinds else name

    def response(self, op):
        if op in (14, 22):
            return "Multi(%s)" % self.sequence(self.multi_result)
        if op in RESPONSES:
            variant, name = RESPONSES[op]
            return "%s(%s)" % (variant, self.record(name))
        return "Empty"


def quote(text):
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
