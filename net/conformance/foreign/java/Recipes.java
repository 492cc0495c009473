import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.data.Stat;

/** Curator's recipes against one server. Argument: host:port. Prints what it has checked. */
public final class Recipes {
    private static final int WAIT_S = 30;
    private final String address;
    private final List<CuratorFramework> clients = new ArrayList<>();

    private Recipes(String address) {
        this.address = address;
    }

    public static void main(String[] arguments) throws Exception {
        Recipes recipes = new Recipes(arguments[0]);
        recipes.mutexLetsOneIn();
        recipes.readersShareALock();
        recipes.semaphoreCounts();
        recipes.leadershipPassesOn();
        recipes.ephemeralComesBack();
        recipes.cacheSeesEveryChange();
        recipes.doubleBarrierGathers();
        recipes.counterLosesNothing();
        recipes.transactionIsAllOrNothing();
        recipes.everyKindOfNode();
        recipes.clients.forEach(CuratorFramework::close);
        System.exit(0);
    }

    private CuratorFramework client() throws InterruptedException {
        CuratorFramework client = CuratorFrameworkFactory.newClient(address, 30_000, 10_000, new RetryOneTime(100));
        client.start();
        check(client.blockUntilConnected(WAIT_S, TimeUnit.SECONDS), "connected");
        clients.add(client);
        return client;
    }

    private static void check(boolean holds, String what) {
        System.out.println((holds ? "ok " : "FAILED ") + what);
        if (!holds) {
            System.exit(1);
        }
    }

