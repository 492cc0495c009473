package org.apache.zookeeper.server.quorum;

import java.io.File;
import java.io.IOException;
import java.io.StringReader;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.PortAssignment;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZKTestCase;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.test.ClientBase;
import org.apache.zookeeper.test.QuorumBase;
import org.junit.jupiter.api.AfterEach;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Stands in for the class of this name in Apache ZooKeeper's tests, which gives each of its servers the text
 * of a configuration file. The files go to processes of ringkeeper as they are.
 */
public class QuorumPeerTestBase extends ZKTestCase implements Watcher {

    protected static final Logger LOG = LoggerFactory.getLogger(QuorumPeerTestBase.class);
    public static final int TIMEOUT = 5000;

    protected Servers servers;
    protected int numServers;

    @AfterEach
    public void tearDown() throws Exception {
        if (servers != null && servers.mt != null) {
            servers.shutDownAllServers();
        }
        MainThread.endAll();
    }

    public void process(WatchedEvent event) {
    }

    /** Whose field the tests look into. */
    public static class TestQPMain extends QuorumPeerMain {

        public void shutdown() {
            QuorumBase.shutdown(quorumPeer);
        }
    }

    /** A server and its configuration. */
    public static class MainThread implements Runnable {

        public static final int UNSET_STATIC_CLIENTPORT = -1;
        public static final int UNSET_MYID = -1;
        private static final int ADMIN_PORT = 8080;

        /** All that a test has started, since a test that fails leaves some. */
        private static final List<MainThread> STARTED = new CopyOnWriteArrayList<>();

        final File confFile;
        final File tmpDir;
        volatile TestQPMain main;
        File baseDir;
        private final int myid;
        private final int clientPort;
        private final String quorumCfgSection;
        private final Map<String, String> otherConfigs;

        public MainThread(int myid, String members) throws IOException {
            this(myid, members, true);
        }

        public MainThread(int myid, String members, boolean dynamicFile) throws IOException {
            this(myid, UNSET_STATIC_CLIENTPORT, members, dynamicFile);
        }

        public MainThread(int myid, String members, Integer secureClientPort, boolean dynamicFile) throws IOException {
            this(myid, UNSET_STATIC_CLIENTPORT, ADMIN_PORT, secureClientPort, members, null, null, dynamicFile, null);
        }

        public MainThread(int myid, int clientPort, String members, boolean dynamicFile) throws IOException {
            this(myid, clientPort, members, dynamicFile, null);
        }

        public MainThread(int myid, int clientPort, String members, String peerType, boolean dynamicFile)
                throws IOException {
            this(myid, clientPort, ADMIN_PORT, members, null, peerType, dynamicFile);
        }

        public MainThread(int myid, int clientPort, String members, boolean dynamicFile, String version)
                throws IOException {
            this(myid, clientPort, ADMIN_PORT, members, null, null, dynamicFile, version);
        }

        public MainThread(int myid, int clientPort, String members, String settings) throws IOException {
            this(myid, clientPort, ADMIN_PORT, members, settings);
        }

        public MainThread(int myid, int clientPort, int adminPort, String members, String settings)
                throws IOException {
            this(myid, clientPort, adminPort, members, settings, null, true);
        }

        public MainThread(int myid, int clientPort, int adminPort, String members, String settings, String peerType,
                boolean dynamicFile) throws IOException {
            this(myid, clientPort, adminPort, members, settings, peerType, dynamicFile, null);
        }

        public MainThread(int myid, int clientPort, int adminPort, String members, String settings, String peerType,
                boolean dynamicFile, String version) throws IOException {
            this(myid, clientPort, adminPort, null, members, settings, peerType, dynamicFile, version);
        }

        public MainThread(int myid, int clientPort, String members) throws IOException {
            this(myid, clientPort, members, new HashMap<>());
        }

        public MainThread(int myid, int clientPort, String members, Map<String, String> settings) throws IOException {
            this(myid, clientPort, members, settings, 4000);
        }

        /** Members and settings are in one file. */
        public MainThread(int myid, int clientPort, String members, Map<String, String> settings, int tickTime)
                throws IOException {
            this.myid = myid;
            this.clientPort = clientPort;
            quorumCfgSection = members;
            otherConfigs = settings;
            baseDir = ClientBase.createTmpDir();
            confFile = new File(baseDir, "zoo.cfg");
            tmpDir = new File(baseDir, "data");
            var text = new StringBuilder();
            settings.forEach((key, value) -> text.append(key + "=" + value + "\n"));
            if (clientPort != UNSET_STATIC_CLIENTPORT) {
                text.append("clientPort=" + clientPort + "\n");
            }
            write(tmpDir, tickTime, text + members + "\n");
        }

