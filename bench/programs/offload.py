"""Switches off checksum and segmentation offload of devices of this network namespace: offload.py DEVICE...

Otherwise a capture on a veth pair shows super-packets and wrong checksums, and its counts are not those of a network.
"""

import array
import fcntl
import socket
import struct
import sys

SIOCETHTOOL = 0x8946
# ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO. Without checksums, the kernel switches UDP's segmentation off, too.
COMMANDS = (0x17, 0x1F, 0x24)

sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for device in sys.argv[1:]:
    for command in COMMANDS:
        value = array.array("B", struct.pack("II", command, 0))
        fcntl.ioctl(sock, SIOCETHTOOL, struct.pack("16sP", device.encode(), value.buffer_info()[0]))
