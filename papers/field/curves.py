"""Curves of every method on digits, with the tuned settings of the comparison of all methods.

    python -m papers.field.curves           run them, and write results/curves.csv (15 minutes)
    python -m papers.field.curves NAME…     run some methods again

`picture` draws the curve of one method beside that of D-PSGD. The settings are those of
results/digits.csv; methods that it lacks run with the learning rate of another, and say so.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

import gossamer as gs
from gossamer.algorithms import METHODS
from gossamer.results.palette import COLOURS
from papers import families
from papers.field.advice import RESULTS
from papers.field.cells import DIGITS, SPLIT_NAMES, STATIC, Cell, refusal
from papers.field.compare import load
from papers.wpm.paper import write_csv

SEEDS = 3
BASELINE = "d-psgd"
# D² diverges on a ring with an even number of devices, and is NIDS with other weights.
_RATE_OF = {"d2": "nids"}
_FILE = RESULTS / "curves.csv"

Key = tuple[str, str, str]  # method, split and network

_WIDTH = 640
_HEIGHT = 210
_PANEL = 250  # width of a panel; the rest is for the labels beside the curves
_TOP = 30
_BOTTOM = 170
_INK = "#333333"
_GREY = "#6b6b6b"


def cell_of(method: str, split: str) -> Cell | None:
    """Return the first ring on which a method runs, or None: random, static, static and odd."""
    for network, devices in (("random ring", 20), (STATIC, 20), (STATIC, 21)):
        cell = Cell(DIGITS, split, network, devices)
        if refusal(cell, method) is None:
            return cell
    return None


def pairs() -> Iterator[tuple[str, Cell]]:
    """Yield every method with its cells; the baseline on the static ring, too."""
    for split in ("iid", "one label"):
        for method in families.all_names():
            cell = cell_of(method, split) if method in METHODS else None
            if cell is not None:
                yield method, cell
        yield BASELINE, Cell(DIGITS, split, STATIC, 20)


def tuned(method: str, cell: Cell) -> tuple[str, gs.Algorithm]:
    """Return the tuned settings of a method on a cell in words, and the method with them."""
    measured = load(RESULTS)
    source = method
    if (cell, method) not in measured.runs:
        source = _RATE_OF.get(method, BASELINE)
        cell = replace(cell, devices=20)
    text = next(iter(measured.runs[cell, source].values()))["setting"]
    words = dict(word.split("=") for word in text.split())
    family = families.family(method)
    values = {}
    for axis in family.axes:
        possible = {str(value): value for value in axis.values}
        values[axis.name] = possible.get(words.get(axis.name, ""), axis.values[axis.start])
    if source != method:
        text = f"the rate of {source}"
    return text, family.make(**values)


def run(names: list[str]) -> None:
    """Run all methods, or some, and write the file.

    Args:
        names: Names of methods; empty for all.
    """
    rows: dict[Key, dict[str, Any]] = {}
    if names:
        rows.update(curves())
    for method, cell in pairs():
        if names and method not in names:
            continue
        text, algorithm = tuned(method, cell)
        row = {"method": method, "split": cell.split, "network": cell.network, "setting": text}
        tables = [gs.run(cell.study(algorithm, seed)).metrics for seed in range(SEEDS)]
        for i, t in enumerate(tables[0]["round"]):
            row[str(t)] = f"{sum(table['accuracy'][i] for table in tables) / SEEDS:.3f}"
        rows[method, cell.split, cell.network] = row
        print(method, cell.split, text, list(row.values())[-1], flush=True)
    write_csv(_FILE, [rows[key] for key in sorted(rows)])


@cache
def curves() -> dict[Key, dict[str, str]]:
    """Return the rows of the file by method, split and network."""
    with _FILE.open(newline="") as file:
        return {(row["method"], row["split"], row["network"]): row for row in csv.DictReader(file)}


def points(row: dict[str, str]) -> list[tuple[int, float]]:
    """Return rounds and accuracies of a row."""
    return [(int(key), float(value)) for key, value in row.items() if key.isdigit()]


def picture(method: str) -> str:
    """Return the curves of a method on IID data and with one label per device, as SVG."""
    panels = []
    for k, split in enumerate(("iid", "one label")):
        panels.append(_panel(method, split, 40 + k * (_WIDTH - 40) // 2))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="11" '
        f'fill="{_INK}" role="img">\n<title>Accuracy by round: {escape(METHODS[method].label)}'
        f'</title>\n<rect width="100%" height="100%" fill="white"/>\n{"".join(panels)}</svg>\n'
    )


def _panel(method: str, split: str, left: int) -> str:
    title = "IID" if split == "iid" else f"{SPLIT_NAMES[split]} per device"
    lines = [f'<text x="{left}" y="16" font-weight="bold">{title}</text>\n']
    right = left + _PANEL
    for percent in (0, 50, 100):
        y = _y(percent / 100)
        lines.append(
            f'<path d="M{left} {y}H{right}" stroke="#dddddd"/>'
            f'<text x="{left - 5}" y="{y + 4}" text-anchor="end">{percent}</text>\n'
        )
    for rounds in (0, 100, 200):
        x = left + rounds * _PANEL / DIGITS.rounds
        lines.append(f'<text x="{x:g}" y="{_BOTTOM + 16}" text-anchor="middle">{rounds}</text>\n')
    lines.append(
        f'<text x="{left + _PANEL / 2:g}" y="{_BOTTOM + 32}" text-anchor="middle">'
        "rounds; accuracy in %</text>\n"
    )
    cell = cell_of(method, split)
    assert cell is not None
    names = [BASELINE] if method == BASELINE else [BASELINE, method]
    for name in names:
        row = curves()[name, split, cell.network]
        style = f'stroke="{COLOURS[0]}" stroke-width="2"'
        colour = COLOURS[0]
        if name == BASELINE and name != method:
            style = f'stroke="{_GREY}" stroke-width="1.5" stroke-dasharray="4 3"'
            colour = _GREY
        path = "L".join(
            f"{left + rounds * _PANEL / DIGITS.rounds:g} {_y(accuracy)}"
            for rounds, accuracy in points(row)
        )
        lines.append(f'<path d="M{path}" fill="none" {style}/>\n')
        place = 60 + 16 * names.index(name)
        lines.append(
            f'<text x="{right - 4}" y="{_TOP + place}" text-anchor="end" fill="{colour}">'
            f"{escape(METHODS[name].label)}</text>\n"
        )
    return "".join(lines)


def _y(accuracy: float) -> float:
    return round(_BOTTOM - accuracy * (_BOTTOM - _TOP), 1)


if __name__ == "__main__":
    run(sys.argv[1:])
