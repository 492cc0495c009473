"""Members with several addresses, on Apache ZooKeeper and on ringkeeper alike."""

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadArgumentsError

from server import Server, four_letter_word, free_port, running
from test_reconfig import SUPER, change

ALL = (1, 2, 3)
HOSTS = ("127.0.0.1", "127.0.0.2")
ENABLED = {"multiAddress.enabled": "true"}


class Members:
    """Three servers in two networks, each of which has the same ports in both."""

    def __init__(self):
        properties = [f"-Dzookeeper.{key}={value}" for key, value in ENABLED.items()]
        self.servers = {
            number: Server(initLimit="10", syncLimit="5", java_properties=properties, **ENABLED) for number in ALL
        }
        self.ports = {number: f"{free_port()}:{free_port()}" for number in ALL}
        for number, server in self.servers.items():
            (server.data_dir / "myid").write_text(f"{number}\n")
            with server.config_path.open("a") as config:
                # Not in the order in which they are shown.
                config.writelines(f"{self.line(other, *reversed(HOSTS))}\n" for other in ALL)

    def line(self, number, *hosts):
        addresses = "|".join(f"{host}:{self.ports[number]}" for host in hosts)
        return f"server.{number}={addresses}:participant;127.0.0.1:{self.servers[number].port}"

    def text(self, config, **lines):
        """What /zookeeper/config is to be, but for its version, which is the one that `config` has."""
        shown = [lines.get(f"of_{number}", self.line(number, *HOSTS)) for number in ALL]
        return "\n".join([*shown, config.decode().rsplit("\n", 1)[1]]).encode()


def test_addresses_are_shown_by_rising_host_and_change_while_the_server_runs():
    members = Members()
    servers = members.servers
    with running(servers.values()):
        operator = KazooClient(",".join(server.address for server in servers.values()), timeout=10, auth_data=SUPER)
        operator.start(30)
        config, _ = operator.get("/zookeeper/config")
        assert config == members.text(config)
        operator.create("/kept", b"in two networks")
        ports = members.ports[1].split(":")
        shown = four_letter_word(servers[1].port, "conf").splitlines()
        assert {f"quorumPort={ports[0]}", f"electionPort={ports[1]}"} <= set(shown)
        for hosts in (HOSTS[:1], HOSTS):
            changed = members.line(2, *hosts)
            config, _ = operator.retry(change, operator, joining=changed)
            assert config == members.text(config, of_2=changed)
        first, second = (f"{host}:{members.ports[2]}" for host in HOSTS)
        for addresses in (f"{first}:participant|{second}:observer", f"{first}|{second}:voter", f"{first}|{HOSTS[1]}"):
            with pytest.raises(BadArgumentsError):
                operator.reconfig(joining=f"server.2={addresses};{servers[2].port}", leaving=None, new_members=None)
        operator.retry(operator.set, "/kept", b"and after the changes")
        assert operator.retry(operator.get, "/kept")[0] == b"and after the changes"
        operator.stop()
