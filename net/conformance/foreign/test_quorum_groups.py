"""Voters in groups with weights, on Apache ZooKeeper and on ringkeeper alike: the steps of Apache's own
ReconfigTest.testQuorumSystemChange and HierarchicalQuorumTest, which start their servers inside of the test."""

import contextlib

import pytest
from kazoo.exceptions import BadArgumentsError

from server import four_letter_word, running
from test_reconfig import ALL, FIRST, SUPER, Members, change, members  # noqa: F401 (a fixture)

GROUPS = ["group.1=3:4:5", "group.2=1:2", "weight.1=0", "weight.2=0"]
WEIGHTS = ["weight.1=0", "weight.2=0", "weight.3=1", "weight.4=1", "weight.5=1"]


def text(lines, config):
    """What /zookeeper/config is to be, but for its version, which is the one that `config` has."""
    version = config.decode().rsplit("\n", 1)[1]
    assert version.startswith("version=")
    return "\n".join([*lines, version]).encode()


def bulk(ensemble, numbers, groups=()):
    return ",".join([*groups, *(ensemble.lines[number] for number in numbers)])


def write_and_read(client, value):
    client.retry(client.set, "/kept", value)
    assert client.retry(client.get, "/kept")[0] == value


def test_the_members_change_from_majorities_to_groups_and_back(members):  # noqa: F811
    for number in (4, 5):
        members.servers[number].start()
    operator = members.client(*FIRST, auth_data=SUPER)
    operator.create("/kept", b"before")
    servers = [members.lines[number] for number in ALL]
    config, _ = change(operator, new_members=bulk(members, ALL))
    assert config == text(servers, config)
    config, _ = change(operator, new_members=bulk(members, ALL, GROUPS))
    assert config == text([*servers, "group.1=3:4:5", "group.2=1:2", *WEIGHTS], config)
    for wrong in ({"leaving": "1"}, {"joining": members.lines[1]}):
        with pytest.raises(BadArgumentsError):
            operator.reconfig(**{"joining": None, "leaving": None, "new_members": None, **wrong})
    # Servers 1 and 2 weigh nothing: 4 and 5 have more than half of the only group with weight.
    for number in FIRST:
        members.servers[number].kill()
    operator.stop()
    survivor = members.client(4, 5, auth_data=SUPER)
    write_and_read(survivor, b"by two of five")
    assert survivor.get("/zookeeper/config")[0] == config
    members.servers[1].start()
    members.servers[2].start()
    config, _ = survivor.retry(change, survivor, new_members=bulk(members, ALL))
    assert config == text(servers, config)
    members.servers[4].kill()
    write_and_read(survivor, b"by three of five")
    survivor.stop()


def test_servers_of_weight_0_lead_nobody_and_make_no_quorum(members):  # noqa: F811
    operator = members.client(*FIRST, auth_data=SUPER)
    groups = ["group.7=1:2:3", "weight.2=0", "weight.3=0"]
    config, _ = change(operator, new_members=bulk(members, FIRST, groups))
    lines = [members.lines[number] for number in FIRST]
    assert config == text([*lines, "group.7=1:2:3", "weight.1=1", "weight.2=0", "weight.3=0"], config)
    operator.stop()
    members.servers[2].kill()
    members.servers[3].kill()
    alone = members.client(1, auth_data=SUPER)
    alone.retry(alone.create, "/kept", b"by the only one that weighs")
    assert "Mode: leader" in four_letter_word(members.servers[1].port, "srvr")
    alone.stop()


def test_groups_that_make_no_sense_are_refused(members):  # noqa: F811
    operator = members.client(*FIRST, auth_data=SUPER)
    before = operator.get("/zookeeper/config")[0]
    for groups in (
        ["group.1=1:2"],
        ["weight.1=1"],
        ["group.1=1:2", "group.2=2:3"],
        ["group.1=1:2:3", "some.thing=1"],
    ):
        with pytest.raises(BadArgumentsError):
            operator.reconfig(joining=None, leaving=None, new_members=bulk(members, FIRST, groups))
    assert operator.get("/zookeeper/config")[0] == before
    operator.stop()


def test_an_ensemble_is_founded_in_groups():
    ensemble = Members()
    groups = ["group.2=1:3", "group.1=2", "weight.3=2"]
    for number in FIRST:
        with ensemble.servers[number].config_path.open("a") as config:
            config.write("\n".join(groups) + "\n")
    with contextlib.ExitStack() as stack:
        stack.enter_context(running([ensemble.servers[number] for number in FIRST]))
        for number in set(ALL) - set(FIRST):
            stack.callback(ensemble.servers[number].remove)
        client = ensemble.client(*FIRST, auth_data=SUPER)
        config, _ = client.get("/zookeeper/config")
        lines = [ensemble.lines[number] for number in FIRST]
        described = ["group.1=2", "group.2=1:3", "weight.1=1", "weight.2=1", "weight.3=2"]
        assert config == text([*lines, *described], config)
        client.create("/kept", b"before")
        # Server 3 has two thirds of its group's weight.
        ensemble.servers[1].kill()
        client.stop()
        rest = ensemble.client(2, 3)
        write_and_read(rest, b"by two groups")
        rest.stop()
