import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;

/** A client that is content to read: first at a server without a quorum, then, by itself, at one that has it. */
public class ReadOnly {
    private static final long PATIENCE_NS = TimeUnit.SECONDS.toNanos(60);

    public static void main(String[] arguments) throws Exception {
        ZooKeeper client = new ZooKeeper(arguments[0], 10_000, event -> System.out.println(event), true);
        await(client, ZooKeeper.States.CONNECTEDREADONLY);
        long borrowed = client.getSessionId();
        check(new String(client.getData("/kept", false, null)).equals("kept"), "it reads");
        try {
            client.setData("/kept", new byte[0], -1);
            throw new AssertionError("a server without a quorum has written");
        } catch (KeeperException.NotReadOnlyException expected) {
            System.out.println("writes are refused");
        }
        await(client, ZooKeeper.States.CONNECTED);
        check(client.getSessionId() != borrowed, "the session of the ensemble is another one");
        client.create("/written", new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        client.close();
    }

    private static void await(ZooKeeper client, ZooKeeper.States wanted) throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE_NS;
        while (client.getState() != wanted) {
            check(System.nanoTime() < deadline, "the client becomes " + wanted);
            Thread.sleep(20);
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("not so: " + what);
        }
    }
}