    private static void await(Callable<Boolean> condition, String what) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (!condition.call() && System.nanoTime() < deadline) {
            Thread.sleep(20);
        }
        check(condition.call(), what);
    }

    private void mutexLetsOneIn() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger crowded = new AtomicInteger();
        List<Future<?>> workers = new ArrayList<>();
        for (int worker = 0; worker < 4; worker++) {
            InterProcessMutex mutex = new InterProcessMutex(client(), "/mutex");
            workers.add(pool.submit(() -> {
                for (int round = 0; round < 10; round++) {
                    check(mutex.acquire(WAIT_S, TimeUnit.SECONDS), "mutex acquired");
                    if (inside.incrementAndGet() != 1) {
                        crowded.incrementAndGet();
                    }
                    inside.decrementAndGet();
                    mutex.release();
                }
                return null;
            }));
        }
        for (Future<?> worker : workers) {
            worker.get();
        }
        pool.shutdown();
        check(crowded.get() == 0, "mutex lets one in");
    }

    private void readersShareALock() throws Exception {
        InterProcessReadWriteLock first = new InterProcessReadWriteLock(client(), "/rw");
        InterProcessReadWriteLock second = new InterProcessReadWriteLock(client(), "/rw");
        first.readLock().acquire();
        check(second.readLock().acquire(WAIT_S, TimeUnit.SECONDS), "readers share a lock");
        second.readLock().release();
        check(!second.writeLock().acquire(300, TimeUnit.MILLISECONDS), "a writer waits for readers");
        first.readLock().release();
        check(second.writeLock().acquire(WAIT_S, TimeUnit.SECONDS), "a writer gets its turn");
        second.writeLock().release();
    }

    private void semaphoreCounts() throws Exception {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client(), "/semaphore", 2);
        check(semaphore.acquire(2, WAIT_S, TimeUnit.SECONDS).size() == 2, "semaphore gives its leases");
        check(semaphore.acquire(300, TimeUnit.MILLISECONDS) == null, "semaphore gives no more");
    }

    private void leadershipPassesOn() throws Exception {
        LeaderLatch first = new LeaderLatch(client(), "/latch", "first");
        first.start();
        check(first.await(WAIT_S, TimeUnit.SECONDS), "leader elected");
        LeaderLatch second = new LeaderLatch(client(), "/latch", "second");
        second.start();
        await(() -> second.getParticipants().size() == 2, "both take part");
        check(!second.hasLeadership() && second.getLeader().getId().equals("first"), "one leader at a time");
        first.close();
        check(second.await(WAIT_S, TimeUnit.SECONDS), "leadership passes on");
        second.close();
    }

    private void ephemeralComesBack() throws Exception {
        CuratorFramework other = client();
        PersistentNode node = new PersistentNode(client(), CreateMode.EPHEMERAL, false, "/member", new byte[] {1});
        node.start();
        check(node.waitForInitialCreate(WAIT_S, TimeUnit.SECONDS), "ephemeral made");
        other.delete().forPath("/member");
        await(() -> other.checkExists().forPath("/member") != null, "ephemeral made again");
        node.close();
        await(() -> other.checkExists().forPath("/member") == null, "ephemeral gone");
    }

    private void cacheSeesEveryChange() throws Exception {
        CuratorFramework client = client();
        AtomicInteger seen = new AtomicInteger();
        CuratorCache cache = CuratorCache.build(client(), "/cache");
        cache.listenable().addListener(CuratorCacheListener.builder().forAll((type, before, after) -> seen.incrementAndGet()).build());
        cache.start();
        client.create().forPath("/cache", "a".getBytes());
        await(() -> cache.size() == 1, "cache sees the root");
        for (int child = 0; child < 20; child++) {
            client.create().forPath("/cache/" + child, new byte[] {(byte) child});
        }
        await(() -> cache.size() == 21, "cache sees the children");
        client.delete().deletingChildrenIfNeeded().forPath("/cache");
        await(() -> cache.size() == 0, "cache sees them go");
        // The last listener may still be on its way when the cache is empty.
        await(() -> seen.get() >= 42, "cache sees every change");
        cache.close();
    }

    private void doubleBarrierGathers() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(3);
        AtomicInteger entered = new AtomicInteger();
        List<Future<Integer>> members = new ArrayList<>();
        for (int member = 0; member < 3; member++) {
            DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(client(), "/barrier", 3);
            members.add(pool.submit(() -> {
                entered.incrementAndGet();
                check(barrier.enter(WAIT_S, TimeUnit.SECONDS), "barrier entered");
                int seen = entered.get();
                check(barrier.leave(WAIT_S, TimeUnit.SECONDS), "barrier left");
                return seen;
            }));
        }
        for (Future<Integer> member : members) {
            check(member.get() == 3, "nobody enters before all are there");
        }
        pool.shutdown();
    }

    private void counterLosesNothing() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(3);
        List<Future<?>> workers = new ArrayList<>();
        for (int worker = 0; worker < 3; worker++) {
            DistributedAtomicLong counter = new DistributedAtomicLong(client(), "/counter", new RetryOneTime(1));
            workers.add(pool.submit(() -> {
                for (int done = 0; done < 20;) {
                    done += counter.increment().succeeded() ? 1 : 0;
                }
                return null;
            }));
        }
        for (Future<?> worker : workers) {
            worker.get();
        }
        pool.shutdown();
        long total = new DistributedAtomicLong(client(), "/counter", new RetryOneTime(1)).get().postValue();
        check(total == 60, "counter loses nothing: " + total);
    }

    private void transactionIsAllOrNothing() throws Exception {
        CuratorFramework client = client();
        List<CuratorTransactionResult> results = client.transaction().forOperations(
                client.transactionOp().create().forPath("/tx", "a".getBytes()),
                client.transactionOp().setData().withVersion(0).forPath("/tx", "b".getBytes()),
                client.transactionOp().check().withVersion(1).forPath("/tx"));
        check(results.size() == 3, "transaction");
        try {
            client.transaction().forOperations(
                    client.transactionOp().create().forPath("/tx/half"),
                    client.transactionOp().check().withVersion(7).forPath("/tx"));
            check(false, "a transaction with a wrong version fails");
        } catch (org.apache.zookeeper.KeeperException.BadVersionException expected) {
            check(client.checkExists().forPath("/tx/half") == null, "a failed transaction does nothing");
        }
    }

    private void everyKindOfNode() throws Exception {
        CuratorFramework client = client();
        for (CreateMode mode : CreateMode.values()) {
            Stat stat = new Stat();
            String path = mode.isTTL()
                    ? client.create().withTtl(600_000).storingStatIn(stat).creatingParentsIfNeeded().withMode(mode).forPath("/kinds/" + mode)
                    : client.create().storingStatIn(stat).creatingParentsIfNeeded().withMode(mode).forPath("/kinds/" + mode);
            long owner = mode.isEphemeral() ? client.getZookeeperClient().getZooKeeper().getSessionId() : 0;
            check(stat.getEphemeralOwner() == owner && path.startsWith("/kinds/" + mode), "create " + mode);
        }
        check(client.getChildren().forPath("/kinds").size() == CreateMode.values().length, "all kinds are there");
    }
}
