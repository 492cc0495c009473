import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.TreeSet;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryForever;
import org.apache.zookeeper.CreateMode;

/**
 * A Curator client whose EnsembleTracker follows the members. Argument: host:port[,host:port]. Obeys the lines of its
 * standard input, and answers each with one line:
 *
 * <pre>
 * knows HOST:PORT,...   waits until these are the servers that it knows
 * write TEXT            sets the data of its ephemeral, which it has made at the start; answers with its session
 * </pre>
 */
public final class Tracker {
    private static final long WAIT_MS = 60_000;

    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder()
                .connectString(arguments[0])
                .sessionTimeoutMs(30_000)
                .connectionTimeoutMs(5_000)
                .retryPolicy(new RetryForever(200))
                .ensembleTracker(true)
                .build();
        client.start();
        client.create().withMode(CreateMode.EPHEMERAL).forPath("/tracker");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 2);
            System.out.println(words[0].equals("knows") ? knows(client, words[1]) : write(client, words[1]));
        }
        client.close();
        System.exit(0);
    }

    private static String knows(CuratorFramework client, String expected) throws Exception {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        String known = client.getZookeeperClient().getCurrentConnectionString();
        while (!servers(known).equals(servers(expected)) && System.currentTimeMillis() < deadline) {
            Thread.sleep(50);
            known = client.getZookeeperClient().getCurrentConnectionString();
        }
        return "knows " + String.join(",", servers(known));
    }

    private static String write(CuratorFramework client, String text) throws Exception {
        client.setData().forPath("/tracker", text.getBytes());
        return "session " + client.getZookeeperClient().getZooKeeper().getSessionId();
    }

    private static TreeSet<String> servers(String text) {
        return new TreeSet<>(Arrays.asList(text.split(",")));
    }
}
