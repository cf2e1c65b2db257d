"""One palette for terminals, notebooks, figures and pages.

Method k of a comparison has the same colour, dash and marker everywhere; `natural` in
`results.order` and the order of a comparison's studies say which method is number k. Dashes and
markers tell methods apart without colour.
"""

from __future__ import annotations

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS: tuple[str, ...] = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)
# The same hues for pages: contrast of at least 3:1 on the light and on the dark background.
LIGHT_PAGE: tuple[str, ...] = (
    "#0072b2",
    "#cf5a00",
    "#008a64",
    "#b8568c",
    "#a87400",
    "#2b8fc9",
    "#1a1e23",
)
DARK_PAGE: tuple[str, ...] = (
    "#4fa8e0",
    "#ff8a3d",
    "#2fc79a",
    "#e39bc4",
    "#f2b632",
    "#9ad4f7",
    "#e7eaee",
)
# In a notebook the page's own text colour takes the place of black.
NOTEBOOK: tuple[str, ...] = (*COLOURS[:-1], "currentColor")
# Lengths of dashes and gaps, in widths of the line; an empty tuple is a solid line.
DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (6, 2),
    (6, 2, 1, 2),
    (1, 2),
    (10, 2),
    (4, 1, 1, 1, 1, 1),
    (2, 1),
)
MARKERS: tuple[str, ...] = ("o", "s", "^", "D", "v", "P", "X")  # matplotlib's names
# The status of a run or a device in a terminal, in rich's names of styles.
STATUS: dict[str, str] = {
    "finished": "green",
    "done": "bold green",
    "running": "cyan",
    "stopped": "yellow",
    "resting": "yellow",
    "silent": "yellow",
    "diverged": "red",
    "broken": "red",
    "unreadable": "red",
    "not seen": "dim",
}


def line_style(k: int) -> tuple[int, int]:
    """Return the index of the colour (and of the marker) of method k, and the index of its dash.

    Beyond the seventh method the dashes shift by one, so that the first 49 methods all differ.

    Args:
        k: The position of the method in its comparison, from 0.

    Example:
        >>> line_style(0), line_style(6), line_style(7)
        ((0, 0), (6, 6), (0, 1))
    """
    return k % len(COLOURS), (k + k // len(COLOURS)) % len(DASHES)


def dash_array(dash: int, width: float = 1.0) -> str:
    """Return a dash as the value of SVG's `stroke-dasharray`; empty for a solid line.

    Args:
        dash: An index of `DASHES`.
        width: The width of the line.

    Example:
        >>> dash_array(1), dash_array(1, 2.0), dash_array(0)
        ('6 2', '12 4', '')
    """
    return " ".join(f"{length * width:g}" for length in DASHES[dash])
