"""Metrics for Prometheus: what Apache ZooKeeper shows has the same name and type here, or docs/metrics.md says why it is
not given."""

import fnmatch
import re
import urllib.request

import pytest
from kazoo.client import KazooClient
from prometheus_client.parser import text_string_to_metric_families

from server import HERE, SUBJECT, Server, free_port

PROVIDER = "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"


def types(text):
    """Type by name."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))


def not_given():
    """Patterns of the names that the page leaves out."""
    page = (HERE.parents[2] / "docs" / "metrics.md").read_text()
    rows = page[page.index("## Metrics of ZooKeeper that are not given"):].splitlines()
    return [name for row in rows if row.startswith("| `") for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


def set_quota(server):
    """Some metrics are there if there is a quota."""
    client = KazooClient(server.address, timeout=10)
    client.start()
    try:
        for path, data in (("/app", b"1"), ("/zookeeper/quota/app/zookeeper_limits", b"count=5,bytes=100"),
                           ("/zookeeper/quota/app/zookeeper_stats", b"count=1,bytes=1")):
            client.create(path, data, makepath=True)
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def shown():
    """What Apache ZooKeeper shows, and what the server under test does."""
    texts = []
    for subject in ("zookeeper", SUBJECT):
        port = free_port()
        settings = {"className": PROVIDER, "httpHost": "127.0.0.1", "httpPort": port}
        server = Server(subject=subject, **{f"metricsProvider.{key}": value for key, value in settings.items()})
        try:
            set_quota(server.start())
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                texts.append(answer.read().decode())
        finally:
            server.remove()
    return texts


def test_a_metric_of_zookeeper_has_its_name_and_type(shown):
    theirs, ours = map(types, shown)
    assert len(theirs) > 100
    # A server alone has no learners, and so no times of their acknowledgements.
    left_out = [*not_given(), "ack_latency"]
    missing = [name for name in theirs.keys() - ours.keys()
               if not any(fnmatch.fnmatch(name, pattern) for pattern in left_out)]
    assert missing == []
    assert {name: ours[name] for name in ours.keys() & theirs.keys()} \
        == {name: theirs[name] for name in ours.keys() & theirs.keys()}


def test_what_is_left_out_is_not_there(shown):
    if SUBJECT == "zookeeper":
        pytest.skip("leaves out nothing")
    given = types(shown[1])
    assert [name for name in given if any(fnmatch.fnmatch(name, pattern) for pattern in not_given())] == []


def test_a_library_of_prometheus_reads_what_is_shown(shown):
    families = list(text_string_to_metric_families(shown[1]))
    names = [family.name for family in families]
    assert len(names) > 100 and len(names) == len(set(names))
    assert [family.name for family in families if family.type == "unknown" or not family.documentation] == []
    samples = [(sample.name, tuple(sorted(sample.labels.items()))) for family in families for sample in family.samples]
    assert len(samples) == len(set(samples))
