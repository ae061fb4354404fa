"""UDP datagrams of 1200 bytes: flood.py send ADDRESS SECONDS BATCH [RATE] sends BATCH of them in each call (by
UDP_SEGMENT if it is more than one), RATE in a second or as many as it can, and prints how many. With a RATE it sends
for 0.3 s before that, which neither side counts. flood.py receive says when it is ready, and prints how many have
arrived, and how many in a second from the first to the last."""

import socket
import sys
import time

BYTES, PORT = 1200, 5009
UDP_SEGMENT, UDP_GRO = 103, 104
SO_RCVBUFFORCE = 33
WARM_UP = 0.3
# Datagrams of one burst are sent without a pause. A longer pause makes longer bursts, a shorter one costs
# processor time.
PAUSE = 0.0002
IDLE = 0.5
COUNTED, OTHER = b"c", b"o"

sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def send(to, seconds, batch, rate, mark):
    """Sends marked datagrams, and returns how many."""
    data = mark.ljust(BYTES, b"\0") * batch
    sent, began = 0, time.monotonic()
    while (past := time.monotonic() - began) < seconds:
        if rate is None or sent < rate * past:
            sock.sendto(data, to)
            sent += batch
        else:
            time.sleep(PAUSE)
    return sent


def receive():
    """Receives until nothing has come for a while; returns how many counted datagrams, in which time."""
    buffer, count, began, now = bytearray(1 << 16), 0, None, 0
    while True:
        try:
            length = sock.recv_into(buffer)
        except TimeoutError:
            return count, now - (began or now)
        counted = buffer[:length:BYTES].count(COUNTED)
        if counted:
            now = time.monotonic()
            began = began or now
        sock.settimeout(IDLE)
        count += counted


if sys.argv[1] == "send":
    to, seconds, batch = (sys.argv[2], PORT), float(sys.argv[3]), int(sys.argv[4])
    rate = float(sys.argv[5]) if len(sys.argv) > 5 else None
    if batch > 1:
        sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, BYTES)
    if rate is not None:
        send(to, WARM_UP, batch, rate, OTHER)
    print(send(to, seconds, batch, rate, COUNTED))
else:
    sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
    sock.bind(("0.0.0.0", PORT))
    sock.settimeout(10)
    print("ready", flush=True)
    count, seconds = receive()
    print(count, f"{count / seconds if seconds else 0:.0f}")
