"""One palette for pages, figures and animations: told apart by everyone, and in grey by dashes and markers.

The colours are Okabe and Ito's, which are safe for the colour-blind. Method k has colour, dash and marker number k; beyond
the seventh the dashes are moved on by one, so that no two of the first 49 methods look alike.
"""

from __future__ import annotations

COLOURS: tuple[str, ...] = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)
# Lengths of dashes and gaps, in widths of the line; an empty one is a solid line.
DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (6, 2),
    (6, 2, 1, 2),
    (1, 2),
    (10, 2),
    (4, 1, 1, 1, 1, 1),
    (2, 1),
)
MARKERS: tuple[str, ...] = ("o", "s", "^", "D", "v", "P", "X")  # as matplotlib names them


def look(k: int) -> tuple[int, int]:
    """The number of the colour (and the marker) of method k, and of its dash.

    >>> look(0), look(6), look(7)
    ((0, 0), (6, 6), (0, 1))
    """
    return k % len(COLOURS), (k + k // len(COLOURS)) % len(DASHES)
