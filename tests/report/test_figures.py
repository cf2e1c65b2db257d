"""Figures for papers, the moving picture of a network, and what notebooks show."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
import zlib
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from PIL import Image
from support.command import assert_refused, gossamer

import gossamer as gs
from gossamer.errors import InputError
from gossamer.network import Links, Network
from gossamer.network.notebook import ticks
from gossamer.report import animate, figures
from gossamer.results import palette
from gossamer.study import Comparison, Method, interval

MM = 25.4 / 72  # a point of PDF and SVG


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods on three seeds, with simulated seconds."""
    study = gs.Study(
        gs.DPSGD(eta=0.1),
        gs.Ring(5),
        rounds=12,
        measure=gs.Measure(every=4),
        timing=gs.Timing(0.1, rate=1e6),
    )
    out = tmp_path_factory.mktemp("runs") / "both"
    gs.compare([study, replace(study, algorithm=gs.SwarmSGD(eta=0.1))], seeds=3, out=out)
    (out / "curves.png").write_bytes(b"a picture, as `compare` leaves it there")
    return out


@pytest.fixture(scope="module")
def methods(folder: Path) -> Comparison:
    runs = [gs.Run.read(path) for path in sorted(folder.glob("*-seed*"))]
    return Comparison(Method(runs[k].label, tuple(runs[k : k + 3])) for k in (0, 3))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def drawn(monkeypatch: pytest.MonkeyPatch, *words: object) -> Any:
    """The figure that a command draws, before it is written."""
    kept = []
    monkeypatch.setattr(figures, "_save", lambda figure, path, dpi=0: kept.append(figure))
    result = gossamer("figure", *words)
    assert result.code == 0, result.err
    plt.close(kept[0])
    return kept[0]


# -- for papers --------------------------------------------------------------------------------------------------------


def streams(pdf: bytes) -> list[bytes]:
    """The streams of a PDF, unpacked where they are packed."""
    found = []
    for match in re.finditer(
        rb"<<((?:[^<>]|<<[^<>]*>>)*)>>\s*stream\r?\n(.*?)\r?\nendstream", pdf, re.S
    ):
        found.append(zlib.decompress(match[2]) if b"FlateDecode" in match[1] else match[2])
    return found


@pytest.mark.parametrize(
    ("width", "size"),
    [("column", 88.9), ("page", 181.9), ("84mm", 84.0), ("3.3in", 83.82), ("9.5 cm", 95)],
)
def test_a_pdf_of_a_papers_width_with_its_fonts_in_it(
    folder: Path, width: str, size: float
) -> None:
    result = gossamer("figure", folder, "-o", "fig.pdf", "--width", width)
    assert (result.code, result.err) == (0, "")
    assert result.out == "fig.pdf: 2 methods, bands of 95 % over 3 seeds\n"
    pdf = Path("fig.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    assert pdf.rstrip().endswith(b"%%EOF")
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+) ?\]", pdf)
    assert box
    assert float(box[1]) * MM == pytest.approx(size, abs=0.1)
    assert b"/FontFile2" in pdf  # TrueType, whole
    assert b"/Type3" not in pdf
    assert b"/Subtype /Image" not in pdf  # vector
    assert all(streams(pdf))


def test_the_same_runs_give_the_same_bytes(folder: Path) -> None:
    for end in ("pdf", "svg", "png"):
        for name in ("one", "two"):
            assert gossamer("figure", folder, "-o", f"{name}.{end}").code == 0
        assert Path(f"one.{end}").read_bytes() == Path(f"two.{end}").read_bytes()
    assert b"CreationDate" not in Path("one.pdf").read_bytes()


def test_an_svg_is_drawn_not_painted(folder: Path) -> None:
    assert gossamer("figure", folder, "-o", "fig.svg").code == 0
    root = ET.parse("fig.svg").getroot()
    assert float(root.attrib["width"].removesuffix("pt")) * MM == pytest.approx(88.9, abs=0.1)
    tags = {element.tag.rsplit("}")[-1] for element in root.iter()}
    assert "path" in tags
    assert not tags & {"image", "text", "script"}  # letters are outlines: no font is needed


def test_a_png_is_fit_to_print(folder: Path) -> None:
    assert gossamer("figure", folder, "-o", "fig.png").code == 0
    with Image.open("fig.png") as picture:
        assert picture.width == pytest.approx(88.9 / 25.4 * 300, abs=2)


