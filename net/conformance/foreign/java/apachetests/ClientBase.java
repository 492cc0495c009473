package org.apache.zookeeper.test;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.PortAssignment;
import org.apache.zookeeper.TestableZooKeeper;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZKTestCase;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.FourLetterWordMain;
import org.apache.zookeeper.server.quorum.QuorumPeer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import ringkeeper.ServerProcess;

/**
 * Stands in for the class of this name in Apache ZooKeeper's tests, which starts a server inside of the
 * test's own process. This one starts ringkeeper, with the properties that the test has set for its server as
 * options.
 */
public abstract class ClientBase extends ZKTestCase {

    public static int CONNECTION_TIMEOUT = 30000;

    protected String hostPort = "127.0.0.1:" + PortAssignment.unique();
    protected File tmpDir;
    private ServerProcess server;
    private final List<ZooKeeper> clients = new ArrayList<>();

    /** Tells whether its client is connected, and whether by a server that only reads. */
    public static class CountdownWatcher implements Watcher {

        volatile CountDownLatch clientConnected = new CountDownLatch(1);
        volatile boolean connected;
        volatile boolean syncConnected;
        volatile boolean readOnlyConnected;

        public synchronized void reset() {
            clientConnected = new CountDownLatch(1);
            become(null);
        }

        public synchronized void process(WatchedEvent event) {
            become(event.getState());
            notifyAll();
            if (connected) {
                clientConnected.countDown();
            }
        }

        private void become(KeeperState state) {
            syncConnected = state == KeeperState.SyncConnected;
            readOnlyConnected = state == KeeperState.ConnectedReadOnly;
            connected = syncConnected || readOnlyConnected;
        }

        public synchronized boolean isConnected() {
            return connected;
        }

        public void waitForConnected(long timeout) throws InterruptedException, TimeoutException {
            waitFor(() -> connected, timeout);
        }

        public void waitForSyncConnected(long timeout) throws InterruptedException, TimeoutException {
            waitFor(() -> syncConnected, timeout);
        }

        public void waitForReadOnlyConnected(long timeout) throws InterruptedException, TimeoutException {
            waitFor(() -> readOnlyConnected, timeout);
        }

        public void waitForDisconnected(long timeout) throws InterruptedException, TimeoutException {
            waitFor(() -> !connected, timeout);
        }

