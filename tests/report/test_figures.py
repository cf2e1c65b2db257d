"""Figures for papers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from PIL import Image
from support.command import assert_refused, gossamer
from support.runs import compare_two_methods, read_comparison

import gossamer as gs
from gossamer._core.columns import column_of
from gossamer.errors import InputError
from gossamer.report import figures
from gossamer.results import palette
from gossamer.results.statistics import interval
from gossamer.results.tables import Comparison

pytestmark = pytest.mark.slow

MM = 25.4 / 72  # a point of PDF and SVG


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods on three seeds, with simulated seconds, and a picture as `compare` writes it."""
    out = tmp_path_factory.mktemp("runs") / "both"
    compare_two_methods(out)
    (out / "curves.png").write_bytes(b"a picture")
    return out


@pytest.fixture(scope="module")
def methods(folder: Path) -> Comparison:
    return read_comparison(folder)


@pytest.fixture(autouse=True)
def _in_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def drawn(monkeypatch: pytest.MonkeyPatch, *words: object) -> Any:
    """Return the figure that `gossamer figure` draws, before it is written."""
    kept = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, path, dpi=0: kept.append(figure))
    result = gossamer("figure", *words)
    assert result.code == 0, result.err
    plt.close(kept[0])
    return kept[0]


def streams(pdf: bytes) -> list[bytes]:
    """Return the streams of a PDF, decompressed."""
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
def test_a_pdf_has_the_width_of_the_paper_and_embedded_fonts(
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
    assert b"/FontFile2" in pdf  # a whole TrueType font
    assert b"/Type3" not in pdf
    assert b"/Subtype /Image" not in pdf  # vector
    assert all(streams(pdf))


def test_the_same_runs_give_the_same_bytes(folder: Path) -> None:
    for end in ("pdf", "svg", "png"):
        for name in ("one", "two"):
            assert gossamer("figure", folder, "-o", f"{name}.{end}").code == 0
        assert Path(f"one.{end}").read_bytes() == Path(f"two.{end}").read_bytes()
    assert b"CreationDate" not in Path("one.pdf").read_bytes()


def test_an_svg_has_paths_only(folder: Path) -> None:
    assert gossamer("figure", folder, "-o", "fig.svg").code == 0
    root = ET.parse("fig.svg").getroot()
    assert float(root.attrib["width"].removesuffix("pt")) * MM == pytest.approx(88.9, abs=0.1)
    tags = {element.tag.rsplit("}")[-1] for element in root.iter()}
    assert "path" in tags
    assert not tags & {"image", "text", "script"}  # letters are outlines: no font is needed


def test_a_png_has_300_dots_per_inch(folder: Path) -> None:
    assert gossamer("figure", folder, "-o", "fig.png").code == 0
    with Image.open("fig.png") as picture:
        assert picture.width == pytest.approx(88.9 / 25.4 * 300, abs=2)


def test_lines_differ_in_dash_and_marker(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = drawn(monkeypatch, folder)
    lines = figure.axes[0].get_lines()
    assert len(lines) == 2
    assert lines[0].get_linestyle() != lines[1].get_linestyle()
    assert lines[0].get_marker() != lines[1].get_marker()
    assert [line.get_color() for line in lines] == list(palette.COLOURS[:2])


def test_curves_and_bands_show_means_and_intervals(
    folder: Path, methods: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    for y, column, scale in (
        ("accuracy", "accuracy", 100),
        ("worst", "accuracy_worst", 100),
        ("merged", "accuracy_merged", 100),
        ("accuracy_best", "accuracy_best", 100),
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
    across = np.mean([run.metrics[column] for run in methods[0].runs], axis=0)
    unit = size or {"B": 1, "kB": 1e3, "MB": 1e6}[axis.get_xlabel().rsplit(" ")[-1]]
    np.testing.assert_allclose(axis.get_lines()[0].get_xdata(), across / unit)


def test_the_legend_hides_nothing(folder: Path) -> None:
    """It is above the axes and within the figure, however many and long its names are."""
    run = gs.Run.read(next(folder.glob("*-seed0"))).metrics
    for names in (["a", "b$c$"], [f"method {k} with a long name (eta=0.0{k})" for k in range(9)]):
        figure = None

        def keep(given: Any, path: Path, dpi: int = 0) -> None:
            nonlocal figure
            figure = given

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(figures, "save_figure", keep)
            columns = [column_of("accuracy")]
            figures.paper({name: [run] for name in names}, Path("x.pdf"), columns)
        assert figure is not None
        figure.canvas.draw()
        legend = figure.legends[0].get_window_extent()
        axis = figure.axes[0].get_window_extent()
        assert legend.y0 >= axis.y1
        assert legend.x0 >= 0
        assert legend.x1 <= figure.bbox.width
        assert axis.height > 30
        plt.close(figure)


def test_unfinished_runs_are_left_out_with_a_note(folder: Path) -> None:
    Path("here").mkdir()
    for path in folder.glob("d-psgd-*"):
        (Path("here") / path.name).symlink_to(path)
    # A shell expands runs/* to the picture in the folder too.
    result = gossamer("figure", *sorted(folder.iterdir()), "-o", "a.pdf")
    assert (result.code, result.out) == (0, "a.pdf: 2 methods, bands of 95 % over 3 seeds\n")
    with pytest.raises(gs.Diverged):
        gs.run(gs.Study(gs.DPSGD(eta=1e30), rounds=50), "here/wild")
    result = gossamer("figure", "here", "-o", "b.svg")
    assert result.out == "b.svg: 1 method, bands of 95 % over 3 seeds\n"
    assert re.fullmatch(r"here/wild is left out: it diverged at round \d+\n", result.err)
    only = gossamer("figure", "here/wild", "-o", "c.svg")
    assert only.code == 2
    assert "none of these runs is finished" in only.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--x", "round"],
            "x = 'round' is not accepted: give one of 'rounds', 'bytes', 'seconds', 'joules', "
            "'steps' (did you mean 'rounds'?)",
        ),
        (
            ["--y", "size"],
            "y = 'size' is not accepted: give one of 'worst', 'best', 'merged', 'accuracy', ",
        ),
        (["--width", "wide"], 'width = \'wide\' is not accepted: give "column", "page"'),
        (["--width", "3m"], "width"),
        (["--width", "2mm"], "from 30mm to 1000mm"),
        (["-o", "fig.doc"], "cannot write fig.doc: Format 'doc' is not supported"),
    ],
)
def test_what_cannot_be_drawn_is_refused(folder: Path, words: list[str], message: str) -> None:
    assert_refused(gossamer("figure", folder, *words), message)
    assert not list(Path().iterdir())


def test_what_was_not_measured_is_refused() -> None:
    gs.run(
        gs.Study(
            gs.DPSGD(), gs.Ring(5), data=gs.LeastSquares(5), model=gs.LinearRegression(), rounds=3
        ),
        "a",
    )
    assert_refused(
        gossamer("figure", "a", "--y", "accuracy"),
        "y = 'accuracy' is not accepted: give one of 'worst', 'best', 'merged', 'rmse', ",
    )
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


def test_widths_are_converted_to_millimetres() -> None:
    assert figures.millimetres("10 cm") == 100
    with pytest.raises(InputError):
        figures.millimetres("-3in")
