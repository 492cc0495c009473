"""Acquisitions a second of one kazoo lock: SERVER CLIENTS SECONDS. One thread and one session a client."""

import sys
import threading
import time

from kazoo.client import KazooClient

WARMUP_S = 0.5


def main():
    server, clients, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    counts = [0] * clients
    ready = threading.Barrier(clients + 1)
    over = threading.Event()

    def work(number):
        client = KazooClient(hosts=server)
        client.start()
        lock = client.Lock(f"/client-bench-locks/kazoo-{clients}", str(number))
        ready.wait()
        while not over.is_set():
            lock.acquire()
            counts[number] += 1
            lock.release()
        client.stop()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    ready.wait()
    time.sleep(WARMUP_S)
    start, before = time.monotonic(), sum(counts)
    time.sleep(seconds)
    took, count = time.monotonic() - start, sum(counts) - before
    over.set()
    for thread in threads:
        thread.join()
    print(count / took, 0, 0, 0)


main()
