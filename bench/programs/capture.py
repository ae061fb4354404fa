"""Captures what passes on devices of this network namespace: capture.py PORT MARKER RESULT DEVICE...

PORT is the UDP port of Litz's server at the far end, MARKER a text that must not be readable. "ready" on standard
output says that nothing is missed from now on. At SIGTERM it reads what is there already, and writes RESULT.json,
which has the counts of all packets, and RESULT.pcap.xz, which has the headers of some.
"""

import json
import lzma
import selectors
import signal
import socket
import struct
import sys

PORT, MARKER, RESULT, DEVICES = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3], sys.argv[4:]

# Of Litz's datagrams: Ethernet, IPv6 and UDP headers, and two bytes of QUIC's; 22 with IPv4. What follows is
# encrypted, and xz cannot make it smaller. Of others: ICMPv6, and the headers that it quotes.
OWN_BYTES, OTHER_BYTES = 64, 112
# The first of those that may be there, and the first of the others: some sixty captures stay below 1.5 MB.
KEPT_PACKETS_MAX = 500
# Python does not keep up with bursts: this holds some 28,000 packets of a link.
BUFFER_BYTES = 64 << 20

# What its datagrams are called.
OWN = f"UDP {PORT}"

# Linux's numbers that the module socket does not have.
ETH_P_ALL, SO_RCVBUFFORCE, SO_TIMESTAMPNS, SOL_PACKET, PACKET_STATISTICS, PACKET_OUTGOING = 3, 33, 35, 263, 6, 4
ARP, IPV4, IPV6 = 0x0806, 0x0800, 0x86DD
ICMP, TCP, UDP, ICMPV6, HOP_BY_HOP = 1, 6, 17, 58, 0
ICMP_UNREACHABLE, ICMPV6_UNREACHABLE = 3, 1


def upper(packet, version):
    """The protocol number and what follows the IP headers."""
    if version == IPV4:
        return packet[9], packet[(packet[0] & 15) * 4 :]
    protocol, body = packet[6], packet[40:]
    if protocol == HOP_BY_HOP:
        protocol, body = body[0], body[8 * (body[1] + 1) :]
    return protocol, body


def is_own(protocol, body, outgoing):
    """Whether it is a datagram between the near end and the port of the far end."""
    return protocol == UDP and struct.unpack_from("!H", body, 2 if outgoing else 0)[0] == PORT


def name_of(frame, outgoing):
    """What a packet is, and whether it may be on the links while Litz carries the exchange."""
    version = struct.unpack_from("!H", frame, 12)[0]
    if version == ARP:
        return "ARP", True
    if version not in (IPV4, IPV6):
        return f"Ethernet type {version:#06x}", False
    packet = frame[14:]
    if version == IPV4 and struct.unpack_from("!H", packet, 6)[0] & 0x1FFF:
        return "fragment", False
    protocol, body = upper(packet, version)
    if is_own(protocol, body, outgoing):
        return OWN, True
    if protocol in (TCP, UDP):
        ports = struct.unpack_from("!HH", body)
        return f"{'TCP' if protocol == TCP else 'UDP'} {min(ports)}", False
    if protocol == ICMPV6 and 133 <= body[0] <= 137:
        return "ND", True
    if protocol == ICMPV6 and body[0] in (130, 131, 132, 143):
        return "MLD", True
    if (protocol, body[0]) in ((ICMP, ICMP_UNREACHABLE), (ICMPV6, ICMPV6_UNREACHABLE)):
        # A kernel answers datagrams of Litz to a socket that is closed. It quotes one of the other direction.
        if is_own(*upper(body[8:], version), not outgoing):
            return f"unreachable ({OWN})", True
    if protocol in (ICMP, ICMPV6):
        return f"{'ICMP' if protocol == ICMP else 'ICMPv6'} type {body[0]}", False
    return f"IP protocol {protocol}", False


class Link:
    def __init__(self, device):
        self.device = device
        self.sent, self.received = [0, 0], [0, 0]
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.setblocking(False)
        self.socket.bind((device, ETH_P_ALL))

    def take(self):
        """The next frame, its time in ns and whether it leaves; raises BlockingIOError if there is none."""
        frame, control, _, address = self.socket.recvmsg(65535, 64)
        seconds, nanoseconds = struct.unpack("qq", control[0][2][:16])
        outgoing = address[2] == PACKET_OUTGOING
        count = self.sent if outgoing else self.received
        count[0] += 1
        count[1] += len(frame)
        return frame, seconds * 10**9 + nanoseconds, outgoing

    def lost(self):
        return struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]


class Capture:
    def __init__(self):
        self.links = [Link(device) for device in DEVICES]
        self.names = {True: {}, False: {}}
        self.kept = {True: [], False: []}
        self.marked = 0

    def read(self, link):
        try:
            while True:
                frame, time_ns, outgoing = link.take()
                name, allowed = name_of(frame, outgoing)
                names, kept = self.names[allowed], self.kept[allowed]
                names[name] = names.get(name, 0) + 1
                self.marked += MARKER in frame
                if len(kept) < KEPT_PACKETS_MAX:
                    kept.append((time_ns, len(frame), frame[: OWN_BYTES if name == OWN else OTHER_BYTES]))
        except BlockingIOError:
            pass

    def write(self):
        links = [{"device": link.device, "sent": link.sent, "received": link.received} for link in self.links]
        result = {"links": links, "allowed": self.names[True], "others": self.names[False], "marked": self.marked}
        result["lost"] = sum(link.lost() for link in self.links)
        with open(RESULT + ".json", "w") as file:
            json.dump(result, file)
        with lzma.open(RESULT + ".pcap.xz", "wb", preset=9) as file:
            # pcap with nanoseconds, Ethernet.
            file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, OTHER_BYTES, 1))
            for time_ns, length, start in sorted(self.kept[True] + self.kept[False]):
                file.write(struct.pack("<IIII", time_ns // 10**9, time_ns % 10**9, len(start), length) + start)


def main():
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    capture = Capture()
    selector = selectors.DefaultSelector()
    for link in capture.links:
        selector.register(link.socket, selectors.EVENT_READ, link)
    print("ready", flush=True)
    while not ended:
        for key, _ in selector.select(0.1):
            capture.read(key.data)
    for link in capture.links:
        capture.read(link)
    capture.write()


main()
