"""Draw the figures of the documentation and of the README: `python docs/pictures.py [NAME…]`.

    links mixing mirror dual     the figures of docs/concepts.md
    networks                     one per network of docs/networks.md, from the code of that page
    architecture                 the figure of docs/architecture.md
    methods                      one per method, from papers/field/results/curves.csv
    traces                       the traces of docs/networks.md; published ones from the folder
                                 traces of $GOSSAMER_OUTSIDE
    demo                         the figure of `gossamer compare`
    report                       the head of its report, in Chromium
    pages                        the pages of docs/gallery.md, in Chromium: about two minutes
    readme                       the figure of the README: a run of examples/robots.toml, about 15 s

With the versions of constraints.txt all but the last five are reproduced byte for byte.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

import gossamer as gs
from gossamer.network import Links, Network, connected
from gossamer.results.palette import COLOURS, DASHES, line_style

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection

DOCS = Path(__file__).parent
BLUE, ORANGE, GREEN = COLOURS[:3]
INK = "#333333"
PALE = "#c9c9c9"
WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
STYLE: Any = {
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "gossamer",
}


def around(devices: int) -> np.ndarray:
    """Return positions on a circle, with device 0 at the top."""
    angle = np.pi / 2 - 2 * np.pi * np.arange(devices) / devices
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def draw(
    axis: Any,
    links: Links,
    places: np.ndarray,
    lost: Links | None = None,
    colours: Any = ORANGE,
    size: float = 45,
) -> None:
    """Draw devices and links; lost links are thin and grey, absent devices hollow."""
    for shown, colour, width in ((lost, PALE, 0.8), (links, BLUE, 1.6)):
        if shown is not None and shown.directed:
            arrow = {
                "arrowstyle": "-|>",
                "color": colour,
                "lw": 1,
                "shrinkB": 4,
                "mutation_scale": 7,
            }
            for a, b in shown.pairs:
                axis.annotate("", places[b], places[a], arrowprops=arrow, zorder=1)
        elif shown is not None:
            axis.add_collection(
                LineCollection(list(places[shown.pairs]), colors=colour, linewidths=width, zorder=1)
            )
    here = links.active_mask
    known = here & ~np.isnan(places[:, 0])
    face = colours if isinstance(colours, str) else np.asarray(colours)[known]
    axis.scatter(*places[known].T, s=size, c=face, edgecolors="white", linewidths=0.8, zorder=2)
    axis.scatter(
        *places[~here].T, s=size, facecolors="white", edgecolors=PALE, linewidths=1.2, zorder=2
    )
    axis.set_aspect("equal")
    axis.axis("off")


def save(figure: Any, name: str) -> None:
    path = DOCS / "pictures" / name
    about: Any = None
    if path.suffix == ".svg":
        about = {"Date": None}
    figure.savefig(path, dpi=150, facecolor="white", metadata=about)
    plt.close(figure)
    print(path.relative_to(DOCS.parent))


# -- networks --


def examples(page: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the name, the Python code and the files of every section that shows a picture."""
    for section in re.split(r"^##+ ", page, flags=re.M)[1:]:
        code = "\n".join(re.findall(r"^```python\n(.*?)^```", section, re.M | re.S))
        picture = re.search(r"\]\(pictures/(.*)\)", section)
        if picture and code:
            files = dict(re.findall(r'^```\w+ title="([^"]*)"\n(.*?)^```', section, re.M | re.S))
            yield picture[1], code, files


def made(code: str, files: dict[str, str]) -> Network:
    """Return the network that the code of a page makes, in a folder with the files of the page."""
    for name, text in files.items():
        Path(name).write_text(text)
    names: dict[str, Any] = {"gs": gs}
    exec(code, names)
    network: Network = names["network"]
    return network


