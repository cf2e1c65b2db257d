"""The busiest period of a published log of contacts, and the devices that meet most in it."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np

TRACES = {
    "hospital": "Contacts_Hospital.csv",
    "primary school": "Primary_School.csv",
    "high school": "thiers_2012.csv",
}

RESOLUTION = 20  # seconds between two lines of a log for the same contact

_SCAN = 15  # rounds between two beginnings of a period that are compared
Contact = tuple[int, int, int]  # round, and two devices


def busiest(path: Path, devices: int, rounds: int) -> list[Contact]:
    """Return the contacts of the busiest period of a log, of the devices that meet most in it.

    Args:
        path: The log: a line per 20 seconds of a contact, with its time and two names.
        devices: Number of devices.
        rounds: Length of the period, in units of 20 seconds.
    """
    with path.open() as file:
        rows = [(int(row[0]), row[1], row[2]) for row in csv.reader(file, delimiter="\t")]
    first = min(row[0] for row in rows)
    number = np.array([(row[0] - first) // RESOLUTION for row in rows])
    per_round = np.bincount(number)
    begins = range(0, max(1, len(per_round) - rounds), _SCAN)
    begin = max(begins, key=lambda t: int(per_round[t : t + rounds].sum()))
    period = []
    for t, (_, a, b) in zip(number.tolist(), rows, strict=True):
        if begin <= t < begin + rounds:
            period.append((t - begin, min(a, b), max(a, b)))
    chosen = _who_meet_most(Counter((a, b) for _, a, b in period), devices)
    found = {(t, chosen[a], chosen[b]) for t, a, b in period if a in chosen and b in chosen}
    return sorted((t, min(a, b), max(a, b)) for t, a, b in found)


def _who_meet_most(meetings: Counter[tuple[str, str]], devices: int) -> dict[str, int]:
    """Return numbers of devices: the pair that meets most, then who meets those chosen most."""
    (first, _), *_ = meetings.most_common(1)
    chosen = {name: number for number, name in enumerate(first)}
    while len(chosen) < devices:
        counts: Counter[str] = Counter()
        for (a, b), times in meetings.items():
            for one, other in ((a, b), (b, a)):
                if one in chosen and other not in chosen:
                    counts[other] += times
        # Of those that meet equally often the one whose name comes first.
        best = min(counts, key=lambda name: (-counts[name], name))
        chosen[best] = len(chosen)
    return chosen
