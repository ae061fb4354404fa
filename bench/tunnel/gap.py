"""The longest time without a byte of a TCP connection that is always busy: gap.py send ADDRESS SECONDS, or
gap.py receive, which prints it in ms, from one second after the beginning on."""

import socket
import sys
import time

PORT = 5010

if sys.argv[1] == "send":
    sock = socket.create_connection((sys.argv[2], PORT))
    data, end = bytes(1 << 16), time.monotonic() + float(sys.argv[3])
    while time.monotonic() < end:
        sock.sendall(data)
else:
    sock = socket.create_server(("0.0.0.0", PORT)).accept()[0]
    began = last = time.monotonic()
    longest, buffer = 0, bytearray(1 << 16)
    while sock.recv_into(buffer):
        now = time.monotonic()
        if now > began + 1:
            longest = max(longest, now - last)
        last = now
    print(f"{longest * 1000:.0f}")
