"""Tables, chart and arithmetic of the page "A million devices", from the results of scale.py."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results" / "scale"
TABLES = Path(__file__).parent / "results" / "scale.md"
PROJECTION = Path(__file__).parent / "results" / "scale-projection.md"
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "scale.svg"

HEAD = (
    "| task | devices | processor µs per device-step | links and weights | start, s | measure, s "
    "| checkpoint, GB | write, s | resume, s | peak memory, GB | bytes per device |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
)
LIMITS_HEAD = ("| digits, 1,000,000 devices | measured | limit |", "|---|---|---|")
NAMES = {"digits": "digits", "mnist": "MNIST"}
REFERENCE = 10_000  # devices that a device-step is compared with
LARGEST = 1_000_000
MAX_GIGABYTES = 12.0
MAX_RATIO = 1.3
MAX_SHARE = 0.2

# Of the projection.
PROJECTED = 100_000_000  # devices
MACHINE_GIGABYTES = 64.0
CORES = 2  # per machine
NEIGHBOURS = 8
ENDS = 2  # machines that compute a link, at most: those of the devices at its ends
FLOAT = 4  # bytes
NETWORK_SPEED = 1.25e9  # bytes per second: 10 Gbit/s


def links_share(row: Row, threads: int) -> float:
    """Return the share of links and weights, which one thread computes, in the time of a round.

    Args:
        row: A row of the results.
        threads: The threads that share the rest of the processor time.
    """
    links = row["of that, links and weights"]
    rest = (row["processor seconds per round"] - links) / threads
    return float(links / (links + rest))


def line(row: Row) -> str:
    """Return a row of a table."""
    share = links_share(row, threads=1)
    cells = [
        row["task"],
        f"{row['devices']:,}",
        f"{row['processor microseconds per device-step']:.1f}",
        f"{100 * share:.0f} %",
        _number(row, "processor seconds to start", 2),
        _number(row, "processor seconds to measure", 2),
        _number(row, "checkpoint bytes", 3, 1e-9),
        _number(row, "processor seconds to write", 2),
        _number(row, "processor seconds to resume", 2),
        _number(row, "peak bytes", 2, 1e-9),
        f"{row['bytes beyond imports and samples'] / row['devices']:,.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _number(row: Row, name: str, digits: int, scale: float = 1.0) -> str:
    """Return a value of a row; a dash if it was not measured."""
    if name not in row:
        return "–"
    return f"{row[name] * scale:,.{digits}f}"


def write() -> None:
    """Write the tables of all processors, the projection and the chart."""
    results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    if not results:
        raise SystemExit(f"there are no results in {RESULTS}: run benchmarks/scale.py first")
    blocks = []
    for result in results:
        kernels = result["versions"]["kernels"]
        lines = [f"**{result['processor']}**, two threads, kernels: {kernels}", "", *HEAD]
        lines += [line(row) for row in result["rows"]]
        lines += ["", *limits(result["rows"])]
        blocks.append("\n".join(lines))
    TABLES.write_text("\n\n".join(blocks) + "\n")
    newest = largest_result(results)
    PROJECTION.write_text("\n".join(projection(newest)) + "\n")
    chart(newest["rows"], PICTURE)


def largest_result(results: Sequence[Row]) -> Row:
    """Return the processor with the most devices of digits, for chart and projection."""
    return max(results, key=lambda result: _largest(result["rows"])["devices"])


def _largest(rows: Sequence[Row]) -> Row:
    """Return the row of digits with the most devices."""
    return max(_digits(rows), key=lambda row: row["devices"])


def _digits(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["task"] == "digits"]


def limits(rows: Sequence[Row]) -> list[str]:
    """Return what a million devices took, beside its limits; in bold what misses one."""
    by_size = {row["devices"]: row for row in _digits(rows)}
    if LARGEST not in by_size or REFERENCE not in by_size:
        return [f"{LARGEST:,} devices were not measured on this processor."]
    row = by_size[LARGEST]
    name = "processor microseconds per device-step"
    ratio = row[name] / by_size[REFERENCE][name]
    lines = [*LIMITS_HEAD]
    for what, value, limit in (
        ("peak memory of the process, GB", row["peak bytes"] / 1e9, MAX_GIGABYTES),
        (f"device-step / that among {REFERENCE:,}", ratio, MAX_RATIO),
        ("links and weights, share of a round, one thread", links_share(row, 1), MAX_SHARE),
        ("the same, two threads", links_share(row, 2), MAX_SHARE),
    ):
        text = f"{value:.2f}"
        if value > limit:
            text = f"**{text}**"
        lines.append(f"| {what} | {text} | ≤ {limit:g} |")
    return lines


def projection(result: Row) -> list[str]:
    """Return what 100 million devices would take, computed from measured constants."""
    row = _largest(result["rows"])
    traced = [other for other in _digits(result["rows"]) if "bytes of links and weights" in other]
    links_row = max(traced, key=lambda other: other["devices"])
    model = FLOAT * row["parameters"]
    links_bytes = links_row["bytes of links and weights"] / links_row["devices"]
    own = row["bytes beyond imports and samples"] / row["devices"] - links_bytes
    links_seconds = row["of that, links and weights"] / row["devices"]
    step = row["processor microseconds per device-step"] * 1e-6 - links_seconds
    linked = own + ENDS * links_bytes
    machines = math.ceil(PROJECTED * linked / (MACHINE_GIGABYTES * 1e9))
    gigabytes = f"{MACHINE_GIGABYTES:.0f} GB"
    return [
        f"Constants measured with {row['devices']:,} devices on {result['processor']}, per device "
        f"and round: {own:,.0f} bytes and {1e6 * step:.2f} µs of a processor for models, "
        f"gradients and samples (a model has {model:,} bytes), {links_bytes:,.0f} bytes and "
        f"{1e6 * links_seconds:.2f} µs for links and weights.",
        "",
        f"| {PROJECTED:,} devices | arithmetic | value |",
        "|---|---|---|",
        f"| memory of the devices | {PROJECTED:,} × {own:,.0f} B "
        f"| {PROJECTED * own / 1e9:,.0f} GB |",
        f"| links and weights, on the machines of both ends | {PROJECTED:,} × {ENDS} × "
        f"{links_bytes:,.0f} B | {PROJECTED * ENDS * links_bytes / 1e9:,.0f} GB |",
        f"| machines of {gigabytes} that hold both | memory / {gigabytes} | {machines} |",
        *_traffic(machines, model),
        *_times(row, machines, step, links_seconds),
    ]


def _sent(machines: int, model: int) -> float:
    """Return the bytes between machines per round."""
    return PROJECTED * model * _copies(machines)


def _copies(machines: int) -> float:
    """Return how many other machines have a neighbour of a device, on average."""
    return (machines - 1) * (1 - (1 - 1 / machines) ** NEIGHBOURS)


def _traffic(machines: int, model: int) -> list[str]:
    """Return the rows of what is sent in a round."""
    terabytes = f"{_sent(machines, model) / 1e12:,.2f} TB"
    seconds = _sent(machines, model) / machines / NETWORK_SPEED
    return [
        f"| bytes between machines per round | {PROJECTED:,} × {model:,} B × "
        f"{_copies(machines):.2f} machines | {terabytes} |",
        f"| sending, s per round, at 10 Gbit/s per machine | {terabytes} / {machines} / "
        f"{NETWORK_SPEED / 1e9:g} GB/s | {seconds:,.0f} |",
    ]


def _times(row: Row, machines: int, step: float, links_seconds: float) -> list[str]:
    """Return the rows of what is computed in a round."""
    compute = PROJECTED * step / machines / CORES
    links = PROJECTED * ENDS * links_seconds / machines
    sending = _sent(machines, FLOAT * row["parameters"]) / machines / NETWORK_SPEED
    terms = {"steps and mixing": compute, "sending": sending, "links": links}
    return [
        f"| steps and mixing, s per round | {PROJECTED:,} × {1e6 * step:.2f} µs / {machines} / "
        f"{CORES} | {compute:,.0f} |",
        f"| links and weights, s per round, one thread | {PROJECTED:,} × {ENDS} × "
        f"{1e6 * links_seconds:.2f} µs / {machines} | {links:,.0f} |",
        f"| largest of the three | | {max(terms, key=lambda name: terms[name])} |",
    ]


def chart(rows: Sequence[Row], path: Path) -> None:
    """Draw time and memory by the number of devices.

    Args:
        rows: The rows of one processor.
        path: The SVG file.
    """
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "gossamer"
    panels = (_draw_times, _draw_memory)
    figure, found = pyplot.subplots(
        1, len(panels), figsize=(4.5 * len(panels), 3.6), layout="constrained", squeeze=False
    )
    for draw, axes in zip(panels, found[0], strict=True):
        for k, (kind, name) in enumerate(NAMES.items()):
            draw(axes, k, name, [row for row in rows if row["task"] == kind])
        axes.set(xscale="log", yscale="log", xlabel="devices")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def _draw_times(axes: Any, k: int, name: str, rows: Sequence[Row]) -> None:
    """Draw the time of a device-step of one task, and of its links."""
    from gossamer.results.palette import COLOURS

    if not rows:
        return
    devices = [row["devices"] for row in rows]
    times = [row["processor microseconds per device-step"] for row in rows]
    links = [1e6 * row["of that, links and weights"] / row["devices"] for row in rows]
    axes.plot(devices, times, "os"[k] + "-", color=COLOURS[k], label=name)
    axes.plot(devices, links, ":", color=COLOURS[k], label=_once(k, "of that, links and weights"))
    axes.set_ylabel("processor time of a device-step, µs")


def _draw_memory(axes: Any, k: int, name: str, rows: Sequence[Row]) -> None:
    """Draw the memory of one task, and that of models, gradients and samples alone."""
    from gossamer.results.palette import COLOURS

    if not rows:
        return
    devices = [row["devices"] for row in rows]
    memory = [row["bytes beyond imports and samples"] / 1e9 for row in rows]
    needed = [row["bytes needed"] / 1e9 for row in rows]
    axes.plot(devices, memory, "os"[k] + "-", color=COLOURS[k], label=name)
    label = _once(k, "2·state + gradient + samples")
    axes.plot(devices, needed, ":", color=COLOURS[k], label=label)
    axes.set_ylabel("memory beyond imports, GB")


def _once(k: int, label: str) -> str | None:
    """Return a label for the legend with the first task only."""
    if k > 0:
        return None
    return label
