package org.apache.zookeeper.test;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.zookeeper.PortAssignment;
import org.apache.zookeeper.TestableZooKeeper;
import org.apache.zookeeper.server.quorum.Member;
import org.apache.zookeeper.server.quorum.QuorumPeer;
import org.apache.zookeeper.server.quorum.QuorumPeer.LearnerType;
import org.apache.zookeeper.server.quorum.QuorumPeer.ServerState;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

/**
 * Stands in for the class of this name in Apache ZooKeeper's tests: an ensemble of five servers, of which the
 * last two may be observers.
 */
public class QuorumBase extends ClientBase {

    protected static final String LOCALADDR = "127.0.0.1";
    private static final int COUNT = 5;

    QuorumPeer s1;
    QuorumPeer s2;
    QuorumPeer s3;
    QuorumPeer s4;
    QuorumPeer s5;
    protected boolean localSessionsEnabled;
    protected boolean localSessionsUpgradingEnabled;

    private final List<Integer> clientPorts = new ArrayList<>();

    /** The line of a server, as a test's own process alone reaches it. */
    static String line(int id, int quorumPort, int electionPort, String role, int clientPort) {
        return "server." + id + "=" + LOCALADDR + ":" + quorumPort + ":" + electionPort + ":" + role + ";" + LOCALADDR
                + ":" + clientPort + "\n";
    }

    /** A configuration file for a server with this folder. */
    static File config(File folder, int id, String settings) throws IOException {
        File file = new File(folder, "zoo.cfg");
        Files.writeString(new File(folder, "myid").toPath(), id + "\n");
        Files.writeString(file.toPath(), "tickTime=2000\ninitLimit=3\ndataDir=" + folder + "\n" + settings);
        return file;
    }

    @BeforeEach
    @Override
    public void setUp() throws Exception {
        setUp(false, true);
    }

    /** An oracle only decides between two servers. */
    protected void setUp(boolean withObservers, boolean withOracle) throws Exception {
        startEnsemble(withObservers, "");
    }

    void startEnsemble(boolean withObservers, String groups) throws Exception {
        var members = new StringBuilder(groups);
        clientPorts.clear();
        for (int id = 1; id <= COUNT; id++) {
            String role = withObservers && id > 3 ? "observer" : "participant";
            clientPorts.add(PortAssignment.unique());
            members.append(line(id, PortAssignment.unique(), PortAssignment.unique(), role, clientPorts.get(id - 1)));
        }
        hostPort = clientPorts.stream().map(port -> LOCALADDR + ":" + port).collect(Collectors.joining(","));
        s1 = member(1, members.toString());
        s2 = member(2, members.toString());
        s3 = member(3, members.toString());
        s4 = member(4, members.toString());
        s5 = member(5, members.toString());
        getPeerList().forEach(QuorumPeer::start);
        for (String address : hostPort.split(",")) {
            assertTrue(waitForServerUp(address, CONNECTION_TIMEOUT), "the server serves");
        }
        getPeerList().forEach(peer -> ((Member) peer).refresh());
    }

    private Member member(int id, String members) throws IOException {
        String settings = "syncLimit=3\nlocalSessionsEnabled=" + localSessionsEnabled
                + "\nlocalSessionsUpgradingEnabled=" + localSessionsUpgradingEnabled + "\n" + members;
        return new Member(id, config(createTmpDir(), id, settings), members);
    }

    @AfterEach
    @Override
    public void tearDown() throws Exception {
        tearDownAll();
        shutdownServers();
    }

    public void shutdownServers() {
        getPeerList().forEach(QuorumBase::shutdown);
    }

    public static void shutdown(QuorumPeer peer) {
        if (peer != null) {
            peer.shutdown();
        }
    }

    public ArrayList<QuorumPeer> getPeerList() {
        var all = new ArrayList<QuorumPeer>();
        for (QuorumPeer peer : new QuorumPeer[] {s1, s2, s3, s4, s5}) {
            all.add(peer);
        }
        return all;
    }

    /** From 0 on, or -1 if nobody leads. */
    public int getLeaderIndex() {
        List<QuorumPeer> all = getPeerList();
        return IntStream.range(0, COUNT).filter(index -> all.get(index).getPeerState() == ServerState.LEADING)
                .findFirst().orElse(-1);
    }

    public QuorumPeer getLeaderQuorumPeer() {
        int leader = getLeaderIndex();
        return leader < 0 ? null : getPeerList().get(leader);
    }

    public int getLeaderClientPort() {
        int leader = getLeaderIndex();
        return leader < 0 ? -1 : clientPorts.get(leader);
    }

    public QuorumPeer getFirstObserver() {
        return getPeerList().stream().filter(peer -> peer.getLearnerType() == LearnerType.OBSERVER).findFirst()
                .orElse(null);
    }

    public int getFirstObserverClientPort() {
        QuorumPeer observer = getFirstObserver();
        return observer == null ? -1 : observer.getClientPort();
    }

    public String getPeersMatching(ServerState state) {
        return getPeerList().stream().filter(peer -> peer.getPeerState() == state)
                .map(peer -> LOCALADDR + ":" + peer.getClientPort() + ",").collect(Collectors.joining());
    }

    public QuorumPeer getPeerByClientPort(int port) {
        int index = clientPorts.indexOf(port);
        return index < 0 ? null : getPeerList().get(index);
    }

    protected TestableZooKeeper createClient(CountdownWatcher watcher, ServerState state)
            throws IOException, InterruptedException {
        return createClient(watcher, getPeersMatching(state));
    }
}
