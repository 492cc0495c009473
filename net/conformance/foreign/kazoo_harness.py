"""Pytest plugin: lets kazoo's own test-suite start the server under test instead of its own ZooKeeper.

kazoo.testing starts servers through `kazoo.testing.common.ManagedZooKeeper`; this replaces that class by
one that starts `server.py`'s command with a configuration of the same meaning. Apache ZooKeeper and
ringkeeper go through the very same path.
"""

import pathlib
import subprocess

import OpenSSL
import kazoo.testing.common as common

import server


class ManagedServer(common.ManagedZooKeeper):
    """A server of the suite's cluster; the suite's own class keeps the folder and the ports."""

    def run(self):
        """Writes the configuration and starts the process."""
        if self.running:
            return
        folder = pathlib.Path(self.working_path)
        data_dir = folder / "data"
        data_dir.mkdir(parents=True, exist_ok=True)
        (data_dir / "myid").write_text(str(self.server_info.server_id))
        properties = list(self.java_system_properties)
        if self.jaas_config:
            self._jaas_file(folder).touch(mode=0o600)
            self._jaas_file(folder).write_text(self.jaas_config)
            properties.append(f"-Djava.security.auth.login.config={self._jaas_file(folder)}")
        config_path = folder / "zoo.cfg"
        config_path.write_text("\n".join(self._configuration(folder, data_dir)) + "\n")
        arguments = server.command(config_path, self.client_port, data_dir, java_properties=properties)
        with open(folder / "zookeeper.log", "ab") as log:
            self.process = subprocess.Popen(arguments, stdout=log, stderr=log, cwd=folder)
        self._running = True

    @staticmethod
    def _jaas_file(folder):
        return folder / "jaas.conf"

    def _configuration(self, folder, data_dir):
        info = self.server_info
        yield from ("tickTime=2000", f"dataDir={data_dir}", f"clientPort={info.client_port}", "maxClientCnxns=0",
                    "admin.enableServer=false", "readonlymode.enabled=true", f"secureClientPort={info.secure_client_port}",
                    "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory")
        if self.jaas_config:
            yield "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
            # Apache ZooKeeper overlooks this line, and takes the file from its command line.
            yield f"java.security.auth.login.config={self._jaas_file(folder)}"
        yield from self.configuration_entries
        yield from (entry.removeprefix("-Dzookeeper.") for entry in self.java_system_properties
                    if entry.startswith("-Dzookeeper."))
        yield from self._certificates(folder)
        if self.peers:
            yield from ("initLimit=4", "syncLimit=2", f"peerType={info.peer_type}")
            for peer in (info, *self.peers):
                yield (f"server.{peer.server_id}=localhost:{peer.leader_port}:{peer.election_port}"
                       f":{peer.peer_type}")

    def _certificates(self, folder):
        """The suite's certificates as PEM, which both servers read."""
        crypto = OpenSSL.crypto
        tls = self.ssl_configuration
        key_store, trust_store = folder / "keystore.pem", folder / "truststore.pem"
        key_store.write_bytes(crypto.dump_certificate(crypto.FILETYPE_PEM, tls["server_cert"])
                              + crypto.dump_privatekey(crypto.FILETYPE_PEM, tls["server_key"]))
        trust_store.write_bytes(tls["ca_cert_pem"])
        yield from (f"ssl.keyStore.location={key_store}", f"ssl.trustStore.location={trust_store}")


common.ManagedZooKeeper = ManagedServer