def test_lines_are_told_apart_without_colour(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = drawn(monkeypatch, folder)
    lines = figure.axes[0].get_lines()
    assert (
        len({line.get_linestyle() for line in lines})
        == len({line.get_marker() for line in lines})
        == len(lines)
        == 2
    )
    assert [line.get_color() for line in lines] == list(palette.COLOURS[:2])
    assert len({palette.line_style(k) for k in range(49)}) == 49
    assert len(set(palette.DASHES)) == len(set(palette.MARKERS)) == len(set(palette.COLOURS)) == 7


def test_curves_and_bands_are_the_numbers(
    folder: Path, methods: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    for y, column, scale in (
        ("accuracy", "accuracy", 100),
        ("worst", "accuracy_worst", 100),
        ("loss", "loss", 1),
    ):
        figure = drawn(monkeypatch, folder, "--y", y)
        (axis,) = figure.axes
        for line, band, method in zip(axis.get_lines(), axis.collections, methods, strict=True):
            assert line.get_label() == method.label
            values = np.array([run.metrics[column] for run in method.runs]) * scale
            np.testing.assert_allclose(line.get_ydata(), values.mean(0))
            np.testing.assert_allclose(line.get_xdata(), [0, 4, 8, 12])
            half = [interval(values[:, k]).half for k in range(4)]
            edge = band.get_paths()[0].vertices
            np.testing.assert_allclose(edge[:, 1].max(), (values.mean(0) + half).max())
        if scale == 100:
            assert 0 <= axis.get_ylim()[0] < axis.get_ylim()[1] <= 100


@pytest.mark.parametrize(
    ("x", "label", "column", "size"),
    [
        ("rounds", "round", "round", 1),
        ("bytes", r"sent by all devices, [kM]?B", "bytes", None),
        ("seconds", "simulated time, s", "simulated_seconds", 1),
    ],
)
def test_axes_have_units(
    x: str,
    label: str,
    column: str,
    size: int | None,
    folder: Path,
    methods: Comparison,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (axis,) = drawn(monkeypatch, folder, "--x", x, "--y", "distance").axes
    assert re.fullmatch(label, axis.get_xlabel())
    assert axis.get_ylabel() == "consensus distance ‖w − mean‖"
    along = np.mean([run.metrics[column] for run in methods[0].runs], axis=0)
    size = size or {"B": 1, "kB": 1e3, "MB": 1e6}[axis.get_xlabel().rsplit(" ")[-1]]
    np.testing.assert_allclose(axis.get_lines()[0].get_xdata(), along / size)


def test_the_legend_hides_nothing(folder: Path) -> None:
    """It is above the axes and within the figure, however many and long its names are."""
    run = gs.Run.read(next(folder.glob("*-seed0"))).metrics
    for names in (["a", "b$c$"], [f"method {k} with a long name (eta=0.0{k})" for k in range(9)]):
        figure = None

        def keep(given: Any, path: Path, dpi: int = 0) -> None:
            nonlocal figure
            figure = given

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(figures, "_save", keep)
            figures.paper({name: [run] for name in names}, Path("x.pdf"))
        assert figure is not None
        figure.canvas.draw()
        legend, axis = figure.legends[0].get_window_extent(), figure.axes[0].get_window_extent()
        assert legend.y0 >= axis.y1
        assert legend.x0 >= 0
        assert legend.x1 <= figure.bbox.width
        assert axis.height > 30
        plt.close(figure)


def test_what_is_given_is_found_and_what_is_unfinished_is_said(folder: Path) -> None:
    Path("here").mkdir()
    for path in folder.glob("d-psgd-*"):
        (Path("here") / path.name).symlink_to(path)
    result = gossamer(
        "figure", *sorted(folder.iterdir()), "-o", "a.pdf"
    )  # as runs/* would: with the picture in it
    assert (result.code, result.out) == (0, "a.pdf: 2 methods, bands of 95 % over 3 seeds\n")
    with pytest.raises(gs.Diverged):
        gs.run(gs.Study(gs.DPSGD(eta=1e30), rounds=50), "here/wild")
    result = gossamer("figure", "here", "-o", "b.svg")
    assert result.out == "b.svg: 1 method, bands of 95 % over 3 seeds\n"
    assert re.fullmatch(r"here/wild is left out: it diverged in round \d+\n", result.err)
    only = gossamer("figure", "here/wild", "-o", "c.svg")
    assert only.code == 2
    assert "none of these runs is finished" in only.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--x", "round"],
            "x = 'round' is not accepted: give one of 'rounds', 'bytes', 'seconds' (did you mean 'rounds'?)",
        ),
        (
            ["--y", "size"],
            "y = 'size' is not accepted: give one of 'accuracy', 'worst', 'loss', 'distance'",
        ),
        (["--width", "wide"], 'width = \'wide\' is not accepted: give "column", "page"'),
        (["--width", "3m"], "width"),
        (["--width", "2mm"], "from 30mm to 1000mm"),
        (["-o", "fig.doc"], "cannot write fig.doc: Format 'doc' is not supported"),
    ],
)
def test_what_cannot_be_drawn_is_refused(folder: Path, words: list[str], said: str) -> None:
    assert_refused(gossamer("figure", folder, *words), said)
    assert not list(Path().iterdir())


