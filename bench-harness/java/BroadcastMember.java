import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.locks.LockSupport;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.server.DataNode;
import org.apache.zookeeper.server.PrepRequestProcessor;
import org.apache.zookeeper.server.Request;
import org.apache.zookeeper.server.RequestProcessor;
import org.apache.zookeeper.server.ZooKeeperServer;
import org.apache.zookeeper.server.quorum.LeaderZooKeeperServer;
import org.apache.zookeeper.server.quorum.QuorumPeer;
import org.apache.zookeeper.server.quorum.QuorumPeerMain;
import org.apache.zookeeper.txn.CreateTxn;
import org.apache.zookeeper.txn.SetDataTxn;
import org.apache.zookeeper.txn.TxnHeader;

/**
 * An Apache ZooKeeper server for figure 7: the leader's own process generates transactions and hands them to the
 * processor that proposes them, past connections, sessions and the checks of requests. That is as near as one comes to
 * its broadcast without changing it: what commits still goes through its commit and final processors, which set the
 * data of one znode.
 *
 * <p>Run with the path of a zoo.cfg. Commands come on the standard input, one a line, each answered with one line, as
 * ringkeeper's members do it:
 *
 * <pre>
 * status                                     leading, following or looking
 * heard                                      number of proposals delivered here
 * generate OUTSTANDING WARMUP_MS WINDOW_MS   then: generated ALL IN_WINDOW P50_NS P99_NS
 * </pre>
 */
public final class BroadcastMember {
    /** Size of a proposal in bytes, as in the paper. */
    private static final int PROPOSAL_LEN = 1024;

    private static final String ZNODE = "/broadcast";

    /** How long the generator sleeps when as much is outstanding as may be. */
    private static final long PAUSE_NS = 50_000;

    private final Server server = new Server();