def networks() -> None:
    """Draw four rounds of every network of docs/networks.md."""
    for name, code, files in examples((DOCS / "networks.md").read_text()):
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            net = made(code, files)
        bare = getattr(net, "network", None)
        figure, axes = plt.subplots(1, 4, figsize=(7.2, 1.9))
        for t, axis in enumerate(axes):
            places = every = net.layout(t)
            if hasattr(net, "positions"):
                places = net.positions(t)
                every = np.concatenate([net.positions(k) for k in range(4)])
            draw(axis, net.links(t), places, None if bare is None else bare.links(t))
            left, bottom = np.nanmin(every, axis=0)
            right, top = np.nanmax(every, axis=0)
            margin = 0.2 * max(right - left, top - bottom)
            axis.set(xlim=(left - margin, right + margin), ylim=(bottom - margin, top + margin))
            axis.set_title(f"round {t}", fontsize=9)
            for place, word in zip(places, net.names or (), strict=False):
                if not np.isnan(place).any():
                    axis.annotate(
                        word,
                        place,
                        (0, 7),
                        textcoords="offset points",
                        ha="center",
                        fontsize=8,
                        bbox=WHITE,
                    )
        save(figure, name)


def traces() -> None:
    """Draw the published traces of docs/networks.md, and the GPS tracks of the examples."""
    folder = os.environ.get("GOSSAMER_OUTSIDE")
    walk = DOCS.parent / "examples" / "walk.gpx"
    tracks = gs.PositionTrace(walk, radius=50, seconds_per_round=30)
    _draw_trace(tracks, "trace-gpx.png", "GPS tracks")
    if folder is None:
        print("GOSSAMER_OUTSIDE is not set: the published traces are not drawn", file=sys.stderr)
        return
    for file, name, title, skip_empty in (
        ("Contacts_Hospital.csv", "trace-hospital.png", "A hospital ward", False),
        ("Primary_School.csv", "trace-primary-school.png", "A primary school", False),
        ("thiers_2012.csv", "trace-high-school.png", "A high school", True),
    ):
        trace = gs.ContactTrace(Path(folder) / "traces" / file, skip_empty=skip_empty)
        _draw_trace(trace, name, title)


def _draw_trace(trace: gs.ContactTrace | gs.PositionTrace, name: str, title: str) -> None:
    from gossamer.report.network_figure import network

    length = f"{trace.recorded:,} rounds of {trace.round_seconds:.0f} s"
    path = DOCS / "pictures" / name
    network(trace, trace.recorded, path, f"{title}: {trace.devices} people, {length}")
    print(path.relative_to(DOCS.parent))


# -- concepts --


def links() -> None:
    """Draw four rounds of few links, and their union."""
    net = gs.Random(devices=10, density=0.09, seed=8)
    rounds = [net.links(t) for t in range(4)]
    union = Links.of(10, np.concatenate([one.pairs for one in rounds]))
    assert connected(union)
    for one in rounds:
        assert not connected(one)
    figure, axes = plt.subplots(1, 5, figsize=(8.4, 1.95))
    for t, (axis, one) in enumerate(zip(axes, [*rounds, union], strict=True)):
        draw(axis, one, around(10))
        axis.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))
        axis.set_title(f"round {t}" if t < 4 else "union of the four", fontsize=9)
    save(figure, "concept-links.svg")