def test_what_was_not_measured_is_refused() -> None:
    gs.run(
        gs.Study(
            gs.DPSGD(), gs.Ring(5), data=gs.LeastSquares(5), model=gs.LinearRegression(), rounds=3
        ),
        "a",
    )
    assert_refused(gossamer("figure", "a"), "y = 'accuracy' is not accepted: give loss or distance")
    assert_refused(
        gossamer("figure", "a", "--y", "loss", "--x", "seconds"),
        "x = 'seconds' is not accepted",
        "[timing]",
    )
    assert gossamer("figure", "a", "--y", "loss").out == "figure.pdf: 1 method\n"


def test_the_settings_of_others_are_left_alone(folder: Path) -> None:
    before = dict(mpl.rcParams)
    assert gossamer("figure", folder).code == 0
    assert dict(mpl.rcParams) == before
    assert not plt.get_fignums()


# -- a moving picture --------------------------------------------------------------------------------------------------


def frames(path: str) -> list[Any]:
    found = []
    with Image.open(path) as picture:
        for k in range(picture.n_frames):
            picture.seek(k)
            found.append(np.asarray(picture.convert("RGB")).astype(int))
    return found


def test_a_network_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    words = (
        "network",
        "show",
        "--rounds",
        "5",
        "--set",
        "network={kind='random',devices=8,density=0.3}",
    )
    result = gossamer(*words, "--animate", "net.gif")
    assert result.code == 0
    assert "animation: net.gif" in result.out
    found = frames("net.gif")
    assert len(found) == 5
    assert all((np.abs(one - other).sum(-1) > 60).sum() > 200 for one, other in pairwise(found))
    content = Path("net.gif").read_bytes()
    assert gossamer(*words, "--animate", "net.gif").code == 0
    assert Path("net.gif").read_bytes() == content


def test_only_a_gif_can_be_written() -> None:
    result = gossamer("network", "show", "--animate", "net.mp4")
    assert_refused(result, "animate = 'net.mp4' is not accepted: give a file that ends in .gif")
    assert not list(Path().iterdir())


def test_frames_and_devices_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(animate, "FRAMES", 4)
    monkeypatch.setattr(animate, "_MAX_DEVICES", 6)
    seen = []
    picture = animate._draw
    monkeypatch.setattr(
        animate,
        "_draw",
        lambda frames, title: seen.append((frames, title)) or picture(frames, title),
    )
    animate.animate(gs.Random(20, 0.3), 10, Path("a.gif"), "many {a} $b$")
    ((drawn, title),) = seen
    assert [frame.t for frame in drawn] == [0, 3, 6, 9]
    assert title(3) == "many {a} $b$: round 3 of 10, first 6 devices"
    for frame in drawn:
        links = gs.Random(20, 0.3).links(frame.t)
        assert frame.pairs.tolist() == [pair for pair in links.pairs.tolist() if max(pair) < 6]
        assert frame.degrees.tolist() == links.degrees[:6].tolist()
    assert len(frames("a.gif")) == 4


def test_devices_are_where_the_network_says() -> None:
    net = gs.Mobility(6, radius=0.3, seed=2)
    np.testing.assert_array_equal((net & gs.Churn(0.3, 0.3)).layout(7), net.positions(7))
    circle = (gs.Ring(4) & gs.LinkFailure(0.5)).layout(3)
    np.testing.assert_allclose(circle, [[0, 1], [1, 0], [0, -1], [-1, 0]], atol=1e-12)
    Path("fixes.csv").write_text("0,0,50.0,8.0\n9,0,50.0,8.0\n0,1,51.0,9.0\n4,1,51.0,9.0\n")
    trace = gs.PositionTrace(Path("fixes.csv"), radius=2.0, beyond="repeat")
    assert np.isnan(trace.layout(8)[1]).all()
    np.testing.assert_array_equal(trace.layout(10 + 2), trace.layout(2))
    animate.animate(trace, 12, Path("a.gif"), "trace")
    assert len(frames("a.gif")) == 12


def test_those_that_are_away_are_hollow() -> None:
    away = gs.Random(8, 0.5) & gs.Churn(0.5, 0.5, seed=1)
    frame = animate._frame(away, 4)
    links = away.links(4)
    assert links.active is not None
    assert frame.active.tolist() == links.active.tolist()
    assert not frame.active.all()