        /**
         * Members are in a file of their own, if the test wants that. The AdminServer's port is ours to
         * choose.
         */
        public MainThread(int myid, int clientPort, int adminPort, Integer secureClientPort, String members,
                String settings, String peerType, boolean dynamicFile, String version) throws IOException {
            this.myid = myid;
            this.clientPort = clientPort;
            quorumCfgSection = members;
            otherConfigs = new HashMap<>();
            baseDir = ClientBase.createTmpDir();
            tmpDir = baseDir;
            confFile = new File(tmpDir, "zoo.cfg");
            var text = new StringBuilder(settings == null ? "" : settings);
            if (clientPort != UNSET_STATIC_CLIENTPORT) {
                text.append("clientPort=" + clientPort + "\n");
            }
            if (secureClientPort != null) {
                text.append("secureClientPort=" + secureClientPort + "\n");
            }
            if (peerType != null) {
                text.append("peerType=" + peerType + "\n");
            }
            if (dynamicFile) {
                File file = new File(tmpDir, "zoo.cfg.dynamic" + (version == null ? "" : "." + version));
                Files.writeString(file.toPath(), members);
                text.append("dynamicConfigFile=" + file + "\n");
            } else {
                text.append(members);
            }
            File dataDir = new File(tmpDir, "data");
            write(dataDir, 4000, text.toString());
            ClientBase.createInitializeFile(dataDir);
        }

        private void write(File dataDir, int tickTime, String settings) throws IOException {
            Files.createDirectories(dataDir.toPath());
            if (myid != UNSET_MYID) {
                Files.writeString(new File(dataDir, "myid").toPath(), myid + "\n");
            }
            // Other properties are options, which come after the members' lines have been read.
            boolean multiAddress = Boolean.getBoolean(QuorumPeer.CONFIG_KEY_MULTI_ADDRESS_ENABLED);
            Files.writeString(confFile.toPath(), "tickTime=" + tickTime + "\ninitLimit=10\nsyncLimit=5\ndataDir="
                    + dataDir + "\nmultiAddress.enabled=" + multiAddress + "\n" + settings);
        }

        public synchronized void start() {
            start(getTestQPMain());
        }

        public synchronized void start(TestQPMain main) {
            this.main = main;
            try {
                var member = new Member(myid, confFile, quorumCfgSection);
                if (clientPort != UNSET_STATIC_CLIENTPORT) {
                    member.setClientPort(clientPort);
                }
                main.quorumPeer = member;
                STARTED.add(this);
                member.start();
            } catch (IOException failure) {
                throw new IllegalStateException(failure);
            }
        }

        public TestQPMain getTestQPMain() {
            return new TestQPMain();
        }

        static void endAll() throws InterruptedException {
            for (MainThread server : STARTED) {
                server.shutdown();
            }
            STARTED.clear();
        }

        private Member member() {
            return main == null ? null : (Member) main.quorumPeer;
        }

        public void run() {
            start();
        }

        public void shutdown() throws InterruptedException {
            if (main != null) {
                main.shutdown();
            }
        }

        public void join(long timeout) throws InterruptedException {
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeout);
            while (isAlive() && System.nanoTime() < deadline) {
                Thread.sleep(50);
            }
        }

        public boolean isAlive() {
            return member() != null && member().process().runs();
        }

        public boolean isQuorumPeerRunning() {
            return isAlive() && !member().standsAlone();
        }

        public QuorumPeer getQuorumPeer() {
            if (member() != null) {
                member().refresh();
            }
            return member();
        }

        public File[] getDynamicFiles() {
            return getFilesWithPrefix("zoo.cfg.dynamic");
        }

        public File[] getFilesWithPrefix(String prefix) {
            return tmpDir.listFiles((folder, name) -> name.startsWith(prefix));
        }

        public File getFileByName(String name) {
            File file = new File(tmpDir, String.valueOf(name));
            return file.isFile() ? file : null;
        }

        public void writeTempDynamicConfigFile(String members, String version) throws IOException {
            Files.writeString(new File(tmpDir, "zoo.cfg.dynamic.next").toPath(), members + "\nversion=" + version);
        }

        public String getPropFromStaticFile(String key) throws IOException {
            var settings = new Properties();
            settings.load(new StringReader(Files.readString(confFile.toPath())));
            return settings.getProperty(key, "");
        }

