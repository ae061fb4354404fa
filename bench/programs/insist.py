"""Goes on sending to addresses by all means until SIGTERM: insist.py PORT MARKER ADDRESS...

It keeps a TCP connection to each busy, makes new ones, and sends datagrams and pings, each with MARKER. "echoed" on
standard output says that data has come back. SIGUSR1 begins a new count; the last line is the last count.
"""

import json
import select
import signal
import socket
import struct
import sys
import time

PORT, MARKER, ADDRESSES = int(sys.argv[1]), sys.argv[2].encode() + b"\n", sys.argv[3:]
PAUSE_S = 0.02
# New connections are left to the kernel, which repeats their first packet.
CONNECTIONS_MAX = 64

counts = {"tried": 0, "taken": 0, "bytes": 0}
ended, begun_again = [], []


def attempt(act):
    """Something that the kernel may refuse."""
    counts["tried"] += 1
    try:
        sent_bytes = act()
    except OSError:
        return
    counts["taken"] += 1
    counts["bytes"] += sent_bytes


class Target:
    def __init__(self, address):
        self.family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.address = (address, PORT)
        self.udp = socket.socket(self.family, socket.SOCK_DGRAM)
        protocol = socket.IPPROTO_ICMPV6 if ":" in address else socket.IPPROTO_ICMP
        self.raw = socket.socket(self.family, socket.SOCK_RAW, protocol)
        # An echo request, whose checksum the kernel computes for IPv6.
        self.ping = bytes([128 if ":" in address else 8]) + bytes(7) + MARKER
        if ":" not in address:
            total = sum(int.from_bytes((self.ping + b"\0")[at : at + 2]) for at in range(0, len(self.ping), 2))
            total = (total >> 16) + (total & 0xFFFF)
            self.ping = self.ping[:2] + (~total & 0xFFFF).to_bytes(2) + self.ping[4:]
        self.stream, self.later = None, []

    def connect(self):
        stream = socket.socket(self.family, socket.SOCK_STREAM)
        stream.setblocking(False)
        # At the end it is reset: otherwise the kernel would go on sending when there is no kill switch any more.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            stream.connect(self.address)
        except BlockingIOError:
            pass
        except OSError:
            stream.close()
            raise
        return stream

    def write(self):
        """Writes to the connection; one that is lost is made again."""
        try:
            if self.stream is None:
                self.stream = self.connect()
            return self.stream.send(MARKER * 20)
        except BlockingIOError:
            raise
        except OSError:
            if self.stream is not None:
                self.stream.close()
            self.stream = None
            raise

    def connect_again(self):
        self.later.append(self.connect())
        if len(self.later) > CONNECTIONS_MAX:
            self.later.pop(0).close()
        return 0

    def send_all(self):
        attempt(self.write)
        attempt(self.connect_again)
        attempt(lambda: self.udp.sendto(MARKER, self.address))
        attempt(lambda: self.raw.sendto(self.ping, (self.address[0], 0)))

    def has_echoed(self):
        if self.stream is None or not select.select([self.stream], [], [], 0)[0]:
            return False
        try:
            return bool(self.stream.recv(1 << 16))
        except OSError:
            return False


signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
signal.signal(signal.SIGUSR1, lambda *_: begun_again.append(True))
targets = [Target(address) for address in ADDRESSES]
silent = set(targets)
while not ended:
    if begun_again:
        begun_again.clear()
        counts.update(tried=0, taken=0, bytes=0)
        print("again", flush=True)
    for target in targets:
        target.send_all()
        # What comes back is read, so that the connection goes on.
        if target.has_echoed() and target in silent:
            silent.discard(target)
            if not silent:
                print("echoed", flush=True)
    time.sleep(PAUSE_S)
print(json.dumps(counts), flush=True)
