"""Prints one line of a run: report.py NAME FOLDER TICKS HZ, or report.py NAME FOLDER RATE..."""

import json
import sys

NAME, FOLDER, *REST = sys.argv[1:]


def load(name):
    with open(f"{FOLDER}/{name}") as file:
        return json.load(file)["end"]


tcp = load("tcp.json")
received, sent = tcp["sum_received"], tcp["sum_sent"]
rate = received["bits_per_second"] / 1e6
if " over " not in NAME:
    seconds = int(REST[0]) / int(REST[1])
    idle, loaded = (open(f"{FOLDER}/{name}").read().split() for name in ("idle", "loaded"))
    udp = load("udp.json")["sum"]
    arrived = (udp["packets"] - udp["lost_packets"]) / udp["seconds"]
    per_gb = seconds / received["bytes"] * 1e9
    calls_of_40 = int(open(f"{FOLDER}/flood").read())
    with open(f"{FOLDER}/figures", "a") as file:
        print(json.dumps([NAME, [rate, per_gb, float(idle[0]), float(loaded[0]), arrived, calls_of_40]]), file=file)
    print(
        f"{NAME}: TCP {rate:.0f} Mb/s, {sent['retransmits']} retransmissions, "
        f"{per_gb:.2f} processor s/GB; ping {idle[0]} us (99 %: {idle[1]}), "
        f"beside TCP {loaded[0]} us (99 %: {loaded[1]}, lost {loaded[2]}); UDP {arrived:.0f} datagrams/s, 40 a call {calls_of_40}"
    )
else:
    # The share of an Ethernet frame that TCP with timestamps leaves to the application.
    payload = sum(map(int, REST)) * 1448 / 1514
    print(f"{NAME}: TCP {rate:.0f} Mb/s, {rate / payload:.1%} of the payload sum, {sent['retransmits']} retransmissions")
