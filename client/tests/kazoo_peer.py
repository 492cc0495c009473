"""kazoo's side of the interoperation tests: a command a line in, an answer a line out."""

import sys

from kazoo.client import KazooClient


def main():
    zk = KazooClient(hosts=sys.argv[1], timeout=10)
    zk.start(timeout=20)
    held = None
    kinds = {"lock": zk.Lock, "read": zk.ReadLock, "write": zk.WriteLock}
    for line in sys.stdin:
        command, *words = line.split()
        answer = "done"
        if command == "acquire":
            held = kinds[words[0]](words[1], "kazoo")
            answer = str(held.acquire(blocking=words[2] == "wait"))
        elif command == "release":
            held.release()
        elif command == "contenders":
            answer = ",".join(zk.Lock(words[0]).contenders())
        elif command == "join":
            held = zk.Party(words[0], "kazoo")
            held.join()
        elif command == "members":
            answer = ",".join(sorted(zk.Party(words[0])))
        elif command == "put":
            zk.Queue(words[0]).put(words[1].encode())
        elif command == "get":
            answer = str(zk.Queue(words[0]).get())
        elif command == "count":
            counter = zk.Counter(words[0], support_curator=words[2] == "curator")
            counter += int(words[1])
            answer = str(counter.value)
        elif command == "enter":
            held = zk.DoubleBarrier(words[0], int(words[1]))
            held.enter()
            answer = str(held.participating)
        elif command == "leave":
            held.leave()
        print(answer, flush=True)
    zk.stop()


main()
