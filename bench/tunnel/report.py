"""Prints one line of a run, and adds its figures to a file for ratios.py: report.py KIND NAME FOLDER ARGUMENT...

    one NAME FOLDER TICKS HZ     a tunnel over one link
    tcp NAME FOLDER RATE...      a connection over shaped links
    udp NAME FOLDER RATE...      a flow of UDP datagrams over shaped links
    mptcp NAME FOLDER RATE...    a connection of Multipath TCP over shaped links
    queued NAME FOLDER           pings beside a connection
    cut NAME FOLDER              a connection of which a link is cut"""

import json
import sys

KIND, NAME, FOLDER, *REST = sys.argv[1:]


def words(name):
    with open(f"{FOLDER}/{name}") as file:
        return file.read().split()


def load(name, *keys):
    with open(f"{FOLDER}/{name}") as file:
        report = json.load(file)
    for key in [*keys, "end"]:
        report = report[key]
    return report


def payload_mbps(rates):
    """The share of an Ethernet frame that TCP with timestamps leaves to the application."""
    return sum(map(int, rates)) * 1448 / 1514


def one(ticks, hertz):
    tcp = load("tcp.json")
    received, retransmits = tcp["sum_received"], tcp["sum_sent"]["retransmits"]
    idle, loaded = words("idle"), words("loaded")
    udp = load("udp.json")["sum"]
    arrived = (udp["packets"] - udp["lost_packets"]) / udp["seconds"]
    single, batched = words("single"), words("batched")
    figures = {
        "TCP": received["bits_per_second"] / 1e6,
        "processor time a GB": int(ticks) / int(hertz) / received["bytes"] * 1e9,
        "ping": float(idle[0]),
        "ping, 99 %": float(idle[1]),
        "ping beside TCP": float(loaded[0]),
        "UDP throughput": float(single[1]),
        "UDP throughput, 40 a call": float(batched[1]),
        "UDP flood": arrived,
        "UDP flood, 40 a call": float(batched[0]),
    }
    line = (
        f"TCP {figures['TCP']:.0f} Mb/s, {retransmits} retransmissions, "
        f"{figures['processor time a GB']:.2f} processor s/GB; ping {idle[0]} us (99 %: {idle[1]}), "
        f"beside TCP {loaded[0]} us (99 %: {loaded[1]}, lost {loaded[2]}); UDP throughput {single[1]} datagrams/s, "
        f"40 a call {batched[1]}; of a flood arrive {arrived:.0f}, 40 a call {batched[0]}"
    )
    return figures, line


def tcp(*rates):
    tcp = load("tcp.json")
    rate = tcp["sum_received"]["bits_per_second"] / 1e6
    share = rate / payload_mbps(rates)
    line = f"TCP {rate:.0f} Mb/s, {share:.1%} of the payload sum, {tcp['sum_sent']['retransmits']} retransmissions"
    return {"share": share}, line


def udp(*rates):
    # Only the receiver counts datagrams that are out of order.
    end = load("udp.json", "server_output_json")
    total, late = end["sum"], end["streams"][0]["udp"]["out_of_order"]
    rate = (total["packets"] - total["lost_packets"]) * 1200 * 8 / total["seconds"] / 1e6
    share, loss = rate / payload_mbps(rates), total["lost_packets"] / total["packets"]
    line = f"UDP {rate:.0f} Mb/s, {share:.1%} of the payload sum, {loss:.1%} lost, {late} out of order"
    return {"share": share, "loss": loss, "out of order": late}, line


def mptcp(*rates):
    rate = float(words("mptcp")[0])
    share = rate / payload_mbps(rates)
    return {"share": share}, f"{rate:.0f} Mb/s, {share:.1%} of the payload sum"


def queued():
    idle, loaded = words("idle"), words("loaded")
    figures = {
        "ping above idle, ms": (float(loaded[0]) - float(idle[0])) / 1000,
        "ping above idle, 99 %, ms": (float(loaded[1]) - float(idle[1])) / 1000,
    }
    return figures, f"ping (median, 99 %, lost): idle {' '.join(idle)} us, beside TCP {' '.join(loaded)} us"


def cut():
    gap = words("gap")[0]
    return {"gap, ms": float(gap)}, f"longest gap {gap} ms"


figures, line = {"one": one, "tcp": tcp, "udp": udp, "mptcp": mptcp, "queued": queued, "cut": cut}[KIND](*REST)
with open(f"{FOLDER}/figures", "a") as file:
    print(json.dumps({"kind": KIND, "name": NAME, "figures": figures}), file=file)
print(f"{NAME}: {line}", flush=True)
