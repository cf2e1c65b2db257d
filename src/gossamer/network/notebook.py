"""How a network shows itself in a notebook: a few facts, and its first rounds as small pictures.

HTML without scripts, styles or addresses of its own; everything is escaped, and lines and letters take the page's colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gossamer.network.base import Links, Network

FloatArray = NDArray[np.float64]

_BLUE = "#0072B2"
_ROUNDS = 20  # that the facts are of
_PICTURES = 4
_DEVICES = 200  # up to which links can be told apart in a small picture
_MANY = 2000  # devices from which only the pictures' rounds are looked at


def show(net: Network) -> str:
    """The HTML of a network."""
    most = _PICTURES if net.devices > _MANY else _ROUNDS
    looked_at = 1 if net.period == 1 else most if net.rounds is None else min(most, net.rounds)
    rounds = [net.links(t) for t in range(looked_at)]
    degrees = (
        np.concatenate([links.degrees for links in rounds]) if rounds else np.zeros(1, dtype=int)
    )
    facts = [
        ("devices", f"{net.devices:,}"),
        ("links a round", f"{np.mean([len(links) for links in rounds] or [0]):.4g}"),
        ("neighbours of a device", f"{degrees.mean():.3g} ({degrees.min()} to {degrees.max()})"),
        ("devices alone", f"{(degrees == 0).mean():.0%}"),
        (
            "looked at",
            "every round is the same" if net.period == 1 else f"the first {looked_at} rounds",
        ),
    ]
    drawn = rounds[:_PICTURES] if net.devices <= _DEVICES else []
    return box(title(repr(net)), table(facts), f"<div>{_pictures(net, drawn)}</div>")


def places(net: Network, t: int) -> FloatArray:
    """Where the devices are in round t, [devices, 2]: where the network says (NaN: nowhere), else on a circle."""
    while hasattr(net, "network"):  # faults move nobody
        net = net.network
    if not hasattr(net, "positions"):
        angle = np.pi / 2 - 2 * np.pi * np.arange(net.devices) / net.devices
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if getattr(net, "beyond", "") == "repeat":
        t %= net.recorded  # type: ignore[attr-defined]
    here: FloatArray = net.positions(t)
    return here[:, ::-1] if getattr(net, "geographic", False) else here  # latitude goes up


def extent(of: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    """The corners of all places."""
    every = np.concatenate([np.empty((0, 2)), *of])
    every = every[~np.isnan(every[:, 0])]
    return (every.min(0), every.max(0)) if len(every) else (np.zeros(2), np.ones(2))


def _pictures(net: Network, rounds: Sequence[Links], size: int = 130) -> str:
    """The links of the first rounds, side by side."""
    where = [places(net, t) for t in range(len(rounds))]
    low, high = extent(where)
    scale = (size - 16) / (float((high - low).max()) or 1.0)
    drawn = []
    for t, (links, place) in enumerate(zip(rounds, where, strict=True)):
        x, y = 8 + (place[:, 0] - low[0]) * scale, size - 8 - (place[:, 1] - low[1]) * scale
        lines = "".join(f"M{x[a]:.0f} {y[a]:.0f}L{x[b]:.0f} {y[b]:.0f}" for a, b in links.pairs)
        radius = max(1.2, min(4.0, 60 / links.devices))
        here = np.ones(links.devices, dtype=bool) if links.active is None else links.active
        dots = "".join(
            f'<circle cx="{x[i]:.1f}" cy="{y[i]:.1f}" r="{radius:.1f}" fill-opacity="{1 if here[i] else 0.25}"/>'
            for i in np.flatnonzero(~np.isnan(x))
        )
        below = f'<text x="{size / 2:g}" y="{size + 13}" text-anchor="middle" font-size="11" fill="currentColor">round {t}</text>'
        drawn.append(
            f'<svg width="{size}" height="{size + 18}" role="img" aria-label="links of round {t}">'
            f'<path d="{lines}" stroke="{_BLUE}" stroke-opacity="0.7" fill="none"/>'
            f'<g fill="currentColor">{dots}</g>{below}</svg>'
        )
    return "".join(drawn)


# -- HTML ----------------------------------------------------------------------------------------------------------------


def box(*parts: str) -> str:
    """Parts below each other."""
    return f'<div style="color:inherit;max-width:60em">{"".join(parts)}</div>'


def title(text: str, limit: int = 300) -> str:
    """A line in bold; a long one is cut."""
    return (
        f"<p><strong>{escape(text if len(text) <= limit else text[: limit - 1] + '…')}</strong></p>"
    )


def table(rows: Iterable[Sequence[str]], heading: Sequence[str] = ()) -> str:
    """Rows of cells: the first of a row names it. Everything is escaped; a new line in a heading is one."""
    left, right = (
        'style="text-align:left;padding:2px 10px 2px 0"',
        'style="text-align:right;padding:2px 8px;white-space:nowrap"',
    )
    side = right if heading else left
    head = "".join(
        f"<th {right if k else left}>{_lines(cell)}</th>" for k, cell in enumerate(heading)
    )
    body = "".join(
        f"<tr><th {left}>{escape(name)}</th>"
        + "".join(f"<td {side}>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if heading else ''}<tbody>{body}</tbody></table>"


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from low to high.

    >>> ticks(0, 97), ticks(0.2, 0.9, 4)
    ([0.0, 20.0, 40.0, 60.0, 80.0], [0.2, 0.4, 0.6, 0.8])
    """
    span = high - low
    if not span > 0:
        return [low]
    rough = span / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * k for k in (1, 2, 5, 10) if size * k >= rough * 0.999)
    return [
        round(k * step, 12)
        for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]
