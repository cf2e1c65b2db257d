"""How studies, runs and comparisons show themselves in a notebook: a table, and the curves beneath it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from gossamer.network.notebook import box, table, ticks, title
from gossamer.results.statistics import interval

if TYPE_CHECKING:
    from gossamer.results.tables import Method

# Those of report/palette.py, which this layer does not know; black is whatever the page writes in.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "currentColor")
DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (6, 2),
    (6, 2, 1, 2),
    (1, 2),
    (10, 2),
    (4, 1, 1, 1, 1, 1),
    (2, 1),
)
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 520, 240, 52, 38, 10
_LINE, _POINTS = 1.8, 400


def show_parts(heading: str, parts: Mapping[str, Any]) -> str:
    """Return a table of named parts in HTML, each as Python writes it.

    Args:
        heading: The title above the table.
        parts: The parts by name.
    """
    return box(title(heading), table((name, _cut(repr(value))) for name, value in parts.items()))


def show_methods(
    methods: Sequence[Method], heading: Sequence[str], rows: Sequence[Sequence[str]]
) -> str:
    """The table of some methods with its curves: mean accuracy (or loss) by round, with the 95 % interval of the seeds."""
    if not methods:
        return box(title("no methods"))
    what = methods[0].runs[0].title(len(methods[0].runs))
    folders = [
        str(run.folder) for method in methods for run in method.runs if run.folder is not None
    ]
    where = (
        f"<p>{escape(folders[0])}{f' and {len(folders) - 1} more' if folders[1:] else ''}</p>"
        if folders
        else ""
    )
    return box(title(what), table(rows, heading), _curves(methods), where)


def _curves(methods: Sequence[Method]) -> str:
    classifies = methods[0].runs[0].summary["accuracy"] is not None
    column, label, scale = (
        ("accuracy", "mean test accuracy, %", 100.0)
        if classifies
        else ("loss", "mean test loss", 1.0)
    )
    lines = [_line(method, column, scale) for method in methods]
    across = np.concatenate([line[0] for line in lines])
    up = np.concatenate([np.concatenate(line[1:]) for line in lines])
    up = up[np.isfinite(up)]
    if not len(up):
        return ""
    low, high = (
        (max(0.0, float(up.min())), min(100.0, float(up.max())))
        if classifies
        else (float(up.min()), float(up.max()))
    )
    low, high, far = low, max(high, low + 1e-9), max(1.0, float(across.max()))
    height = _HEIGHT - _BOTTOM - _TOP

    def x(value: Any) -> Any:
        return _LEFT + (_WIDTH - _LEFT - 12) * value / far

    def y(value: Any) -> Any:
        return _TOP + height * (1 - (np.clip(value, low, high) - low) / (high - low))

    parts = [_axes(x, y, low, high, far, label)]
    for k, (along, mean, less, more) in enumerate(lines):
        colour, style = _stroke(k)
        if (more > less).any():
            edge = _points(x(along), y(more)) + " " + _points(x(along[::-1]), y(less[::-1]))
            parts.append(f'<polygon points="{edge}" fill="{colour}" fill-opacity="0.15"/>')
        parts.append(f'<polyline points="{_points(x(along), y(mean))}" {style}/>')
    drawn = f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{label} by round">{"".join(parts)}</svg>'
    return drawn + (_legend(methods) if len(methods) > 1 else "")


def _line(method: Method, column: str, scale: float) -> tuple[Any, ...]:
    """Rounds, and the mean with the ends of its interval."""
    shown = [run.metrics for run in method.runs]
    along = np.asarray(shown[0]["round"])
    kept = np.unique(np.linspace(0, len(along) - 1, min(len(along), _POINTS)).astype(int))
    points = [interval([run[column][k] for run in shown]) for k in kept]
    mean, half = np.array([(point.mean, point.half or 0.0) for point in points]).T * scale
    return along[kept], mean, mean - half, mean + half


def _axes(x: Any, y: Any, low: float, high: float, far: float, label: str) -> str:
    text = 'font-size="11" fill="currentColor"'
    parts = []
    for value in ticks(low, high):
        parts.append(
            f'<path d="M{_LEFT} {y(value):.1f}H{_WIDTH - 12}" stroke="currentColor" stroke-opacity="0.15"/>'
        )
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end" {text}>{value:g}</text>'
        )
    for value in ticks(0, far):
        parts.append(
            f'<text x="{x(value):.1f}" y="{_HEIGHT - _BOTTOM + 15}" text-anchor="middle" {text}>{value:g}</text>'
        )
    base = f'<path d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - 12}" stroke="currentColor" fill="none"/>'
    across = f'<text x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 6}" text-anchor="middle" {text}>round</text>'
    middle = (_HEIGHT - _BOTTOM + _TOP) / 2
    up = f'<text transform="translate(12 {middle}) rotate(-90)" text-anchor="middle" {text}>{label}</text>'
    return "".join([*parts, base, across, up])


def _legend(methods: Sequence[Method]) -> str:
    items = []
    for k, method in enumerate(methods):
        sample = f'<svg width="36" height="10" aria-hidden="true"><path d="M0 5H36" {_stroke(k)[1]}/></svg>'
        items.append(
            f'<span style="white-space:nowrap;margin-right:1.5em">{sample} {escape(method.label)}</span>'
        )
    return f'<div style="font-size:90%">{" ".join(items)}</div>'


def _stroke(k: int) -> tuple[str, str]:
    """The colour of method k, and how its line is drawn, as in the figures."""
    colour, lengths = COLOURS[k % len(COLOURS)], DASHES[(k + k // len(COLOURS)) % len(DASHES)]
    dashes = " ".join(f"{length * _LINE:g}" for length in lengths) or "none"
    return (
        colour,
        f'stroke="{colour}" stroke-dasharray="{dashes}" stroke-width="{_LINE}" fill="none"',
    )


def _points(x: Any, y: Any) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True) if np.isfinite(b))


def _cut(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
