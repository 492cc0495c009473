import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.admin.ZooKeeperAdmin;
import org.apache.zookeeper.client.ZKClientConfig;
import org.apache.zookeeper.data.Stat;

/**
 * What the Java client alone can send. Before each exchange it prints "@name meaning" and waits for a
 * line, so that the recorder can open a file; "@drop name meaning" asks it to cut all connections too.
 */
public final class JavaScenario {
    interface Action {
        void run() throws Exception;
    }

    private static final BufferedReader ANSWERS = new BufferedReader(new InputStreamReader(System.in));

    private static void say(String line) throws Exception {
        System.out.println("@" + line);
        System.out.flush();
        ANSWERS.readLine();
    }

    private static void step(String name, String meaning, Action action) throws Exception {
        say("java_" + name + " " + meaning);
        try {
            action.run();
        } catch (KeeperException e) {
            System.out.println(name + ": " + e.code());
        }
    }

    private static ZooKeeperAdmin connect(String servers, boolean sasl) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        Watcher watcher = event -> {
            if (event.getState() == (sasl ? KeeperState.SaslAuthenticated : KeeperState.SyncConnected)) {
                connected.countDown();
            }
        };
        ZKClientConfig config = new ZKClientConfig();
        config.setProperty(ZKClientConfig.ENABLE_CLIENT_SASL_KEY, Boolean.toString(sasl));
        ZooKeeperAdmin zk = new ZooKeeperAdmin(servers, 30000, watcher, config);
        if (!connected.await(20, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not connected");
        }
        return zk;
    }

    public static void main(String[] args) throws Exception {
        String servers = args[0];
        ZooKeeperAdmin[] opened = new ZooKeeperAdmin[2];
        step("connect", "a new session", () -> opened[0] = connect(servers, false));
        ZooKeeperAdmin zk = opened[0];
        Watcher ignored = event -> { };
        Stat stat = new Stat();
        step("create2", "create2", () ->
            zk.create("/java", new byte[] {1}, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT, stat));
        step("create_container", "createContainer", () ->
            zk.create("/java/c", null, Ids.OPEN_ACL_UNSAFE, CreateMode.CONTAINER));
        step("create_ttl", "createTTL", () ->
            zk.create("/java/t", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, stat, 60000));
        step("create_ttl_sequential", "createTTL of a sequential znode", () ->
            zk.create("/java/t", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL, stat, 9));
        step("create_ephemeral", "create of an ephemeral with two ACL entries", () ->
            zk.create("/java/e", new byte[0], Arrays.asList(Ids.OPEN_ACL_UNSAFE.get(0), Ids.READ_ACL_UNSAFE.get(0)),
                CreateMode.EPHEMERAL));
        step("no_children_for_ephemerals", "create under an ephemeral: NOCHILDRENFOREPHEMERALS", () ->
            zk.create("/java/e/x", new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
        step("get_ephemerals", "getEphemerals", () -> zk.getEphemerals("/java"));
        step("get_all_children_number", "getAllChildrenNumber", () -> zk.getAllChildrenNumber("/java"));
        step("get_all_children_number_missing", "getAllChildrenNumber of what does not exist: NONODE", () ->
            zk.getAllChildrenNumber("/none"));
        step("auth", "auth by digest", () -> zk.addAuthInfo("digest", "java:secret".getBytes()));
        step("who_am_i", "whoAmI", zk::whoAmI);
        step("multi", "a multi with every kind of create", () -> zk.multi(List.of(
            Op.create("/java/m", new byte[] {2}, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
            Op.create("/java/m/c", null, Ids.OPEN_ACL_UNSAFE, CreateMode.CONTAINER),
            Op.create("/java/m/t", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, 60000),
            Op.setData("/java/m", null, 0),
            Op.check("/java/m", 1),
            Op.delete("/java/m/c", -1))));
        step("multi_failed", "a multi whose first operation fails", () -> zk.multi(List.of(
            Op.delete("/none", -1), Op.setData("/java", null, -1))));
        step("multi_read", "a multiRead, its last operation on what does not exist", () -> zk.multi(List.of(
            Op.getData("/java"), Op.getChildren("/java"), Op.getData("/java/c"), Op.getData("/none"))));
        step("add_watch", "addWatch, persistent", () -> zk.addWatch("/java", ignored, AddWatchMode.PERSISTENT));
        step("add_watch_recursive", "addWatch, persistent recursive", () ->
            zk.addWatch("/java/c", ignored, AddWatchMode.PERSISTENT_RECURSIVE));
        step("exists_missing_watch", "exists leaves a watch on what does not exist", () ->
            zk.exists("/java/later", ignored));
        step("get_children_watch", "getChildren2 leaves a watch", () -> zk.getChildren("/java", ignored, stat));
        step("notifications", "create: notifications before its own reply", () ->
            zk.create("/java/later", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
        step("get_data_watch", "getData leaves a watch", () -> zk.getData("/java/later", ignored, stat));
        step("notification_deleted", "delete: notifications before its own reply", () ->
            zk.delete("/java/later", -1));
        step("check_watches", "checkWatches, sent when one watcher of several is removed", () ->
            zk.removeWatches("/java", ignored, Watcher.WatcherType.Persistent, false));
        step("remove_all_watches", "removeWatches of all watches", () ->
            zk.removeAllWatches("/java/c", Watcher.WatcherType.Any, false));
        step("no_watcher", "removeWatches where there is none: NOWATCHER", () ->
            zk.removeAllWatches("/none", Watcher.WatcherType.Data, true));
        say("silent");
        zk.addWatch("/java", ignored, AddWatchMode.PERSISTENT);
        zk.addWatch("/java/c", ignored, AddWatchMode.PERSISTENT_RECURSIVE);
        zk.getData("/java", ignored, stat);
        zk.exists("/java/never", ignored);
        zk.getChildren("/java/c", ignored);
        say("drop java_set_watches2 the session is resumed, auth and setWatches2 follow");
        Thread.sleep(4000);
        step("sync", "sync", () -> {
            CountDownLatch done = new CountDownLatch(1);
            zk.sync("/java", (code, path, context) -> done.countDown(), null);
            done.await(10, TimeUnit.SECONDS);
        });
        step("reconfig_no_auth", "reconfig by a stranger: NOAUTH", () ->
            zk.reconfigure((String) null, null, "server.1=127.0.0.1:1:2;3", -1, stat));
        step("auth_super", "auth as the superuser", () -> zk.addAuthInfo("digest", "super:golden".getBytes()));
        String config = new String(zk.getConfig(false, stat));
        String members = config.lines().filter(line -> line.startsWith("server.")).findFirst().orElseThrow();
        step("reconfig", "reconfig to the whole configuration that is current", () ->
            zk.reconfigure((String) null, null, members, -1, stat));
        step("reconfig_bad_version", "incremental reconfig with a stale version: BADVERSION", () ->
            zk.reconfigure(members, "7", null, 12345, stat));
        step("get_config", "getData of /zookeeper/config", () -> zk.getConfig(false, stat));
        step("close", "closeSession", zk::close);
        step("sasl", "sasl by DIGEST-MD5", () -> opened[1] = connect(servers, true));
        say("silent");
        opened[1].close();
        System.exit(0);
    }
}
