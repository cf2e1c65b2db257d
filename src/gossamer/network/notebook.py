"""HTML that notebooks show for a network: some statistics and pictures of its first rounds.

The HTML has no scripts, style sheets or links; all text is escaped, and lines and letters take the
colour of the page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gossamer.network.base import FloatArray, Links, Network

_BLUE = "#0072B2"
_ROUNDS = 20  # rounds that the statistics cover
_PICTURES = 4  # rounds that are drawn
_MAX_DRAWN = 200  # devices up to which links can be told apart in a small picture
_MAX_DEVICES = 2000  # devices beyond which the statistics cover only as many rounds as are drawn
_SIZE = 130  # width and height of a picture, in pixels
_MARGIN = 8  # margin of a picture, in pixels

_LEFT = 'style="text-align:left;padding:2px 10px 2px 0"'
_RIGHT = 'style="text-align:right;padding:2px 8px;white-space:nowrap"'


def show(network: Network) -> str:
    """Return the HTML of a network.

    Args:
        network: The network.
    """
    rounds = [network.links(t) for t in range(_rounds_to_show(network))]
    degrees = np.zeros(1, dtype=int)
    mean_links = 0.0
    if rounds:
        degrees = np.concatenate([links.degrees for links in rounds])
        mean_links = float(np.mean([len(links) for links in rounds]))
    covered = f"the first {len(rounds)} rounds"
    if network.period == 1:
        covered = "every round is the same"
    facts = [
        ("devices", f"{network.devices:,}"),
        ("links per round", f"{mean_links:.4g}"),
        ("neighbours per device", f"{degrees.mean():.3g} ({degrees.min()} to {degrees.max()})"),
        ("devices without neighbours", f"{(degrees == 0).mean():.0%}"),
        ("rounds", covered),
    ]
    drawn = rounds[:_PICTURES] if network.devices <= _MAX_DRAWN else []
    pictures = "".join(_pictures(network, drawn))
    return box(title(repr(network)), table(facts), f"<div>{pictures}</div>")


def _rounds_to_show(network: Network) -> int:
    if network.period == 1:
        return 1
    most = _PICTURES if network.devices > _MAX_DEVICES else _ROUNDS
    if network.rounds is None:
        return most
    return min(most, network.rounds)


def extent(layouts: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return the lower left and upper right corner of all positions.

    Args:
        layouts: Coordinates [devices, 2] of each round; rows of NaN are ignored.

    Returns:
        The two corners; (0, 0) and (1, 1) if there are no positions.
    """
    points = np.concatenate([np.empty((0, 2)), *layouts])
    points = points[~np.isnan(points[:, 0])]
    if not len(points):
        return np.zeros(2), np.ones(2)
    return points.min(0), points.max(0)


def _pictures(network: Network, rounds: Sequence[Links]) -> list[str]:
    """Return one SVG picture per round."""
    layouts = [network.layout(t) for t in range(len(rounds))]
    low, high = extent(layouts)
    scale = (_SIZE - 2 * _MARGIN) / (float((high - low).max()) or 1.0)
    pictures = []
    for t, (links, layout) in enumerate(zip(rounds, layouts, strict=True)):
        x = _MARGIN + (layout[:, 0] - low[0]) * scale
        y = _SIZE - _MARGIN - (layout[:, 1] - low[1]) * scale
        pictures.append(_picture(t, links, x, y))
    return pictures


def _picture(t: int, links: Links, x: FloatArray, y: FloatArray) -> str:
    """Return the SVG picture of one round; devices that are away are pale."""
    lines = "".join(f"M{x[a]:.0f} {y[a]:.0f}L{x[b]:.0f} {y[b]:.0f}" for a, b in links.pairs)
    radius = max(1.2, min(4.0, 60 / links.devices))
    active = links.active_mask
    dots = []
    for i in np.flatnonzero(~np.isnan(x)):
        opacity = 1 if active[i] else 0.25
        position = f'cx="{x[i]:.1f}" cy="{y[i]:.1f}"'
        dots.append(f'<circle {position} r="{radius:.1f}" fill-opacity="{opacity}"/>')
    caption = (
        f'<text x="{_SIZE / 2:g}" y="{_SIZE + 13}" text-anchor="middle" font-size="11" '
        f'fill="currentColor">round {t}</text>'
    )
    return (
        f'<svg width="{_SIZE}" height="{_SIZE + 18}" role="img" aria-label="links of round {t}">'
        f'<path d="{lines}" stroke="{_BLUE}" stroke-opacity="0.7" fill="none"/>'
        f'<g fill="currentColor">{"".join(dots)}</g>{caption}</svg>'
    )


# -- HTML ------------------------------------------------------------------------------------------


def box(*parts: str) -> str:
    """Return pieces of HTML below each other.

    Args:
        parts: The pieces.
    """
    return f'<div style="color:inherit;max-width:60em">{"".join(parts)}</div>'


def title(text: str, limit: int = 300) -> str:
    """Return a line in bold.

    Args:
        text: The text, which is escaped.
        limit: Number of characters beyond which it is cut.
    """
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return f"<p><strong>{escape(text)}</strong></p>"


def table(rows: Iterable[Sequence[str]], heading: Sequence[str] = ()) -> str:
    """Return a table.

    Args:
        rows: The cells of each row, which are escaped. The first cell names the row.
        heading: Names of the columns. A line break in a name stays one.
    """
    align = _RIGHT if heading else _LEFT
    html = ["<table>"]
    if heading:
        names = [escape(name).replace("\n", "<br>") for name in heading]
        html.append(f"<thead><tr><th {_LEFT}>{names[0]}</th>")
        html.extend(f"<th {_RIGHT}>{name}</th>" for name in names[1:])
        html.append("</tr></thead>")
    html.append("<tbody>")
    for name, *cells in rows:
        html.append(f"<tr><th {_LEFT}>{escape(name)}</th>")
        html.extend(f"<td {align}>{escape(cell)}</td>" for cell in cells)
        html.append("</tr>")
    html.append("</tbody></table>")
    return "".join(html)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers between two bounds, for an axis.

    Args:
        low: Lower bound.
        high: Upper bound.
        about: Approximate number of ticks.

    Example:
        >>> ticks(0, 97), ticks(0.2, 0.9, 4)
        ([0.0, 20.0, 40.0, 60.0, 80.0], [0.2, 0.4, 0.6, 0.8])
    """
    span = high - low
    if not span > 0:
        return [low]
    rough = span / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * k for k in (1, 2, 5, 10) if size * k >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]