def mixing() -> None:
    """Draw the weights of a small network, and ten values that converge by mixing."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.0), width_ratios=(1.15, 1.2))
    pairs = [(0, 1), (0, 2), (0, 3), (3, 4)]
    one = Links.of(5, pairs)
    places = np.array([[0, 0], [-1.1, 0.75], [-1.1, -0.75], [1.5, 0], [2.7, 0.75]])
    draw(left, one, places, size=330)
    weights = gs.metropolis(one, 0, 0).dense()
    for i, (x, y) in enumerate(places):
        left.text(
            x, y, f"{i}", ha="center", va="center", color="white", fontweight="bold", zorder=3
        )
        left.text(
            x, y - 0.28, f"keeps {_fraction(weights[i, i])}", ha="center", va="top", fontsize=8
        )
    for a, b in pairs:
        x, y = places[[a, b]].mean(axis=0)
        left.text(
            x,
            y,
            _fraction(weights[a, b]),
            ha="center",
            va="center",
            fontsize=9,
            color=BLUE,
            bbox=WHITE,
            zorder=3,
        )
    left.set(xlim=(-1.7, 3.3), ylim=(-1.4, 1.2))
    left.set_title("weights of one round", fontsize=9)
    net = gs.Random(devices=10, density=0.1)
    values = [np.arange(10.0)]
    for t in range(20):
        values.append(gs.metropolis(net.links(t), t, 0).dense() @ values[-1])
    right.plot(values, color=BLUE, linewidth=1.2, alpha=0.8)
    right.axhline(4.5, color=ORANGE, linestyle=(0, (6, 2)), linewidth=1.4)
    right.text(20, 4.75, "the mean", color=ORANGE, ha="right", fontsize=8.5)
    right.set(xlabel="round", ylabel="value of each device", xlim=(0, 20))
    right.xaxis.get_major_locator().set_params(integer=True)
    right.set_title("ten devices that only mix, five links per round", fontsize=9)
    save(figure, "concept-mixing.svg")


def _fraction(value: float) -> str:
    for below in range(1, 13):
        if abs(value * below - round(value * below)) < 1e-9:
            if below == 1:
                return f"{round(value)}"
            return f"{round(value * below)}/{below}"
    return f"{value:.2f}"


def mirror() -> None:
    """Draw the mirror map, and the share of one device's update that remains in the mean."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.0))
    w = np.linspace(-1.3, 1.3, 521)
    for k, p in enumerate((1, 3, 15)):
        left.plot(
            w,
            np.sign(w) * np.abs(w) ** p,
            color=COLOURS[k],
            linestyle=_dash(k),
            linewidth=1.8,
            label=f"p = {p}",
        )
    left.set(xlabel="a weight w", ylabel=r"its dual  z = w$^{[p]}$", ylim=(-1.6, 1.6))
    left.set_title("the mirror map", fontsize=9)
    left.legend(loc="upper left")
    shares = np.arange(1, 21)
    for k, p in enumerate((1, 3, 15)):
        line = (1 / shares) ** (1 / p)
        right.plot(
            shares, line, color=COLOURS[k], linestyle=_dash(k), linewidth=1.8, label=f"p = {p}"
        )
        right.text(20.2, line[-1], f"{line[-1]:.2f}", va="center", fontsize=8.5, color=COLOURS[k])
    right.set(
        xlabel="devices in the mean; one of them changes by 1",
        ylabel="change of the mean",
        xlim=(1, 20),
        ylim=(0, 1.05),
    )
    right.xaxis.set_major_locator(mpl.ticker.FixedLocator([1, 5, 10, 15, 20]))
    right.set_title("update of one device in the power mean", fontsize=9)
    save(figure, "concept-mirror.svg")


