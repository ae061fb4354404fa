"""Prints how litz compares with the other tunnels of a run, and its figures beside the targets: ratios.py FILE [part],
of which report.py has written FILE. With `part` the run had only one link. Ratios are formed within a round; of several
rounds the median and the range are printed."""

import json
import statistics
import sys

MODES = ["litz", "litz --terminate all"]
# The tunnel that the targets name.
PEER = "wireguard-go"


class Values:
    """A value of each round."""

    def __init__(self, values):
        self.values = list(values)

    def __bool__(self):
        return bool(self.values)

    def median(self):
        return statistics.median(self.values)

    def text(self, form):
        middle = form.format(self.median())
        low, high = (form.format(pick(self.values)) for pick in (min, max))
        return middle if len(self.values) == 1 else f"{middle} ({low} to {high})"


def read(path):
    """The figures of each kind and name, in the order of the rounds."""
    found = {}
    with open(path) as file:
        for entry in map(json.loads, file):
            found.setdefault((entry["kind"], entry["name"]), []).append(entry["figures"])
    return found


def values_of(kind, name, figure):
    return Values(each[figure] for each in FOUND.get((kind, name), []))


def ratio_of(own, other, figure):
    rounds = zip(FOUND.get(("one", own), []), FOUND.get(("one", other), []))
    return Values(mine[figure] / theirs[figure] for mine, theirs in rounds if theirs[figure])


def print_ratios():
    others = [name for kind, name in FOUND if kind == "one" and name not in MODES]
    for other in others:
        for own in MODES:
            figures = FOUND["one", own][0]
            shown = ((what, ratio_of(own, other, what)) for what in figures)
            print(f"{own} / {other}: " + "; ".join(f"{what} {ratio.text('{:.2f}')}" for what, ratio in shown if ratio))


def targets():
    """Name, values, their form, the comparison, and the bound."""
    for mode in MODES:
        for figure, sign, bound in [
            ("TCP", ">=", 3),
            ("UDP throughput", ">=", 1.5),
            ("UDP throughput, 40 a call", ">=", 3),
            ("UDP flood", ">=", 1.5),
            ("UDP flood, 40 a call", ">=", 3),
            ("ping", "<=", 1),
            ("processor time a GB", "<=", 0.5),
        ]:
            yield f"{mode} / {PEER}: {figure}", ratio_of(mode, PEER, figure), "{:.2f}", sign, bound
        if IS_PART:
            continue
        four = f"{mode} over 1000 500 200 100"
        yield f"{four}, TCP, share of the payload sum", values_of("tcp", four, "share"), "{:.1%}", ">=", 0.9
        for figure in ["ping above idle, ms", "ping above idle, 99 %, ms"]:
            yield f"{mode}, {figure}", values_of("queued", f"{mode} over 100", figure), "{:.1f}", "<=", 10
        for kind, name in FOUND:
            if kind == "cut" and name.startswith(f"{mode}, "):
                yield f"{name}: gap, ms", values_of(kind, name, "gap, ms"), "{:.0f}", "<=", 200


def print_targets():
    rows = [("figure", "target", "measured", "met")]
    for name, values, form, sign, bound in targets():
        if values:
            middle = values.median()
            is_met = middle >= bound if sign == ">=" else middle <= bound
            measured, met = values.text(form), "yes" if is_met else "no"
        else:
            measured, met = "not measured", "-"
        rows.append((name, f"{sign} {form.format(bound)}", measured, met))
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


FOUND = read(sys.argv[1])
IS_PART = "part" in sys.argv[2:]
print_ratios()
print()
print_targets()