        private synchronized void waitFor(BooleanSupplier wanted, long timeout)
                throws InterruptedException, TimeoutException {
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeout);
            while (!wanted.getAsBoolean()) {
                long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
                if (left <= 0) {
                    throw new TimeoutException("connected: " + connected + ", only to read: " + readOnlyConnected);
                }
                wait(left);
            }
        }
    }

    protected TestableZooKeeper createClient() throws IOException, InterruptedException {
        return createClient(hostPort);
    }

    protected TestableZooKeeper createClient(String servers) throws IOException, InterruptedException {
        return createClient(new CountdownWatcher(), servers);
    }

    protected TestableZooKeeper createClient(String servers, int timeout) throws IOException, InterruptedException {
        return createClient(new CountdownWatcher(), servers, timeout);
    }

    protected TestableZooKeeper createClient(CountdownWatcher watcher) throws IOException, InterruptedException {
        return createClient(watcher, hostPort);
    }

    protected TestableZooKeeper createClient(CountdownWatcher watcher, String servers)
            throws IOException, InterruptedException {
        return createClient(watcher, servers, CONNECTION_TIMEOUT);
    }

    protected TestableZooKeeper createClient(CountdownWatcher watcher, String servers, int timeout)
            throws IOException, InterruptedException {
        watcher.reset();
        TestableZooKeeper client = new TestableZooKeeper(servers, timeout, watcher);
        synchronized (clients) {
            clients.add(client);
        }
        if (!watcher.clientConnected.await(timeout, TimeUnit.MILLISECONDS)) {
            fail("no session");
        }
        return client;
    }

    public static ZooKeeper createZKClient(String servers) throws Exception {
        return createZKClient(servers, CONNECTION_TIMEOUT);
    }

    public static ZooKeeper createZKClient(String servers, int timeout) throws IOException {
        return createZKClient(servers, timeout, CONNECTION_TIMEOUT);
    }

    public static ZooKeeper createZKClient(String servers, int timeout, long connectionTimeout) throws IOException {
        CountdownWatcher watcher = new CountdownWatcher();
        ZooKeeper client = new ZooKeeper(servers, timeout, watcher);
        try {
            watcher.waitForConnected(connectionTimeout);
        } catch (InterruptedException | TimeoutException late) {
            fail("no session at " + servers);
        }
        return client;
    }

    @BeforeEach
    public void setUp() throws Exception {
        tmpDir = createTmpDir();
        startServer();
    }

    @AfterEach
    public void tearDown() throws Exception {
        tearDownAll();
        stopServer();
    }

    /** Nothing has to be prepared for clients. */
    protected void setUpAll() throws Exception {
    }

    protected void tearDownAll() throws Exception {
        synchronized (clients) {
            for (ZooKeeper client : clients) {
                client.close();
            }
            clients.clear();
        }
    }

    protected void startServer() throws Exception {
        server = new ServerProcess(List.of("--data-dir", new File(tmpDir, "data").getPath(),
                "--client-port", hostPort.substring(hostPort.lastIndexOf(':') + 1)), Map.of(), 0);
        server.start();
        assertTrue(waitForServerUp(hostPort, CONNECTION_TIMEOUT), "the server serves");
    }

    protected void stopServer() throws Exception {
        assertTrue(server.stop(), "the server ends");
    }

    /** What Java's server keeps in static fields is an option of a process. */
    public static void setupTestEnv() {
    }

    public static File createTmpDir() throws IOException {
        File folder = createEmptyTestDir();
        createInitializeFile(folder);
        return folder;
    }

    public static File createEmptyTestDir() throws IOException {
        return Files.createTempDirectory(testBaseDir.toPath(), "test").toFile();
    }

    /** Says that a server with this folder may found an ensemble at once. */
    public static void createInitializeFile(File folder) throws IOException {
        new File(folder, "initialize").createNewFile();
    }

    public static boolean recursiveDelete(File folder) {
        File[] inside = folder.listFiles();
        for (File file : inside != null ? inside : new File[0]) {
            recursiveDelete(file);
        }
        return folder.delete();
    }

    /** Of several addresses the first one counts. */
    public static boolean waitForServerUp(String addresses, long timeout) {
        return waitUntil(timeout, () -> {
            String stat = stat(addresses);
            return stat.startsWith("Zookeeper version:") && !stat.contains("READ-ONLY");
        });
    }

    public static boolean waitForServerDown(String addresses, long timeout) {
        return waitUntil(timeout, () -> {
            try {
                stat(addresses);
                return false;
            } catch (UncheckedIOException refused) {
                return true;
            }
        });
    }

    /** Waits until the server says that it is in one of the states. */
    public static boolean waitForServerState(QuorumPeer server, int timeout, String... states) {
        return waitUntil(timeout, () -> List.of(states).contains(server.getServerState()));
    }

    /** One of several addresses. */
    public static class HostPort {

        String host;
        int port;

        public HostPort(String host, int port) {
            this.host = host;
            this.port = port;
        }
    }

    public static List<HostPort> parseHostPortList(String addresses) {
        List<HostPort> all = new ArrayList<>();
        for (String address : addresses.split(",")) {
            int colon = address.lastIndexOf(':');
            all.add(new HostPort(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1))));
        }
        return all;
    }

    private static String stat(String addresses) {
        HostPort first = parseHostPortList(addresses).get(0);
        try {
            return FourLetterWordMain.send4LetterWord(first.host, first.port, "stat");
        } catch (IOException refused) {
            throw new UncheckedIOException(refused);
        } catch (Exception impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static boolean waitUntil(long timeout, BooleanSupplier wanted) {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeout);
        do {
            try {
                if (wanted.getAsBoolean()) {
                    return true;
                }
            } catch (UncheckedIOException refused) {
                // It is not there yet.
            }
            try {
                Thread.sleep(100);
            } catch (InterruptedException end) {
                Thread.currentThread().interrupt();
                return false;
            }
        } while (System.nanoTime() < deadline);
        return false;
    }

    static void verifyThreadTerminated(Thread thread, long millis) throws InterruptedException {
        thread.join(millis);
        assertTrue(!thread.isAlive(), thread + " ends");
    }

    /** Waits until all servers show as many znodes below the root. */
    void verifyRootOfAllServersMatch(String addresses) throws InterruptedException, KeeperException, IOException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        List<Integer> counts = new ArrayList<>();
        do {
            counts.clear();
            for (String address : addresses.split(",")) {
                ZooKeeper client = createClient(address);
                counts.add(client.getChildren("/", false).size());
                client.close();
            }
            if (counts.stream().distinct().count() == 1) {
                return;
            }
            Thread.sleep(200);
        } while (System.nanoTime() < deadline);
        fail("znodes below the root: " + counts);
    }

    public static void logAllStackTraces() {
        Thread.getAllStackTraces().forEach((thread, stack) -> System.err.println(thread + " " + List.of(stack)));
    }
}