def dual() -> None:
    """Draw gossip in the dual and in the primal, and the effect of a dual step on a weight."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(9.6, 3.0))
    net = gs.Random(devices=8, density=0.12, seed=1)
    p = 3
    z = [np.linspace(0.2, 1.2, 8) ** p]
    for t in range(16):
        z.append(gs.metropolis(net.links(t), t, 0).dense() @ z[-1])
    mean = z[0].mean()
    for axis, lines, level, title, name in (
        (left, np.array(z), mean, "in the dual: plain averaging", "z = w³ of each device"),
        (
            middle,
            np.array(z) ** (1 / p),
            mean ** (1 / p),
            "the same in the primal",
            "w of each device",
        ),
    ):
        axis.plot(lines, color=BLUE, linewidth=1.2, alpha=0.8)
        axis.axhline(level, color=ORANGE, linestyle=(0, (6, 2)), linewidth=1.4)
        axis.set(xlabel="round", ylabel=name, xlim=(0, 16))
        axis.set_title(title, fontsize=9)
    left.text(16, mean + 0.06, "mean of z, preserved", color=ORANGE, ha="right", fontsize=8.5)
    middle.text(
        16, mean ** (1 / p) + 0.03, "the power mean", color=ORANGE, ha="right", fontsize=8.5
    )
    middle.axhline(np.linspace(0.2, 1.2, 8).mean(), color="#767676", linestyle=":", linewidth=1.4)
    middle.text(
        16,
        np.linspace(0.2, 1.2, 8).mean() - 0.07,
        "the plain mean",
        color="#767676",
        ha="right",
        fontsize=8.5,
    )
    w = np.linspace(0.0, 1.0, 401)
    for k, p in enumerate((1, 3, 15)):
        stepped = w**p + 0.01
        right.plot(
            w,
            stepped ** (1 / p) - w,
            color=COLOURS[k],
            linestyle=_dash(k),
            linewidth=1.8,
            label=f"p = {p}",
        )
    right.set(xlabel="a weight w", ylabel="change of w", xlim=(0, 1), ylim=(0, 0.8))
    right.set_title("z⁺ = z + 0.01: effect on w", fontsize=9)
    right.legend(loc="upper right")
    save(figure, "concept-dual.svg")


def _dash(k: int) -> Any:
    _, dash = line_style(k)
    if not DASHES[dash]:
        return "-"
    return (0, DASHES[dash])


# -- architecture --

# The way of one run: (row, first column, last column, title, place in the code). A box spans
# columns.
_STEPS = (
    (0, 0, 1, "gossamer run SPEC", "cli/commands/study.py: run"),
    (0, 2, 2, "gossamer fleet init SPEC", "fleet/provision.py: init"),
    (
        1,
        0,
        1,
        "SPEC → Study, EngineSpec",
        "cli/specs.py: read_studies → study/spec: studies, engine",
    ),
    (1, 2, 2, "gossamer node n3.toml", "fleet/service.py: run_device"),
    (2, 0, 1, "Study → Plan", "study/run.py: run → study/study.py: Study.plan"),
    (2, 2, 2, "Study, own samples → Plan", "fleet/service.py: plan_of"),
    (3, 0, 0, "Simulator", "Simulation.start\n→ engines/simulate.py"),
    (3, 1, 1, "RayEngine → ShardActor → Simulator", "Ray.start → engines/ray/engine.py,\nactor.py"),
    (3, 2, 2, "Node", "fleet/node.py: Node.run"),
    (4, 0, 0, "mix: rows of one tensor", "engines/mixing.py: StackedMix"),
    (4, 1, 1, "mix: rows of a shard and its halo", "StackedMix, engines/ray/exchange.py"),
    (
        4,
        2,
        2,
        "mix: one row, messages",
        "fleet/mix.py: PeerMix → protocol/edges.py\n→ transport/zenoh.py",
    ),
    (5, 0, 2, "Algorithm.round(state, grad, mix, t) → state", "algorithms/"),
    (6, 0, 0, "measure", "Simulator.record"),
    (6, 1, 1, "measure, merge", "ShardActor.record → RayEngine.record"),
    (6, 2, 2, "measure", "Node: log.jsonl, history/, model"),
    (7, 0, 1, "Record → columns", "study/run.py: _Session, _Measurements"),
    (7, 2, 2, "gossamer fleet collect", "fleet/collect.py: collect"),
    (8, 0, 2, "metrics.parquet, models.safetensors, summary.json", "results/folder.py: RunFolder"),
)
# Rows of the figure that belong together: first, last, name.
_PHASES = ((0, 3, "start"), (4, 5, "per round"), (6, 7, "per measurement"), (8, 8, "files"))


def architecture() -> None:
    """Draw the way of one run to the Parquet file for the simulator, Ray and a node."""
    figure, axis = plt.subplots(figsize=(9.2, 8.6))
    width = 3.0
    height = 0.72
    gap = 0.38
    pitch = width + 0.18
    columns = ("simulator", "Ray", "node (real device)")
    for column, name in enumerate(columns):
        axis.text(
            column * pitch + width / 2, 0.95, name, ha="center", fontsize=10, fontweight="bold"
        )
    rows: dict[int, list[tuple[int, int]]] = {}
    for row, first, last, _, _ in _STEPS:
        rows.setdefault(row, []).append((first, last))
    for row, first, last, title, place in _STEPS:
        left = first * pitch
        top = -row * (height + gap)
        span = last * pitch + width - left
        colour = GREEN if first == 0 and last == 2 else BLUE
        axis.add_patch(
            mpl.patches.FancyBboxPatch(
                (left, top),
                span,
                height,
                boxstyle="round,pad=0,rounding_size=0.08",
                facecolor="white",
                edgecolor=colour,
                linewidth=1.3,
            )
        )
        lines = place.count("\n") + 1
        middle = left + span / 2
        axis.text(middle, top + height - 0.2, title, ha="center", va="center", fontsize=8.5)
        axis.text(
            middle,
            top + (0.22 if lines == 1 else 0.25),
            place,
            ha="center",
            va="center",
            fontsize=6.8,
            color="#767676",
            linespacing=1.1,
        )
        for below_first, below_last in rows.get(row + 1, []):
            if below_first > last or below_last < first:
                continue
            # The arrow is in the middle of the narrower of the two boxes.
            from_column = max(first, below_first)
            to_column = min(last, below_last)
            x = (from_column + to_column) / 2 * pitch + width / 2
            axis.annotate(
                "",
                (x, top - gap + 0.02),
                (x, top - 0.02),
                arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1.0},
            )
    for first_row, last_row, name in _PHASES:
        upper = -first_row * (height + gap) + height
        lower = -last_row * (height + gap)
        axis.plot([-0.16, -0.16], [lower, upper], color=ORANGE, linewidth=1.6)
        axis.text(
            -0.26, (lower + upper) / 2, name, rotation=90, ha="right", va="center", color=ORANGE
        )
    axis.set(xlim=(-0.6, 3 * pitch), ylim=(-8 * (height + gap) - 0.1, 1.2))
    axis.set_aspect("equal")
    axis.axis("off")
    save(figure, "architecture.svg")


# -- README --


def methods() -> None:
    """Draw the curve of every method that was measured, beside that of D-PSGD."""
    sys.path.insert(0, str(DOCS.parent))
    from papers.field.curves import curves, picture

    for name in sorted({method for method, *_ in curves()}):
        path = DOCS / "pictures" / f"method-{name}.svg"
        path.write_text(picture(name))
        print(path.name)


def readme() -> None:
    """Draw four rounds of the network of examples/robots.toml, and a curve per method."""
    from gossamer.study import compare, interval, spec

    studies = spec.studies(spec.read(DOCS.parent / "examples" / "robots.toml"), "robots")
    methods = compare(studies, seeds=3)
    best = methods[0].runs[0]
    moving = best.study.network
    figure = plt.figure(figsize=(10, 4.4))
    whole = figure.add_gridspec(1, 2, width_ratios=(1, 1.05), wspace=0.04)
    four = whole[0].subgridspec(2, 2, wspace=0.03, hspace=0.03)
    rounds = list(best.metrics["round"])
    colours = mpl.colormaps["viridis"]
    axes = []
    for k, t in enumerate((0, 10, 30, 200)):
        axis = figure.add_subplot(four[k // 2, k % 2])
        accuracy = np.asarray(best.metrics["device_accuracy"][rounds.index(t)])
        draw(axis, moving.links(t), moving.positions(t), colours=colours(accuracy), size=55)
        axis.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), xticks=[], yticks=[])
        axis.axis("on")
        for edge in axis.spines.values():
            edge.set(visible=True, color=PALE)
        axis.set_title(f"round {t}: {100 * accuracy.mean():.0f} %", fontsize=9)
        axes.append(axis)
    scale = mpl.cm.ScalarMappable(mpl.colors.Normalize(0, 100), colours)
    bar = figure.colorbar(scale, ax=axes, location="left", shrink=0.7, aspect=25, pad=0.04)
    bar.set_label("accuracy of each robot on all ten digits, %")
    bar.outline.set_visible(False)
    curve = figure.add_subplot(whole[1])
    for k, method in enumerate(methods):
        points = []
        for values in zip(*(run.metrics["accuracy"] for run in method.runs), strict=True):
            points.append(interval(values))
        mean = 100 * np.array([point.mean for point in points])
        half = 100 * np.array([point.half for point in points])
        curve.plot(
            rounds, mean, color=COLOURS[k], linestyle=_dash(k), linewidth=1.8, label=method.label
        )
        curve.fill_between(
            rounds, mean - half, mean + half, color=COLOURS[k], alpha=0.15, linewidth=0
        )
    curve.set(xlabel="round", ylabel="mean accuracy of the robots, %", xlim=(0, 200), ylim=(0, 100))
    curve.legend(loc="lower right")
    save(figure, "readme.png")


def demo() -> None:
    """Draw the curves of `gossamer compare`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gossamer", "compare", "--quiet", "--out", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        shutil.copy(Path(folder) / "curves.png", DOCS / "pictures" / "demo.png")
    print("docs/pictures/demo.png")


