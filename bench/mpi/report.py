"""Prints a table of the lines that `bench/mpi/run` collects, writes them as JSON, and draws the latencies.

report.py LINES LITZ [RESULT.json [PLOT.svg]]
"""

import json
import math
import os
import platform
import subprocess
import sys

LINES, LITZ, RESULT, PLOT = (sys.argv[1:] + ["", ""])[:4]
WAYS = ["kernel", "striping", "tunnel", "run"]
COLOURS = {"kernel": "#444444", "striping": "#b8860b", "tunnel": "#1f5fa8", "run": "#b03030"}

# The share of an Ethernet frame that TCP with timestamps leaves to the application.
PAYLOAD_SHARE = 1448 / 1514

cases, failures = {}, []


def case(name):
    return cases.setdefault(name, {"latency_us": {}, "bandwidth_mbps": {}, "link_bytes": {}, "allreduce": {}, "hpcc": {}})


for line in open(LINES):
    name, way, what, *values = line.split()
    of = case(name)
    if what == "latency":
        of["latency_us"].setdefault(way, {})[values[0]] = float(values[1])
    elif what == "bandwidth":
        of["bandwidth_mbps"][way] = float(values[0])
    elif what == "bytes":
        half = (len(values) - 1) // 2
        before, after = map(int, values[1 : half + 1]), map(int, values[half + 1 :])
        of["link_bytes"].setdefault(way, {})[values[0]] = [late - early for early, late in zip(before, after)]
    elif what == "allreduce":
        of["allreduce"][way] = {"elements": int(values[0]), "wrong": int(values[1])}
        if values[1] != "0" or values[0] == "0":
            failures.append(f"{name}, {way}: {values[1]} of {values[0]} elements of the allreduce are wrong")
    elif what == "hpcc":
        of["hpcc"][way] = {"passed": int(values[0]), "failed": int(values[1]), "success": values[2:] == ["1"]}
        if values[2:] != ["1"]:
            failures.append(f"{name}, {way}: HPC Challenge has found wrong results: {values}")

for name, of in cases.items():
    if of["latency_us"]:
        print(f"\nlatency, {name}, us (half of a round trip, median)")
        ways = [way for way in WAYS if way in of["latency_us"]]
        print(f"{'bytes':>10}" + "".join(f"{way:>12}" for way in ways))
        for size in of["latency_us"][ways[0]]:
            print(f"{size:>10}" + "".join(f"{of['latency_us'][way][size]:>12.1f}" for way in ways))
        if "kernel" in ways:
            of["of_kernel"] = {way: of["latency_us"][way]["8"] / of["latency_us"]["kernel"]["8"] for way in ways}
            print("  8 bytes, of kernel TCP: " + ", ".join(f"{way} {share:.2f}" for way, share in of["of_kernel"].items()))
    if of["bandwidth_mbps"]:
        payload = sum(map(int, name.split("+"))) * PAYLOAD_SHARE
        of["payload_mbps"] = payload
        print(f"\nbandwidth, {name} Mb/s (payload sum {payload:.0f} Mb/s)")
        for way, rate in of["bandwidth_mbps"].items():
            links = of["link_bytes"][way]["bandwidth"]
            shares = ", ".join(f"{count / sum(links):.0%}" for count in links)
            print(f"  {way:<10}{rate:>8.0f} Mb/s  {rate / payload:>6.1%}  bytes by link: {shares}")
            # What the first fifth of the time has carried is not counted, so that more must have crossed.
            used = [link for link, count in enumerate(links) if count > sum(links) / 100]
            if way != "kernel" and len(used) < len(links):
                failures.append(f"{name}, {way}: only the links {used} were used")
        for way, sums in of["allreduce"].items():
            hpcc = of["hpcc"].get(way)
            told = f"; HPC Challenge: success={hpcc['success']}" if hpcc else ""
            print(f"  {way:<10}allreduce: {sums['elements']} elements compared, {sums['wrong']} wrong{told}")
    # A megabyte of every bandwidth run and the largest latency message cannot bypass the links.
    for way, runs in of["link_bytes"].items():
        for what, links in runs.items():
            if sum(links) < 1 << 20:
                failures.append(f"{name}, {way}, {what}: only {sum(links)} bytes crossed the links")


def processor():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return None


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if RESULT:
    result = {
        "format": "litz-bench-mpi",
        "date": output_of("date", "-u", "+%Y-%m-%dT%H:%M:%SZ"),
        "machine": {"processor": processor(), "processors": os.cpu_count(), "kernel": platform.release()},
        "load": os.getloadavg(),
        "mpi": output_of("mpirun", "--version").splitlines()[0],
        "litz": output_of(LITZ, "--version"),
        "cases": cases,
    }
    with open(RESULT, "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")

# ── The plot ─────────────────────────────────────────────────────────────────────────────────────────

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 420, 300, 60, 40, 28, 12


def plot_of(title, series, at):
    """One plot with logarithmic axes: time over message size."""
    sizes = sorted({int(size) for points in series.values() for size in points})
    times = [time for points in series.values() for time in points.values()]
    x0, x1 = math.log10(sizes[0]), math.log10(sizes[-1])
    y0, y1 = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    x_of = lambda size: LEFT + (math.log10(size) - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT)
    y_of = lambda time: HEIGHT - BOTTOM - (math.log10(time) - y0) / (y1 - y0) * (HEIGHT - BOTTOM - TOP)
    out = [f'<g transform="translate({at},0)">', f'<text x="{LEFT}" y="16">{title}</text>']
    for power in range(y0, y1 + 1):
        y = y_of(10**power)
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10**power:,}</text>')
    for size in sizes:
        label = f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB" if size >= 1 << 10 else str(size)
        out.append(f'<text x="{x_of(size):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{label}</text>')
    for way, points in series.items():
        path = " ".join(f"{x_of(int(size)):.1f},{y_of(time):.1f}" for size, time in points.items())
        out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[way]}" stroke-width="1.5"/>')
        out += [
            f'<circle cx="{x_of(int(size)):.1f}" cy="{y_of(time):.1f}" r="2.5" fill="{COLOURS[way]}"/>'
            for size, time in points.items()
        ]
    return out + ["</g>"]


if PLOT:
    shown = [(name, of["latency_us"]) for name, of in cases.items() if of["latency_us"]]
    parts = []
    for index, (name, series) in enumerate(shown):
        parts += plot_of(f"half of a round trip in us, {name}", series, index * WIDTH)
    ways = [way for way in WAYS if any(way in series for _, series in shown)]
    for index, way in enumerate(ways):
        parts.append(f'<text x="{LEFT + index * 90}" y="{HEIGHT - 6}" fill="{COLOURS[way]}">{way}</text>')
    with open(PLOT, "w") as file:
        file.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * len(shown)}" height="{HEIGHT}" '
            f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(parts)
            + "\n</svg>\n"
        )

if failures:
    sys.exit("bench/mpi: " + "; ".join(failures))
