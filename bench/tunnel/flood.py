"""UDP datagrams of 1200 bytes, 40 in each call (UDP_SEGMENT): flood.py send ADDRESS SECONDS, or
flood.py receive, which prints how many arrived in a second, from the first to the last."""

import socket
import sys
import time

BYTES, BATCH, PORT = 1200, 40, 5009
UDP_SEGMENT, UDP_GRO = 103, 104

sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if sys.argv[1] == "send":
    sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, BYTES)
    data, to, end = bytes(BYTES * BATCH), (sys.argv[2], PORT), time.monotonic() + float(sys.argv[3])
    while time.monotonic() < end:
        sock.sendto(data, to)
else:
    sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    sock.bind(("0.0.0.0", PORT))
    buffer, total, began, now = bytearray(1 << 16), 0, None, 0
    while True:
        try:
            count = sock.recv_into(buffer)
        except TimeoutError:
            break
        now = time.monotonic()
        if began is None:
            began = now
            sock.settimeout(1)
        total += count
    print(f"{total / BYTES / (now - began):.0f}")
