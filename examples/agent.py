"""Holds a lease by way of `leasehold agent`: python3 agent.py SOCKET NAME"""
import select, socket, sys, time

def now_ms():
    return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000

class Lease:
    def __init__(self, path, name, wait_ms):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.lines, self.name, self.until_ms = self.socket.makefile("r"), name, 0
        self.ask("SESSION 10000")
        self.answer = self.ask(f"ACQUIRE {name} {wait_ms}")

    def ask(self, line):
        self.socket.sendall(line.encode() + b"\n")
        for told in self.lines:  # up to the answer; what is pushed comes first
            self.note(told.split())
            if not told.startswith("!"):
                return told.split()
        raise ConnectionError("the agent has gone, and the lease with it")

    def note(self, words):
        if words[0] in ("HELD", "!CERTAIN"):
            self.fence, self.until_ms = words[2].split("=")[1], int(words[4].split("=")[1])
        elif words[0] in ("!LOST", "!UNCERTAIN", "!STOPPING", "!BYE"):
            self.until_ms = 0

    def holds(self):  # right before each effect; renews the time, too
        return self.ask(f"HOLDS {self.name}")[0] == "HELD" and now_ms() < self.until_ms

lease = Lease(sys.argv[1], sys.argv[2], 5000)
if lease.answer[0] != "HELD":
    sys.exit(" ".join(lease.answer))
while lease.holds():
    print(f"working under fence {lease.fence}", flush=True)
    select.select([lease.socket], [], [], 0.5)  # half a second's work; a push ends it sooner
