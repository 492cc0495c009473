"""Makes the data folders in net/apache/tests/fixtures: `run`'s environment, then

    python make_apache_fixtures.py

Each is `<name>.tar.gz`: a `version-2` of Apache ZooKeeper that was killed while clients were connected, and
`expected`, what clients saw before. A line of it is a znode: path, data in hex or "null", Stat, ACL, between tabs.
"""

import io
import tarfile
import threading

import apache_tree
import server

FIXTURES = server.HERE.parents[1] / "apache" / "tests" / "fixtures"

# Name, release, compression of snapshots.
FOLDERS = [("zookeeper-3.9", "lib", ""), ("zookeeper-3.9-gz", "lib", "gz"), ("zookeeper-3.9-snappy", "lib", "snappy"),
           ("zookeeper-3.8", "lib38", ""), ("zookeeper-3.8-without-digests", "lib38", "")]


def make(name, release, compression):
    """Runs a server on a new folder, fills it, and packs it."""
    digests = "false" if name.endswith("without-digests") else "true"
    # Small files, and a snapshot every hundred transactions.
    properties = ["-Dzookeeper.preAllocSize=16", f"-Dzookeeper.snapshot.compression.method={compression}",
                  f"-Dzookeeper.digest.enabled={digests}", f"-Dzookeeper.closeSessionTxn.enabled={digests}"]
    apache = server.Server("zookeeper", release, properties, snapCount=100)
    try:
        apache.start()
        apache_tree.bulk(apache.address, 700)
        churning = [threading.Thread(target=apache_tree.churn, args=(apache.address, 200)) for _ in range(3)]
        for thread in churning:
            thread.start()
        owners = apache_tree.fill(apache.address)
        for thread in churning:
            thread.join()
        expected = apache_tree.describe(apache.address)
        apache.kill()
        pack(name, apache.data_dir, expected)
        for owner in owners:
            owner.stop()
    finally:
        apache.remove()


def pack(name, data_dir, expected):
    """Keeps the two newest snapshots and the logs after the older one, as purging does."""
    version = data_dir / "version-2"

    def zxid(file):
        return int(file.name.split(".")[1], 16)

    snapshots = sorted(version.glob("snapshot.*"), key=zxid)[-2:]
    logs = sorted(version.glob("log.*"), key=zxid)
    first = max((log for log in logs if zxid(log) <= zxid(snapshots[0])), key=zxid, default=logs[0])
    files = [*snapshots, *(log for log in logs if zxid(log) >= zxid(first))]
    FIXTURES.mkdir(parents=True, exist_ok=True)
    with tarfile.open(FIXTURES / f"{name}.tar.gz", "w:gz") as tar:
        for file in files:
            tar.add(file, f"version-2/{file.name}", filter=anonymous)
        text = "".join(line(path, *znode) for path, znode in sorted(expected.items())).encode()
        entry = tarfile.TarInfo("expected")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))


def anonymous(entry):
    """Nothing of the machine that made the folder."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def line(path, data, stat, acls):
    """A znode as a line of `expected`."""
    fields = [path, "null" if data is None else data.hex(), " ".join(map(str, stat)),
              ",".join(f"{perms}:{scheme}:{id}" for perms, scheme, id in acls)]
    return "\t".join(fields) + "\n"


if __name__ == "__main__":
    for folder in FOLDERS:
        make(*folder)
        print(folder[0])
