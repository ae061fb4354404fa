"""Configures two wireguard-go processes over their sockets: wireguard.py FOLDER-WITH-KEYS."""

import socket
import sys
import time

FOLDER = sys.argv[1]


def key(name):
    with open(f"{FOLDER}/{name}") as file:
        return file.read().strip()


def configure(device, lines):
    for _ in range(100):
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(f"/var/run/wireguard/{device}.sock")
                sock.sendall(("set=1\n" + "\n".join(lines) + "\n\n").encode())
                answer = sock.recv(100)
                assert answer.startswith(b"errno=0"), answer
                return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"{device} does not listen")


for device, own, port, peer, endpoint, allowed in [
    ("bench-wg-a", "a.key", 51820, "b.pub", "192.0.0.2:51821", "10.99.0.2/32"),
    ("bench-wg-b", "b.key", 51821, "a.pub", "192.0.0.1:51820", "10.99.0.1/32"),
]:
    configure(
        device,
        [
            f"private_key={key(own)}",
            f"listen_port={port}",
            f"public_key={key(peer)}",
            f"endpoint={endpoint}",
            f"allowed_ip={allowed}",
        ],
    )
