"""Studies, runs and comparisons in a notebook."""

from __future__ import annotations

import numpy as np
import pytest
from support.html import parse_html, text_of
from support.runs import compare_two_methods, read_comparison

import gossamer as gs
from gossamer.results.tables import Comparison


@pytest.fixture(scope="module")
def methods(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    out = tmp_path_factory.mktemp("runs") / "both"
    compare_two_methods(out)
    return read_comparison(out)


def count(html: str, tag: str) -> int:
    return len(list(parse_html(html).iter(tag)))


def test_a_run_shows_its_row_and_its_curve(methods: Comparison) -> None:
    run = methods[0].runs[0]
    html = run._repr_html_()
    assert f"{100 * run.summary['accuracy']:.2f}" in text_of(html)
    assert str(run.folder) in text_of(html)
    assert count(html, "polyline") == 1


def test_a_comparison_shows_its_table_and_curves(methods: Comparison) -> None:
    html = methods._repr_html_()
    rows = []
    for row in parse_html(html).iter("tr"):
        rows.append([cell.text or "" for cell in row])
    assert rows[1:] == methods.table()[1]
    assert "±" in text_of(html)
    assert count(html, "polyline") == 2
    assert count(html, "polygon") == 2
    assert "3 seeds" in text_of(html)
    assert text_of(methods[0]._repr_html_()).count("D-PSGD") == 1
    assert "no methods" in text_of(Comparison()._repr_html_())


def test_the_points_of_a_curve_are_its_numbers(methods: Comparison) -> None:
    (line,) = parse_html(methods[0].runs[0]._repr_html_()).iter("polyline")
    points = np.array([point.split(",") for point in line.attrib["points"].split()], dtype=float)
    accuracy = methods[0].runs[0].metrics["accuracy"]
    assert points[:, 0].tolist() == sorted(points[:, 0])
    # In SVG the vertical axis points downwards.
    np.testing.assert_allclose(np.corrcoef(points[:, 1], accuracy)[0, 1], -1)
    assert points[np.argmax(accuracy), 1] < points[np.argmin(accuracy), 1]


def test_the_error_is_drawn_where_there_is_no_accuracy() -> None:
    study = gs.Study(
        gs.DPSGD(), gs.Ring(5), data=gs.LeastSquares(5), model=gs.LinearRegression(), rounds=30
    )
    html = gs.run(study)._repr_html_()
    assert "mean test rmse" in text_of(html)
    assert "%" not in text_of(html)
    assert "accuracy" not in text_of(html)


def test_a_study_shows_its_parts_escaped() -> None:
    html = gs.Study(name="<script>alert(1)")._repr_html_()
    assert "Random(devices=10, density=0.2" in text_of(html)
    assert "<script>" in text_of(html)
    assert "<script>" not in html
