"""The throughput for UDP datagrams of 1200 bytes from one namespace to another, after RFC 2544, section 26.1: the highest
offered rate of which at most 1 % is lost. throughput.py FROM TO ADDRESS BATCH prints the datagrams a second that arrive
of as many as the sender can send, and the throughput. BATCH is how many are in a call of the sender.

The RFC allows no loss. Between programs on a few processors of a host with other programs a single one decides little,
so that 1 % is allowed. The rate is found by bisection; a trial takes a second."""

import os
import subprocess
import sys

FROM, TO, ADDRESS, BATCH = sys.argv[1:]
FLOOD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "flood.py")
LOSS_MAX = 0.01
SECONDS = 1
STEPS = 6
# The bisection begins between this part of what arrives of too much, and as many times it.
SPAN = 4


def trial(rate=None):
    """Offers a rate; returns the datagrams a second that were sent, how many of these arrived, and at which rate."""
    receiver = subprocess.Popen(
        ["ip", "netns", "exec", TO, "python3", FLOOD, "receive"], stdout=subprocess.PIPE, text=True
    )
    assert receiver.stdout.readline() == "ready\n"
    send = ["ip", "netns", "exec", FROM, "python3", FLOOD, "send", ADDRESS, str(SECONDS), BATCH]
    sent = int(subprocess.check_output(send + ([] if rate is None else [str(rate)])))
    arrived, rate = map(int, receiver.communicate()[0].split())
    return sent / SECONDS, arrived / SECONDS, rate


def passes(sent, arrived):
    return arrived >= (1 - LOSS_MAX) * sent


sent, arrived, flood = trial()
if passes(sent, arrived):
    best = sent
else:
    best, low, high = 0, flood / SPAN, min(sent, flood * SPAN)
    for _ in range(STEPS):
        rate = (low * high) ** 0.5
        sent, arrived, _ = trial(rate)
        if passes(sent, arrived):
            best, low = max(best, sent), rate
        else:
            high = rate
print(f"{flood:.0f} {best:.0f}")
