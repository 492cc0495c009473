"""Every block of the manual is run by a test, or has a reason why not."""

import importlib
import pathlib

from page import DOCS, TAKEN, Page

PICTURE = "shows how something is; nothing of it is typed"
MEASURES = "takes a release build of bench-harness, and hours"
NOT_RUN = {
    ("install.md", "Install on Debian, or in a container", "text", 0): "test_package.py installs the package",
    ("install.md", "Build it by a profile", "text", 0): "takes three release builds",
    ("install.md", "In a container", "text", 0): "takes Docker; test_container.py runs its contents",
    ("install.md", "In a container", "text", 1): "takes a cluster with Helm",
    ("log-positions.md", "Log positions", "text", 0): PICTURE,
    ("log-positions.md", "Log positions", "text", 1): PICTURE,
    ("measuring.md", "Measuring", "sh", 0): MEASURES,
    ("measuring.md", "Measuring", "sh", 1): MEASURES,
    ("measuring.md", "Measuring", "sh", 2): MEASURES,
    ("measuring.md", "The hot parts one by one", "sh", 0): MEASURES,
    ("membership.md", "ZooKeeper's files", "sh", 0): "test_dynamic_config.py starts Apache ZooKeeper from what it writes",
    ("membership.md", "Observers behind followers", "text", 0): "takes five servers; test_observers.py has such lines",
    ("membership.md", "A member with several addresses", "text", 0): "takes two networks; test_several_addresses.py has such lines",
    ("metrics.md", "Metrics", "text", 0): "is a question to Prometheus",
    ("operations.md", "When requests are slow", "text", 0): PICTURE,
    ("operations.md", "When requests are slow", "text", 1): "is a transcript whose figures no second run has; test_why_slow.py asks for such findings",
    ("rust-client.md", "The Rust client and its recipes", "rust", 0): "`cargo test` compiles it",
    ("security.md", "ringkeeper's own client", "rust,ignore", 0): "is a part of a line of Rust",
    ("security.md", "Kerberos", "text", 0): "takes a KDC, which test_kerberos.py has",
    ("security.md", "Kerberos between servers", "text", 0): "takes a KDC, which test_peer_kerberos.py has",
    ("security.md", "Kerberos between servers", "text", 1): "the same",
    ("simulation.md", "Simulation", "text", 0): "takes a build of the simulator",
    ("storage.md", "Snapshots", "text", 0): PICTURE,
    ("storage.md", "Damage", "text", 0): PICTURE,
}


def test_every_block_is_run_or_has_a_reason_why_not():
    for path in pathlib.Path(__file__).parent.glob("test_manual*.py"):
        importlib.import_module(path.stem)
    blocks = {(path.name, *key) for path in DOCS.glob("*.md") for key in Page(path.name).found}
    assert blocks - TAKEN == NOT_RUN.keys(), (blocks - TAKEN) ^ NOT_RUN.keys()
