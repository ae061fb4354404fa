"""Draws the curves of `bench/mpi/run` as SVG: over message size, with logarithmic axes."""

import math

COLOURS = {
    "TCP without more": "#b0b0b0",
    "kernel": "#444444",
    "striping": "#b8860b",
    "tunnel": "#1f5fa8",
    "terminated": "#3a8f4d",
    "run": "#b03030",
}
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 420, 260, 60, 24, 28, 20


def plot_of(title, series, at, level=None):
    """One plot; `series` has values by message size for each way, `level` a value that is marked."""
    points = {way: sorted((int(size), value) for size, value in values.items()) for way, values in series.items()}
    sizes = [size for values in points.values() for size, _ in values]
    values = [value for of in points.values() for _, value in of]
    x0, x1 = math.log10(min(sizes)), math.log10(max(sizes))
    y0, y1 = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    x_of = lambda size: LEFT + (math.log10(size) - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT)
    y_of = lambda value: HEIGHT - BOTTOM - (math.log10(value) - y0) / (y1 - y0) * (HEIGHT - BOTTOM - TOP)
    out = [f'<g transform="translate({at[0]},{at[1]})">', f'<text x="{LEFT}" y="16">{title}</text>']
    for power in range(y0, y1 + 1):
        y = y_of(10**power)
        label = f"{10**power:,}" if power >= 0 else f"{10**power:.{-power}f}"
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for size in (8**power for power in range(9)):
        if min(sizes) <= size <= max(sizes):
            label = f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB" if size >= 1 << 10 else str(size)
            out.append(f'<text x="{x_of(size):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{label}</text>')
    if level:
        y = y_of(level)
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#888888" stroke-dasharray="4 3"/>')
    for way, of in points.items():
        path = " ".join(f"{x_of(size):.1f},{y_of(value):.1f}" for size, value in of)
        out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[way]}" stroke-width="1.5"/>')
        if len(of) < 12:
            out += [f'<circle cx="{x_of(size):.1f}" cy="{y_of(value):.1f}" r="2.5" fill="{COLOURS[way]}"/>' for size, value in of]
    return out + ["</g>"]


def write(path, rows):
    """Rows of plots (title, series, level), and below them the colours."""
    ways = [way for way in COLOURS if any(way in series for row in rows for _, series, _ in row)]
    width, height = WIDTH * max(map(len, rows)), HEIGHT * len(rows) + 24
    parts = []
    for line, row in enumerate(rows):
        for column, (title, series, level) in enumerate(row):
            parts += plot_of(title, series, (column * WIDTH, line * HEIGHT), level)
    for index, way in enumerate(ways):
        parts.append(f'<text x="{LEFT + index * 120}" y="{height - 8}" fill="{COLOURS[way]}">{way}</text>')
    with open(path, "w") as file:
        file.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>\n'
            + "\n".join(parts)
            + "\n</svg>\n"
        )


def latencies(path, cases):
    row = [(f"Open MPI, us of half a round trip, {name}", of["latency_us"], None) for name, of in cases.items() if of["latency_us"]]
    if row:
        write(path, [row])


def mbps(curve):
    return {size: int(size) * 8 / us for size, us in curve.items()}


def bandwidths(path, cases):
    """A row of Open MPI and one of PVM, each with a plot for each case; kernel TCP without either beside them."""
    rows = []
    for curve, library in (("curve-mpi", "Open MPI"), ("curve-pvm", "PVM")):
        row = []
        for name, of in cases.items():
            if curve in of["curves_us"]:
                tcp = of["curves_us"].get("curve-tcp", {}).get("kernel")
                series = {"TCP without more": mbps(tcp)} if tcp else {}
                series |= {way: mbps(us) for way, us in of["curves_us"][curve].items()}
                row.append((f"{library}, Mb/s in each direction in turn, {name} Mb/s", series, of["payload_mbps"]))
        if row:
            rows.append(row)
    if rows:
        write(path, rows)
