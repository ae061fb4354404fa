"""Adds the lines that `bench/mpi/run` collects to a result, prints its tables, and draws its curves.

report.py LINES LITZ LOAD [RESULT.json [PLOTS]]

LINES may be empty: then it prints and draws what RESULT.json has.
"""

import json
import os
import platform
import subprocess
import sys

import plot

WAYS = ["kernel", "striping", "tunnel", "terminated", "run"]
CURVES = {"curve-tcp": "TCP", "curve-mpi": "Open MPI", "curve-pvm": "PVM"}

# The share of an Ethernet frame that TCP with timestamps leaves to the application.
PAYLOAD_SHARE = 1448 / 1514
# At most this many times the latency of kernel TCP, and at least this share of the payload sum.
LATENCY_GOALS = {"veth": 3.0, "200us": 1.3}
BANDWIDTH_GOALS = {"500+500": 0.95}
# Sizes that the table of a curve shows.
SHOWN = ["1", "64", "1024", "16384", "65536", "262144", "1048576", "4194304"]

CASE = ("latency_us", "bandwidth_mbps", "link_bytes", "allreduce", "hpcc", "curves_us", "measured")


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def version_of(package):
    found = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True)
    return found.stdout if found.returncode == 0 else None


def processor():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return None


def add(cases, lines, origin):
    """Puts the lines in the place of what the cases had of the same way; returns what failed."""
    failures, begun = [], set()
    for line in lines:
        name, way, what, *values = line.split()
        of = cases.setdefault(name, {key: {} for key in CASE})
        if what == "latency" or what in CURVES:
            ways = of["latency_us"] if what == "latency" else of["curves_us"].setdefault(what, {})
            if (name, way, what) not in begun:
                ways[way] = {}
                begun.add((name, way, what))
            ways[way][values[0]] = float(values[1])
        elif what == "bandwidth":
            of["bandwidth_mbps"][way] = float(values[0])
        elif what == "allreduce":
            of["allreduce"][way] = {"elements": int(values[0]), "wrong": int(values[1])}
        elif what == "hpcc":
            of["hpcc"][way] = {"passed": int(values[0]), "failed": int(values[1]), "success": values[2:] == ["1"]}
        elif what == "bytes":
            half = (len(values) - 1) // 2
            before, after = map(int, values[1 : half + 1]), map(int, values[half + 1 :])
            of["link_bytes"].setdefault(way, {})[values[0]] = [late - early for early, late in zip(before, after)]
            of["measured"].setdefault(way, {})[values[0]] = origin
        elif what == "failed":
            failures.append(f"{name}, {way}: {values[0]} has failed")
        else:
            raise ValueError(line)
    return failures


def check(name, of):
    """What must hold of every result."""
    for way, sums in of["allreduce"].items():
        if sums["wrong"] or not sums["elements"]:
            yield f"{name}, {way}: {sums['wrong']} of {sums['elements']} elements of the allreduce are wrong"
    for way, verdict in of["hpcc"].items():
        if not verdict["success"]:
            yield f"{name}, {way}: HPC Challenge has found wrong results: {verdict}"
    for way, runs in of["link_bytes"].items():
        for what, links in runs.items():
            # A megabyte of every run cannot bypass the links.
            if sum(links) < 1 << 20:
                yield f"{name}, {way}, {what}: only {sum(links)} bytes crossed the links"
            least = sum(links) / 100 if what == "bandwidth" else 1 << 20 if what in CURVES else 0
            used = [link for link, count in enumerate(links) if count >= least]
            if way != "kernel" and len(used) < len(links):
                yield f"{name}, {way}, {what}: only the links {used} were used"


def in_order(ways):
    return [way for way in WAYS if way in ways]


def table(rows, ways, value):
    print(f"{'bytes':>10}" + "".join(f"{way:>12}" for way in ways))
    for row in rows:
        cells = [value(way, row) for way in ways]
        print(f"{row:>10}" + "".join(f"{'-':>12}" if cell is None else f"{cell:>12.1f}" for cell in cells))