    public static void main(String[] args) throws Exception {
        // The server's warnings go to the same stream as its errors, so that answers stand alone.
        PrintStream answers = System.out;
        System.setOut(System.err);
        BroadcastMember member = new BroadcastMember();
        Thread server = new Thread(() -> member.server.serve(args), "server");
        server.setDaemon(true);
        server.start();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(member.answer(line.split(" ")));
            answers.flush();
        }
        System.exit(0);
    }

    private String answer(String[] command) throws Exception {
        switch (command[0]) {
            case "status":
                return status();
            case "heard":
                return Long.toString(heard());
            case "generate":
                return generate(
                        Integer.parseInt(command[1]), Long.parseLong(command[2]), Long.parseLong(command[3]));
            default:
                throw new IllegalArgumentException("no command: " + String.join(" ", command));
        }
    }

    private String status() {
        QuorumPeer peer = server.peer();
        ZooKeeperServer active = peer == null ? null : peer.getActiveServer();
        if (active == null || !active.isRunning()) {
            return "looking";
        }
        switch (peer.getPeerState()) {
            case LEADING:
                return "leading";
            case FOLLOWING:
                return "following";
            default:
                return "looking";
        }
    }

    /** The version of the znode: each proposal sets it to its own number. */
    private long heard() {
        DataNode node = server.peer().getActiveServer().getZKDatabase().getNode(ZNODE);
        if (node == null) {
            return 0;
        }
        synchronized (node) {
            long number = node.stat.getVersion();
            if (number > 0 && ByteBuffer.wrap(node.getData()).getLong() != number) {
                throw new IllegalStateException("a proposal is missing or out of order");
            }
            return number;
        }
    }

    /** Proposes until the window ends, as many as {@code outstanding} at a time, and waits for all. */
    private String generate(int outstanding, long warmupMs, long windowMs) throws Exception {
        LeaderZooKeeperServer leader = (LeaderZooKeeperServer) server.peer().getActiveServer();
        Proposer proposer = new Proposer(leader);
        if (leader.getZKDatabase().getNode(ZNODE) == null) {
            proposer.create();
        }
        long before = heard();
        long base = proposer.lastZxid() - before;
        long from = System.nanoTime() + warmupMs * 1_000_000;
        long to = from + windowMs * 1_000_000;
        long proposed = before;
        long settled = before;
        long[] sentAt = new long[outstanding];
        long[] latencies = new long[1 << 20];
        int inWindow = 0;
        while (System.nanoTime() < to || settled < proposed) {
            while (proposed - settled < outstanding && System.nanoTime() < to) {
                proposed++;
                sentAt[(int) (proposed % outstanding)] = System.nanoTime();
                proposer.set(proposed);
            }
            long delivered = leader.getZKDatabase().getDataTreeLastProcessedZxid() - base;
            if (delivered == settled) {
                LockSupport.parkNanos(PAUSE_NS);
            }
            long now = System.nanoTime();
            for (; settled < delivered; settled++) {
                if (now >= from && now < to) {
                    if (inWindow == latencies.length) {
                        latencies = Arrays.copyOf(latencies, 2 * inWindow);
                    }
                    latencies[inWindow++] = now - sentAt[(int) ((settled + 1) % outstanding)];
                }
            }
            if (!leader.isRunning()) {
                throw new IllegalStateException("the leader was lost meanwhile");
            }
        }
        Arrays.sort(latencies, 0, inWindow);
        long p50 = inWindow == 0 ? 0 : latencies[inWindow / 2];
        long p99 = inWindow == 0 ? 0 : latencies[(int) (inWindow * 0.99)];
        return "generated " + (proposed - before) + " " + inWindow + " " + p50 + " " + p99;
    }

    /** The server itself, which its own program would not show. */
    private static final class Server extends QuorumPeerMain {
        void serve(String[] args) {
            try {
                initializeAndRun(args);
            } catch (Exception error) {
                error.printStackTrace();
            }
            System.exit(1);
        }

        QuorumPeer peer() {
            return quorumPeer;
        }
    }

    /** Hands transactions to the leader's processor of proposals, which its server does not show to others. */
    private static final class Proposer {
        private final LeaderZooKeeperServer leader;
        private final RequestProcessor proposals;
        private final Method nextZxid;

        Proposer(LeaderZooKeeperServer leader) throws ReflectiveOperationException {
            this.leader = leader;
            Field prepare = LeaderZooKeeperServer.class.getDeclaredField("prepRequestProcessor");
            prepare.setAccessible(true);
            Field next = PrepRequestProcessor.class.getDeclaredField("nextProcessor");
            next.setAccessible(true);
            proposals = (RequestProcessor) next.get(prepare.get(leader));
            nextZxid = ZooKeeperServer.class.getDeclaredMethod("getNextZxid");
            nextZxid.setAccessible(true);
        }

        long lastZxid() {
            return leader.getZKDatabase().getDataTreeLastProcessedZxid();
        }

        void create() throws Exception {
            long zxid = zxid();
            CreateTxn create = new CreateTxn(ZNODE, new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, false, 1);
            propose(new Request(0, 0, ZooDefs.OpCode.create, header(zxid, ZooDefs.OpCode.create), create, zxid));
            while (lastZxid() < zxid) {
                LockSupport.parkNanos(PAUSE_NS);
            }
        }

        void set(long number) throws Exception {
            long zxid = zxid();
            byte[] data = new byte[PROPOSAL_LEN];
            Arrays.fill(data, (byte) 0x5a);
            ByteBuffer.wrap(data).putLong(number);
            SetDataTxn set = new SetDataTxn(ZNODE, data, (int) number);
            propose(new Request(0, 0, ZooDefs.OpCode.setData, header(zxid, ZooDefs.OpCode.setData), set, zxid));
        }

        private void propose(Request request) throws Exception {
            proposals.processRequest(request);
        }

        private TxnHeader header(long zxid, int type) {
            return new TxnHeader(0, 0, zxid, System.currentTimeMillis(), type);
        }

        private long zxid() throws ReflectiveOperationException {
            return (Long) nextZxid.invoke(leader);
        }
    }
}
