"""Prints the row of an exchange, and says what is wrong with it: judge.py PROGRAM WAY CARRIER VERIFIED BYTES CAPTURE.

CARRIER is what must have carried it: `litz`, `litz-cut` if the far end was killed or the exchange had no end that can
be compared, or `bare` if there was none: then the capture must show it. VERIFIED is yes or no, BYTES the
application's. CAPTURE.json is of capture.py; if it is not there, the row says so. The exit status is 1 if the row is
not as it must be. Without arguments it prints the head of the table.
"""

import json
import os
import sys

ROW = "{:<11} {:<12} {:<8} {:>11}  {:>13} {:>13}  {:>13} {:>13}  {:<6} {}"


def problems(carrier, verified, size_bytes, seen):
    if verified != "yes":
        yield "the exchange has failed"
    if seen is None:
        yield "there is no capture"
        return
    if seen["lost"]:
        yield f"the capture lost {seen['lost']} packets"
    if carrier == "bare":
        if not seen["marked"] or not seen["others"]:
            yield "the capture does not show the exchange"
        return
    if seen["others"]:
        yield "there are packets besides Litz's"
    if seen["marked"]:
        yield f"{seen['marked']} packets have the marker"
    if any(not link[direction][0] for link in seen["links"] for direction in ("sent", "received")):
        yield "a link has carried nothing"
    carried_bytes = sum(link[direction][1] for link in seen["links"] for direction in ("sent", "received"))
    if carrier == "litz" and carried_bytes < size_bytes:
        yield "the links have not carried the data"


def main():
    if len(sys.argv) == 1:
        print(ROW.format("", "", "", "application", "first link:", "", "second link:", "", "", ""))
        head = ("program", "way", "verified", "bytes", "sent", "received", "sent", "received", "marker", "on the links")
        print(ROW.format(*head))
        return 0
    program, way, carrier, verified, size, capture = sys.argv[1:]
    seen = None
    if os.path.exists(capture + ".json"):
        with open(capture + ".json") as file:
            seen = json.load(file)
    wrong = list(problems(carrier, verified, int(size), seen))
    counts, marker, names = ["?"] * 4, "?", "?"
    if seen:
        links = seen["links"]
        counts = ["{}/{}".format(*link[direction]) for link in links for direction in ("sent", "received")]
        marker = "yes" if seen["marked"] else "no"
        kinds = {**seen["allowed"], **seen["others"]}
        names = ", ".join(f"{name}: {count}" for name, count in sorted(kinds.items(), key=lambda kind: -kind[1]))
    print(ROW.format(program, way, verified, size, *counts, marker, names))
    for what in wrong:
        print(f"    WRONG: {what}")
    return 1 if wrong else 0


sys.exit(main())