def print_latency(name, of):
    print(f"\nlatency, {name}, us (half of a round trip, median)")
    series, ways = of["latency_us"], in_order(of["latency_us"])
    table(series[ways[0]], ways, lambda way, size: series[way].get(size))
    if "kernel" in ways:
        of["of_kernel"] = {way: series[way]["8"] / series["kernel"]["8"] for way in ways}
        goal = f" (goal: at most {LATENCY_GOALS[name]})" if name in LATENCY_GOALS else ""
        print("  8 bytes, of kernel TCP: " + ", ".join(f"{way} {share:.2f}" for way, share in of["of_kernel"].items()) + goal)


def print_bandwidth(name, of):
    goal = f", goal {BANDWIDTH_GOALS[name]:.0%}" if name in BANDWIDTH_GOALS else ""
    print(f"\nbandwidth, {name} Mb/s (payload sum {of['payload_mbps']:.0f} Mb/s{goal})")
    for way in in_order(of["bandwidth_mbps"]):
        rate, links = of["bandwidth_mbps"][way], of["link_bytes"][way]["bandwidth"]
        shares = ", ".join(f"{count / sum(links):.0%}" for count in links)
        print(f"  {way:<10}{rate:>8.0f} Mb/s  {rate / of['payload_mbps']:>6.1%}  bytes by link: {shares}")
    for way in in_order(of["allreduce"]):
        sums, hpcc = of["allreduce"][way], of["hpcc"].get(way)
        told = f"; HPC Challenge: success={hpcc['success']}" if hpcc else ""
        print(f"  {way:<10} allreduce: {sums['elements']} elements compared, {sums['wrong']} wrong{told}")


def print_curves(name, of):
    for curve, series in of["curves_us"].items():
        ways = in_order(series)
        print(f"\nNetPIPE, {CURVES[curve]}, {name} Mb/s: us of half a round trip up to 1 KiB, then Mb/s")
        table(SHOWN, ways, lambda way, size: shown(size, series[way].get(size)))


def shown(size, us):
    if us is None or int(size) <= 1024:
        return us
    return int(size) * 8 / us


def main():
    lines, litz, load, result, plots = (sys.argv[1:] + ["", ""])[:5]
    found = {}
    if result and os.path.exists(result):
        with open(result) as file:
            found = json.load(file)
    cases = found.get("cases", {})
    for of in cases.values():
        of.update({key: {} for key in CASE if key not in of})
    origin = {
        "date": output_of("date", "-u", "+%Y-%m-%dT%H:%M:%SZ"),
        "load_before": [float(value) for value in load.split()[:3]],
        "litz": output_of(litz, "--version"),
    }
    with open(lines) as file:
        failures = add(cases, file, origin)
    for name, of in cases.items():
        failures += check(name, of)
        if of["latency_us"]:
            print_latency(name, of)
        if "+" in name:
            of["payload_mbps"] = sum(map(int, name.split("+"))) * PAYLOAD_SHARE
            print_bandwidth(name, of)
        print_curves(name, of)
    if result:
        found = {
            "format": "litz-bench-mpi",
            "machine": {"processor": processor(), "processors": os.cpu_count(), "kernel": platform.release()},
            "mpi": output_of("mpirun", "--version").splitlines()[0],
            "packages": {name: version_of(name) for name in ("netpipe-openmpi", "netpipe-tcp", "netpipe-pvm", "pvm", "hpcc")},
            "cases": cases,
        }
        with open(result, "w") as file:
            json.dump(found, file, indent=1)
            file.write("\n")
    if plots:
        plot.latencies(os.path.join(plots, "mpi-latency.svg"), cases)
        plot.bandwidths(os.path.join(plots, "mpi-bandwidth.svg"), cases)
    if failures:
        sys.exit("bench/mpi: " + "; ".join(failures))


main()