        public void deleteBaseDir() {
            ClientBase.recursiveDelete(baseDir);
        }

        public int getMyid() {
            return myid;
        }

        public int getClientPort() {
            return clientPort;
        }

        public String getQuorumCfgSection() {
            return quorumCfgSection;
        }

        public Map<String, String> getOtherConfigs() {
            return otherConfigs;
        }

        public File getConfFile() {
            return confFile;
        }
    }

    /** Servers, and a client of each. */
    public static class Servers {

        public MainThread[] mt;
        public ZooKeeper[] zk;
        public int[] clientPorts;
        public int[] adminPorts;

        public void shutDownAllServers() throws InterruptedException {
            for (MainThread server : mt) {
                if (server != null) {
                    server.shutdown();
                }
            }
        }

        public void restartAllServersAndClients(Watcher watcher) throws IOException, InterruptedException {
            for (MainThread server : mt) {
                if (!server.isAlive()) {
                    server.start();
                }
            }
            for (int index = 0; index < zk.length; index++) {
                restartClient(index, watcher);
            }
        }

        public void restartClient(int index, Watcher watcher) throws IOException, InterruptedException {
            if (zk[index] != null) {
                zk[index].close();
            }
            zk[index] = new ZooKeeper("127.0.0.1:" + clientPorts[index], ClientBase.CONNECTION_TIMEOUT, watcher);
        }

        public int findLeader() {
            return find(QuorumPeer.ServerState.LEADING);
        }

        public int findAnyFollower() {
            return find(QuorumPeer.ServerState.FOLLOWING);
        }

        public int findAnyObserver() {
            return find(QuorumPeer.ServerState.OBSERVING);
        }

        private int find(QuorumPeer.ServerState state) {
            for (int index = 0; index < mt.length; index++) {
                if (mt[index].getQuorumPeer().getPeerState() == state) {
                    return index;
                }
            }
            return -1;
        }
    }

    protected Servers LaunchServers(int voters) throws IOException, InterruptedException {
        return LaunchServers(voters, (Integer) null);
    }

    protected Servers LaunchServers(int voters, Map<String, String> settings) throws IOException, InterruptedException {
        return LaunchServers(voters, 0, null, settings);
    }

    protected Servers LaunchServers(int voters, Integer tickTime) throws IOException, InterruptedException {
        return LaunchServers(voters, 0, tickTime);
    }

    protected Servers LaunchServers(int voters, int observers, Integer tickTime)
            throws IOException, InterruptedException {
        return LaunchServers(voters, observers, tickTime, new HashMap<>());
    }

    protected Servers LaunchServers(int voters, int observers, Integer tickTime, Map<String, String> settings)
            throws IOException, InterruptedException {
        int count = voters + observers;
        var started = new Servers();
        started.clientPorts = new int[count];
        started.adminPorts = new int[count];
        started.mt = new MainThread[count];
        started.zk = new ZooKeeper[count];
        var members = new StringBuilder();
        for (int id = 0; id < count; id++) {
            started.clientPorts[id] = PortAssignment.unique();
            started.adminPorts[id] = PortAssignment.unique();
            members.append("server." + id + "=127.0.0.1:" + PortAssignment.unique() + ":" + PortAssignment.unique()
                    + (id < voters ? ":participant" : ":observer") + ";127.0.0.1:" + started.clientPorts[id] + "\n");
        }
        for (int id = 0; id < count; id++) {
            started.mt[id] = new MainThread(id, started.clientPorts[id], members.toString(), settings,
                    tickTime == null ? 4000 : tickTime);
            started.mt[id].start();
            started.restartClient(id, this);
        }
        waitForAll(started, ZooKeeper.States.CONNECTED);
        return started;
    }

    public static void waitForOne(ZooKeeper client, ZooKeeper.States state) throws InterruptedException {
        waitForAll(new ZooKeeper[] {client}, state);
    }

    protected void waitForAll(Servers servers, ZooKeeper.States state) throws InterruptedException {
        waitForAll(servers.zk, state);
    }

    public static void waitForAll(ZooKeeper[] clients, ZooKeeper.States state) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ClientBase.CONNECTION_TIMEOUT);
        while (!Arrays.stream(clients).allMatch(client -> client.getState() == state)) {
            if (System.nanoTime() > deadline) {
                logStates(clients);
                throw new RuntimeException("Waiting too long");
            }
            Thread.sleep(100);
        }
    }

    public static void logStates(ZooKeeper[] clients) {
        Arrays.stream(clients).forEach(client -> LOG.error("{}", client));
    }
}
