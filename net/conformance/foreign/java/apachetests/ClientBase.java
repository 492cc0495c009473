package org.apache.zookeeper.test;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.zookeeper.TestableZooKeeper;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZKTestCase;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.FourLetterWordMain;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

/**
 * Stands in for the class of this name in Apache ZooKeeper's tests, which starts a server inside of the test's own
 * process. This one starts ringkeeper, with the properties that the test has set for its server as options.
 */
public abstract class ClientBase extends ZKTestCase {

    public static int CONNECTION_TIMEOUT = 30000;

    private static final AtomicInteger NEXT_PORT = new AtomicInteger(Integer.getInteger("tests.port"));
    private static final String JAAS_FILE = "java.security.auth.login.config";

    protected String hostPort = "127.0.0.1:" + NEXT_PORT.getAndIncrement();
    protected File tmpDir;
    private Process server;
    private final List<ZooKeeper> clients = new ArrayList<>();

    /** Tells whether its client is connected. */
    public static class CountdownWatcher implements Watcher {

        volatile CountDownLatch clientConnected = new CountDownLatch(1);
        private boolean connected;

        public synchronized void reset() {
            clientConnected = new CountDownLatch(1);
            connected = false;
        }

        public synchronized void process(WatchedEvent event) {
            connected = event.getState() == KeeperState.SyncConnected;
            notifyAll();
            if (connected) {
                clientConnected.countDown();
            }
        }

        public synchronized boolean isConnected() {
            return connected;
        }

        public void waitForConnected(long timeout) throws InterruptedException, TimeoutException {
            waitFor(true, timeout);
        }

        public void waitForDisconnected(long timeout) throws InterruptedException, TimeoutException {
            waitFor(false, timeout);
        }

        private synchronized void waitFor(boolean wanted, long timeout) throws InterruptedException, TimeoutException {
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeout);
            while (connected != wanted) {
                long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
                if (left <= 0) {
                    throw new TimeoutException("connected: " + connected);
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
        clients.add(client);
        if (!watcher.clientConnected.await(timeout, TimeUnit.MILLISECONDS)) {
            fail("no session");
        }
        return client;
    }

    @BeforeEach
    public void setUp() throws Exception {
        tmpDir = Files.createTempDirectory("ringkeeper-apache-tests").toFile();
        startServer();
    }

    @AfterEach
    public void tearDown() throws Exception {
        for (ZooKeeper client : clients) {
            client.close();
        }
        stopServer();
    }

    protected void startServer() throws Exception {
        int port = Integer.parseInt(hostPort.substring(hostPort.lastIndexOf(':') + 1));
        List<String> command = new ArrayList<>(List.of(System.getProperty("tests.binary"), "server",
                "--data-dir", new File(tmpDir, "data").getPath(), "--client-port", Integer.toString(port)));
        for (var option : options().entrySet()) {
            command.add("--option");
            command.add(option.getKey() + "=" + option.getValue());
        }
        server = new ProcessBuilder(command).redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(new File(System.getProperty("tests.log")))).start();
        assertTrue(waitForServerUp(hostPort, CONNECTION_TIMEOUT), "the server serves");
    }

    /** What the test wants of its server. */
    private static TreeMap<String, String> options() throws IOException {
        var options = new TreeMap<String, String>();
        for (String name : System.getProperties().stringPropertyNames()) {
            if (name.startsWith("zookeeper.")) {
                options.put(name, System.getProperty(name));
            }
        }
        String jaasFile = System.getProperty(JAAS_FILE);
        if (jaasFile != null) {
            // Passwords are read from files that nobody else can read.
            Files.setPosixFilePermissions(Path.of(jaasFile), PosixFilePermissions.fromString("rw-------"));
            options.put(JAAS_FILE, jaasFile);
        }
        // Classes cannot be loaded: schemes of tests' own stay unknown.
        options.put("ringkeeper.ignoreUnsupported", System.getProperty("tests.ignored", ""));
        return options;
    }

    protected void stopServer() throws Exception {
        server.destroy();
        assertTrue(server.waitFor(CONNECTION_TIMEOUT, TimeUnit.MILLISECONDS), "the server ends");
    }

    public static boolean waitForServerUp(String address, long timeout) throws InterruptedException {
        String[] hostAndPort = address.split(":");
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeout);
        while (System.nanoTime() < deadline) {
            try {
                int port = Integer.parseInt(hostAndPort[1]);
                if (FourLetterWordMain.send4LetterWord(hostAndPort[0], port, "srvr").contains("Mode: ")) {
                    return true;
                }
            } catch (Exception refused) {
                // It is not there yet.
            }
            Thread.sleep(50);
        }
        return false;
    }
}
