import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** Acquisitions a second of one Curator mutex: SERVER CLIENTS SECONDS. One thread and one session a client. */
public class LocksCurator {
    private static final long WARMUP_MS = 500;

    public static void main(String[] arguments) throws Exception {
        String server = arguments[0];
        int clients = Integer.parseInt(arguments[1]);
        long seconds = Long.parseLong(arguments[2]);
        AtomicLong acquired = new AtomicLong();
        AtomicBoolean isOver = new AtomicBoolean();
        CyclicBarrier ready = new CyclicBarrier(clients + 1);
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < clients; number++) {
            Thread thread = new Thread(() -> {
                try (CuratorFramework client = CuratorFrameworkFactory.newClient(server, new RetryOneTime(100))) {
                    client.start();
                    client.blockUntilConnected();
                    InterProcessMutex mutex = new InterProcessMutex(client, "/client-bench-locks/curator-" + clients);
                    ready.await();
                    while (!isOver.get()) {
                        mutex.acquire();
                        acquired.incrementAndGet();
                        mutex.release();
                    }
                } catch (Exception error) {
                    error.printStackTrace();
                    System.exit(1);
                }
            });
            thread.start();
            threads.add(thread);
        }
        ready.await();
        Thread.sleep(WARMUP_MS);
        long start = System.nanoTime();
        long before = acquired.get();
        Thread.sleep(seconds * 1000);
        double took = (System.nanoTime() - start) / 1e9;
        long count = acquired.get() - before;
        isOver.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println(count / took + " 0 0 0");
    }
}
