"""Prints how litz compares with the other tunnels of a run: ratios.py FILE, which report.py has written."""

import json
import sys

NAMES = ["TCP", "processor time a GB", "ping", "ping beside TCP", "UDP datagrams", "40 a call"]

with open(sys.argv[1]) as file:
    figures = [json.loads(line) for line in file]
ours = [each for each in figures if each[0].startswith("litz")]
for name, theirs in figures:
    if name.startswith("litz"):
        continue
    for own, values in ours:
        ratios = zip(NAMES, values, theirs)
        print(f"{own} / {name}: " + ", ".join(f"{what} {value / other:.2f}" for what, value, other in ratios if other))
