package org.apache.zookeeper.test;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.util.EnumSet;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.zookeeper.PortAssignment;
import org.apache.zookeeper.server.quorum.Member;
import org.apache.zookeeper.server.quorum.QuorumPeer;
import org.apache.zookeeper.server.quorum.QuorumPeer.ServerState;

/**
 * Stands in for the class of this name in Apache ZooKeeper's tests: an ensemble of 2n + 1 servers with the
 * ids from 1 on, which are processes of ringkeeper.
 */
public class QuorumUtil {

    private static final Set<ServerState> CONNECTED =
            EnumSet.of(ServerState.LEADING, ServerState.FOLLOWING, ServerState.OBSERVING);

    public final int N;
    public final int ALL;
    public boolean disableJMXTest;

    private final int syncLimit;
    private final TreeMap<Integer, PeerStruct> peers = new TreeMap<>();
    private String members = "";
    private boolean localSessions;

    /** A server of the ensemble, the one that was started last under this id. */
    public static class PeerStruct {

        public int id;
        public QuorumPeer peer;
        public File dataDir;
        public int clientPort;
    }

    public QuorumUtil(int n) {
        this(n, 3);
    }

    public QuorumUtil(int n, int syncLimit) {
        N = n;
        ALL = 2 * n + 1;
        this.syncLimit = syncLimit;
        try {
            for (int id = 1; id <= ALL; id++) {
                var server = new PeerStruct();
                server.id = id;
                server.dataDir = ClientBase.createTmpDir();
                server.clientPort = PortAssignment.unique();
                peers.put(id, server);
                members += QuorumBase.line(id, PortAssignment.unique(), PortAssignment.unique(), "participant",
                        server.clientPort);
            }
            for (int id = 1; id <= ALL; id++) {
                prepare(id);
            }
        } catch (IOException failure) {
            throw new RuntimeException(failure);
        }
    }

    private Member prepare(int id) throws IOException {
        PeerStruct server = peers.get(id);
        var member = new Member(id, QuorumBase.config(server.dataDir, id, "syncLimit=" + syncLimit
                + "\nlocalSessionsEnabled=" + localSessions + "\nlocalSessionsUpgradingEnabled=true\n" + members),
                members);
        server.peer = member;
        return member;
    }

    public PeerStruct getPeer(int id) {
        PeerStruct server = peers.get(id);
        ((Member) server.peer).settle();
        return server;
    }

    public void enableLocalSession(boolean enabled) {
        localSessions = enabled;
    }

    public void startAll() throws IOException {
        startFirst(ALL);
    }

    public void startQuorum() throws IOException {
        startFirst(N + 1);
    }

    private void startFirst(int count) throws IOException {
        shutdownAll();
        for (int id = 1; id <= count; id++) {
            start(id);
        }
        for (int id = 1; id <= count; id++) {
            waitUntilItServes(id);
        }
    }

    public void start(int id) throws IOException {
        prepare(id).start();
    }

    public void restart(int id) throws IOException {
        start(id);
        waitUntilItServes(id);
    }

    public void startThenShutdown(int id) throws IOException {
        restart(id);
        shutdown(id);
    }

    private void waitUntilItServes(int id) {
        assertTrue(ClientBase.waitForServerUp("127.0.0.1:" + peers.get(id).clientPort, ClientBase.CONNECTION_TIMEOUT),
                "server " + id + " serves");
    }

    /** Those that are left without a quorum know it when this returns. */
    public void shutdown(int id) {
        peers.get(id).peer.shutdown();
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(500);
        while (running() <= N && anyIsConnected() && System.nanoTime() < deadline) {
            Thread.onSpinWait();
        }
    }

    private boolean anyIsConnected() {
        return peers.values().stream().anyMatch(server -> CONNECTED.contains(server.peer.getPeerState()));
    }

    private long running() {
        return peers.values().stream().filter(server -> ((Member) server.peer).runs()).count();
    }

    public void shutdownAll() {
        peers.values().forEach(server -> server.peer.shutdown());
    }

    public void tearDown() throws Exception {
        shutdownAll();
    }

    public String getConnString() {
        return peers.keySet().stream().map(this::getConnectionStringForServer).collect(Collectors.joining(","));
    }

    public String getConnectString(QuorumPeer peer) {
        return "127.0.0.1:" + peer.getClientPort();
    }

    public String getConnectionStringForServer(int id) {
        return "127.0.0.1:" + peers.get(id).clientPort;
    }

    public boolean allPeersAreConnected() {
        return peers.values().stream().allMatch(server -> CONNECTED.contains(server.peer.getPeerState()));
    }

    public boolean leaderExists() {
        return peers.keySet().stream().anyMatch(this::leads);
    }

    public int getLeaderServer() {
        return peers.keySet().stream().filter(this::leads).findFirst()
                .orElseThrow(() -> new NoSuchElementException("nobody leads"));
    }

    private boolean leads(int id) {
        return getPeer(id).peer.leader != null;
    }

    public QuorumPeer getLeaderQuorumPeer() {
        return peers.get(getLeaderServer()).peer;
    }

    public List<QuorumPeer> getFollowerQuorumPeers() {
        return peers.keySet().stream().filter(id -> !leads(id)).map(id -> peers.get(id).peer)
                .collect(Collectors.toList());
    }
}