def report() -> None:
    """Take a picture of the head of the report of `gossamer compare`."""
    from playwright.sync_api import sync_playwright

    target = DOCS / "pictures" / "report.png"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        runs = Path(folder) / "demo"
        page = Path(folder) / "report.html"
        for command in (["compare", "--quiet", "--out", runs], ["report", runs, "-o", page]):
            subprocess.run(
                [sys.executable, "-m", "gossamer", *map(str, command)],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        tab = browser.new_page(viewport={"width": 1100, "height": 600})
        tab.goto(page.as_uri())
        tab.screenshot(path=target)
        browser.close()
    print("docs/pictures/report.png")


def pages() -> None:
    """Take pictures of a report, its network and devices, and of the report of a search."""
    from playwright.sync_api import sync_playwright

    spec = DOCS.parent / "examples" / "robots.toml"
    search = ["--budget", "40", "--methods", "d-psgd,quasi-global,tracking,wpm"]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, chdir(folder):
        commands: list[list[Any]] = [
            ["compare", spec, "--quiet", "--seeds", "3", "--out", "robots"],
            ["report", "robots", "-o", "robots.html"],
            ["tune", spec, "--quiet", *search, "--out", "search"],
            ["report", "search", "-o", "search.html"],
        ]
        for command in commands:
            subprocess.run(
                [sys.executable, "-m", "gossamer", *map(str, command)],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name, page, part, width, scheme, state in _PAGES:
            tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            tab.goto(f"{Path(page).absolute().as_uri()}{state}")
            tab.locator("html[data-ready]").wait_for(state="attached")
            tab.evaluate("document.querySelector('nav').style.position = 'static'")
            tab.locator(part).first.screenshot(path=DOCS / "pictures" / f"page-{name}.png")
            print(f"docs/pictures/page-{name}.png")
            tab.close()
        browser.close()


# The name of a picture, the page, its part, the width of the window, the colours, and the state.
_PAGES: tuple[tuple[str, str, str, int, Any, str], ...] = (
    ("answer", "robots.html", "#result", 1280, "light", ""),
    ("curves", "robots.html", "#curves .charts", 1280, "light", ""),
    ("network", "robots.html", "#network", 1280, "dark", "#network?round=60&device=3"),
    ("search", "search.html", "#search .parallel", 1280, "light", ""),
    ("phone", "robots.html", "#result", 390, "dark", ""),
)

PICTURES: dict[str, Callable[[], None]] = {
    make.__name__: make
    for make in (
        links,
        mixing,
        mirror,
        dual,
        networks,
        architecture,
        methods,
        traces,
        demo,
        report,
        pages,
        readme,
    )
}


def main(names: list[str]) -> int:
    if unknown := [name for name in names if name not in PICTURES]:
        print(f"{unknown[0]} is not a picture: give {', '.join(PICTURES)}", file=sys.stderr)
        return 2
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with mpl.rc_context(STYLE):
        for name in names or PICTURES:
            PICTURES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
