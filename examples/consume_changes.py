#!/usr/bin/env python3
"""Follows the changes of verdicts and the results of a fleet. Needs nothing but Python.

usage: consume_changes.py [HOST:PORT] [FILE]

Changes are read from the stream poll:changes. The id of the last one is kept in FILE (changes.id), so a program that was
away gets what it missed, as long as the stream keeps it. Results are pushed: those of the time away are gone.
"""
import json, os, socket, sys, threading, time


class Redis:
    """A connection, and as much of the protocol as is needed here."""

    def __init__(self, host, port):
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.file = self.socket.makefile("rb")

    def send(self, *words):
        words = [str(it).encode() for it in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(it), it) for it in words))

    def read(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("Redis has closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            size = int(rest)
            return None if size < 0 else self.file.read(size + 2)[:-2].decode(errors="replace")
        if kind == b"*":
            return None if int(rest) < 0 else [self.read() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest.decode()


def changes(redis, path, block_ms):
    """The changes since the one that FILE names; waits a while for the first. Each is done when the next is asked for."""
    last = open(path).read().strip() if os.path.exists(path) else "0"
    redis.send("XREAD", "COUNT", 100, "BLOCK", block_ms, "STREAMS", "poll:changes", last)
    for _, entries in redis.read() or []:
        for id, fields in entries:
            yield json.loads(dict(zip(fields[::2], fields[1::2]))["change"])
            # Last: a program that dies before this gets the change again.
            with open(path + ".new", "w") as file:
                file.write(id)
            os.replace(path + ".new", path)


def follow_changes(host, port, path):
    while True:
        try:
            redis = Redis(host, port)
            while True:
                for it in changes(redis, path, 5_000):
                    was = f", failing for {(it['since_ms'] - it['before_ms']) / 1000:.0f} s" if it["verdict"] == "ok" else ""
                    print(f"{it['endpoint']} ({it['address']}) is {it['verdict']}: {it['error'] or it['status']}{was}", flush=True)
        except OSError as error:
            print(f"Redis: {error}; trying again", file=sys.stderr, flush=True)
            time.sleep(1)


def follow_results(host, port):
    while True:
        try:
            redis = Redis(host, port)
            redis.socket.settimeout(None)
            redis.send("PSUBSCRIBE", "poll:results:*")
            while True:
                push = redis.read()
                if push[0] == "pmessage":
                    it = json.loads(push[3])
                    # All databases of a server share its channels.
                    if it["db"] == 0:
                        print(f"{it['endpoint']} {'ok' if it['ok'] else 'not ok'} in {it['duration_ms']} ms", flush=True)
        except OSError:
            time.sleep(1)


def main():
    address, path = (sys.argv[1:] + ["127.0.0.1:6379", "changes.id"][len(sys.argv) - 1 :])[:2]
    host, port = address.rsplit(":", 1)
    threading.Thread(target=follow_results, args=(host, port), daemon=True).start()
    follow_changes(host, port, path)


if __name__ == "__main__":
    main()