# -- notebooks ---------------------------------------------------------------------------------------------------------


def parsed(html: str) -> ET.Element:
    """HTML that is XML too, so that whatever is not escaped or not closed is found; no script, no address."""
    root = ET.fromstring(html.replace("<br>", "<br/>"))
    for element in root.iter():
        assert element.tag in {
            "div",
            "p",
            "strong",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "br",
            "span",
        } | {
            "svg",
            "g",
            "path",
            "circle",
            "polyline",
            "polygon",
            "text",
        }
        assert not {
            name
            for name in element.attrib
            if name.startswith("on") or "href" in name or name == "src"
        }
    return root


def words(html: str) -> str:
    return " ".join(" ".join(parsed(html).itertext()).split())


def test_a_run_and_a_comparison_show_their_table_and_curves(methods: Comparison) -> None:
    run = methods[0].runs[0]
    html = run._repr_html_()
    assert f"{100 * run.summary['accuracy']:.2f}" in words(html)
    assert str(run.folder) in words(html)
    assert len(list(parsed(html).iter("polyline"))) == 1
    html = methods._repr_html_()
    rows = [[cell.text for cell in row] for row in parsed(html).iter("tr")][1:]
    assert rows == methods.table()[1]
    assert "±" in words(html)
    assert len(list(parsed(html).iter("polyline"))) == len(list(parsed(html).iter("polygon"))) == 2
    assert "3 seeds" in words(html)
    assert words(methods[0]._repr_html_()).count("D-PSGD") == 1
    assert Comparison()._repr_html_()


def test_a_curve_is_where_its_numbers_are(methods: Comparison) -> None:
    (line,) = parsed(methods[0].runs[0]._repr_html_()).iter("polyline")
    points = np.array(
        [[float(x) for x in point.split(",")] for point in line.attrib["points"].split()]
    )
    accuracy = methods[0].runs[0].metrics["accuracy"]
    assert points[:, 0].tolist() == sorted(points[:, 0])
    np.testing.assert_allclose(np.corrcoef(points[:, 1], accuracy)[0, 1], -1)  # up is less in SVG
    assert points[np.argmax(accuracy), 1] < points[np.argmin(accuracy), 1]


def test_a_loss_is_drawn_where_there_is_no_accuracy() -> None:
    run = gs.run(
        gs.Study(
            gs.DPSGD(), gs.Ring(5), data=gs.LeastSquares(5), model=gs.LinearRegression(), rounds=30
        )
    )
    assert "mean test loss" in words(run._repr_html_())
    assert "accuracy" not in words(run._repr_html_())


def test_a_study_shows_its_parts_escaped() -> None:
    html = gs.Study(name="<script>alert(1)")._repr_html_()
    assert "Random(devices=10, density=0.2" in words(html)
    assert "<script>" in words(html)
    assert "<script>" not in html


NETWORKS = {
    "random": gs.Random(10, 0.2),
    "static": gs.Ring(12),
    "moving and away": gs.Mobility(15, radius=0.3) & gs.Churn(0.2, 0.3),
    "one": gs.Full(1),
    "many": gs.Random(3000, 0.0005),
    "few rounds": gs.Callback(4, lambda t: [(0, 1)]),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_shows_itself(name: str) -> None:
    net = NETWORKS[name]
    html = net._repr_html_()
    assert f"{net.devices:,}" in words(html)
    pictures = [picture.attrib["aria-label"] for picture in parsed(html).iter("svg")]
    assert pictures == [
        f"links of round {t}"
        for t in range(0 if net.devices > 200 else 1 if net.period == 1 else 4)
    ]
    if pictures:
        first = next(parsed(html).iter("path")).attrib["d"]
        assert first.count("M") == len(net.links(0))


def test_a_name_in_a_network_is_escaped() -> None:
    @dataclass(frozen=True)
    class Sly(Network):
        devices: int = 3
        name: str = "<img src=x onerror=alert(1)>"

        def links(self, t: int) -> Links:
            return Links.of(3, [(0, 1)])

    assert "<img" not in Sly()._repr_html_()
    parsed(Sly()._repr_html_())


def test_ticks_are_round_and_within() -> None:
    for low, high in ((0, 1), (0.13, 0.97), (0, 12345), (-3, 4), (1e-6, 2e-6), (99.2, 99.9)):
        found = ticks(low, high)
        assert 2 <= len(found) <= 7
        assert low - 1e-9 <= found[0]
        assert found[-1] <= high + 1e-9
    assert ticks(5, 5) == [5]


def test_sizes_are_read_as_they_are_written() -> None:
    assert figures.millimetres("10 cm") == 100
    with pytest.raises(InputError):
        figures.millimetres("-3in")
