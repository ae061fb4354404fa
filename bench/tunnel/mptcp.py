"""One connection of Multipath TCP: mptcp.py send ADDRESS SECONDS, or mptcp.py receive, which prints Mb/s from the first
byte to the last. mptcp.py check fails if the kernel has no Multipath TCP."""

import socket
import sys
import time

PORT, IPPROTO_MPTCP = 5011, 262

try:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
except OSError as error:
    sys.exit(f"the kernel refuses it: {error.strerror}")
if sys.argv[1] == "send":
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    sock.connect((sys.argv[2], PORT))
    data, end = bytes(1 << 18), time.monotonic() + float(sys.argv[3])
    while time.monotonic() < end:
        sock.sendall(data)
elif sys.argv[1] == "receive":
    sock.bind(("0.0.0.0", PORT))
    sock.listen()
    connection = sock.accept()[0]
    buffer, total, began, now = bytearray(1 << 18), 0, None, 0
    while count := connection.recv_into(buffer):
        now = time.monotonic()
        began = began or now
        total += count
    print(f"{total * 8 / (now - began) / 1e6:.0f}")
