"""Locks of redis-py. URL LOCKS TTL_MS; then `pairs N` or `renewals N` on stdin, seconds on stdout."""

import sys
import time

import redis

url, locks, ttl_ms = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
server = redis.Redis.from_url(url)


def lock(name, n):
    # thread_local=False is its cheaper way; nothing ever waits.
    key = f"{name}:2f1c8a4e-0000-4000-8000-{n:012}"
    return server.lock(key, timeout=ttl_ms / 1000, blocking=False, thread_local=False)


def pairs():
    for n in range(locks):
        one = lock("redis-py", n)
        assert one.acquire()
        one.release()


def renewals():
    for one in held:
        assert one.reacquire()


held = [lock("redis-py-held", n) for n in range(locks)]
assert all(one.acquire() for one in held)
print("ready", flush=True)
for line in sys.stdin:
    what, at_once = line.split()
    if at_once != "1":
        print("cannot", flush=True)
        continue
    began = time.perf_counter()
    {"pairs": pairs, "renewals": renewals}[what]()
    print(time.perf_counter() - began, flush=True)
