"""Round trips of ICMP echo requests with 56 bytes (64 with the header): ping.py ADDRESS COUNT."""

import socket
import struct
import sys
import time

ADDRESS, COUNT = sys.argv[1], int(sys.argv[2])


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
sock.settimeout(1)
times = []
for number in range(COUNT):
    echo = struct.pack("!BBHHH", 8, 0, 0, 77, number) + b"x" * 56
    echo = echo[:2] + struct.pack("!H", checksum(echo)) + echo[4:]
    began = time.perf_counter()
    sock.sendto(echo, (ADDRESS, 0))
    try:
        while True:
            answer = sock.recv(200)[20:]
            if answer[0] == 0 and struct.unpack("!HH", answer[4:8]) == (77, number):
                times.append((time.perf_counter() - began) * 1e6)
                break
    except TimeoutError:
        pass
    time.sleep(0.003)
times.sort()
lost = COUNT - len(times)
print(f"{times[len(times) // 2]:.0f} {times[int(len(times) * 0.99)]:.0f} {lost}" if times else f"0 0 {lost}")
