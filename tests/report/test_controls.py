"""Every control of a report does what it says, in a real browser."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import Opened

from gossamer import DPSGD, Random, Study, run
from gossamer.report.page import page
from gossamer.results.folder import RunFolder
from gossamer.results.statistics import interval

pytestmark = pytest.mark.slow

CHART = "#curves .charts figure"


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a grid of two settings, two seeds each."""
    folder = tmp_path_factory.mktemp("grid")
    for eta in (0.01, 0.1):
        for batch in (8, 64):
            for seed in (0, 1):
                study = Study(DPSGD(eta), Random(6, 0.4), rounds=20, batch=batch, name="grid")
                run(study.with_seed(seed), folder / "grid" / f"{eta}-{batch}-{seed}")
    page([folder / "grid"], folder / "grid.html")
    return folder / "grid.html"


def state_of(watched: Any) -> str:
    return str(watched.page.evaluate("location.hash"))


def saved(watched: Any, name: re.Pattern[str]) -> tuple[str, bytes]:
    button = watched.page.locator(CHART).first.get_by_role("button", name=name)
    with watched.page.expect_download() as download:
        button.click()
    path = Path(download.value.path())
    return download.value.suggested_filename, path.read_bytes()


def drawn(watched: Any, nth: int = 0) -> str:
    return str(watched.page.locator(CHART).nth(nth).locator("svg .line").first.get_attribute("d"))


def test_every_control_works_without_an_error(report: Path, open_page: Opened) -> None:
    watched = open_page(report.as_uri())
    page = watched.page
    for summary in page.locator("details > summary").all():
        summary.click()
    for box in page.locator("input[type=checkbox]:visible").all():
        box.click()
        box.click()
    for radio in page.locator("input[type=radio]:visible").all():
        radio.check()
    for menu in page.locator("select:visible").all():
        for option in menu.locator("option").all():
            menu.select_option(option.get_attribute("value"))
    for slider in page.locator("input[type=range]:visible").all():
        slider.press("End")
        slider.press("Home")
    page.get_by_role("spinbutton", name="Device").fill("1")
    count = page.locator("main button:visible").count()
    assert count > 40
    for k in range(count):
        button = page.locator("main button:visible").nth(k)
        if button.count():  # a click may have hidden some
            button.click()
    watched.check_accessible()
    watched.check()


def test_a_part_of_a_chart_is_zoomed_by_pointer_and_keyboard(
    report: Path, open_page: Opened
) -> None:
    watched = open_page(report.as_uri())
    whole = drawn(watched)
    picture = watched.page.locator(CHART).first.locator(".picture")
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    middle = box["y"] + box["height"] / 2
    watched.page.mouse.move(box["x"] + box["width"] * 0.4, middle)
    watched.page.mouse.down()
    watched.page.mouse.move(box["x"] + box["width"] * 0.7, middle, steps=4)
    watched.page.mouse.up()
    found = re.search(r"zoom=([\d.]+)~([\d.]+)", state_of(watched).replace("%7E", "~"))
    assert found is not None
    assert 5 < float(found[1]) < float(found[2]) < 35
    assert drawn(watched) != whole
    second = watched.page.locator(CHART).nth(1).get_by_role("button", name=re.compile("^All"))
    second.click()  # all charts have one range
    assert drawn(watched) == whole
    picture.press("+")
    assert drawn(watched) != whole
    picture.press("-")
    assert drawn(watched) == whole
    picture.press("+")
    picture.dblclick()
    assert drawn(watched) == whole
    assert "zoom" not in state_of(watched)
    watched.check()


def test_the_tooltip_snaps_to_measurements(runs: Path, report: Path, open_page: Opened) -> None:
    watched = open_page(report.as_uri())
    picture = watched.page.locator(CHART).first.locator(".picture")
    readout = watched.page.locator(CHART).first.locator(".readout")
    box = picture.bounding_box()
    measured = set(RunFolder(runs / "two" / "d-psgd-seed0").metrics()["round"].tolist())
    measured |= set(RunFolder(runs / "moving").metrics()["round"].tolist()) | {1}
    for share in (0.2, 0.37, 0.61, 0.83):
        place = {"x": box["width"] * share, "y": box["height"] / 2}
        picture.hover(position=place)
        first = readout.locator("div").first.text_content()
        assert int(first.removeprefix("round: ")) in measured
    assert watched.page.locator(CHART).first.locator(".dot").count() >= 2
    picture.press("Home")
    assert readout.locator("div").first.text_content() == "round: 0"
    picture.press("ArrowRight")
    assert readout.locator("div").first.text_content() in ("round: 1", "round: 2")
    watched.check()


def test_smoothing_log_axes_and_seeds_change_the_lines(report: Path, open_page: Opened) -> None:
    watched = open_page(report.as_uri())
    page = watched.page
    whole = drawn(watched)
    page.get_by_role("slider", name="Smoothing").press("End")
    assert drawn(watched) != whole
    assert page.locator(CHART).first.locator(".thin").count() >= 2  # as measured
    page.get_by_role("slider", name="Smoothing").press("Home")
    assert drawn(watched) == whole
    page.get_by_label("log x").check()
    texts = page.locator(CHART).first.locator("svg text").all_text_contents()
    assert "0" not in texts[-5:]  # the axis starts at the first measurement after round 0
    page.get_by_label("log x").uncheck()
    page.get_by_role("combobox", name="Seeds as").select_option("seeds")
    page.locator(f"{CHART} .thin").first.wait_for(state="attached")
    assert page.locator(CHART).first.locator(".thin").count() == 4  # two methods, two seeds
    assert page.locator(CHART).first.locator(".band").count() == 0
    page.get_by_label("one scale").check()
    ends = []
    for k in range(3):
        texts = page.locator(CHART).nth(k).locator("svg text").all_text_contents()
        ends.append((texts[0], [text for text in texts if text == "0"][:1]))
    assert len({end for end, _ in ends}) == 1
    watched.check()


def test_a_chart_is_saved_as_svg_png_and_csv(
    runs: Path, report: Path, open_page: Opened, tmp_path: Path
) -> None:
    watched = open_page(report.as_uri())
    name, content = saved(watched, re.compile("^SVG"))
    assert name == "mean-test-accuracy.svg"
    (tmp_path / name).write_bytes(content)
    assert b"WPM p=3" in content  # the legend
    alone = watched.page.context.new_page()
    alone.goto("about:blank")
    assert (
        alone.evaluate(
            "(text) => new DOMParser().parseFromString(text, 'image/svg+xml')"
            ".querySelectorAll('parsererror').length",
            content.decode(),
        )
        == 0
    )
    name, content = saved(watched, re.compile("^PNG"))
    assert (name, content[:8]) == ("mean-test-accuracy.png", b"\x89PNG\r\n\x1a\n")
    assert len(content) > 5000
    name, content = saved(watched, re.compile("^CSV"))
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    line = [row for row in rows if row["line"] == "WPM p=3"]
    metrics = [RunFolder(runs / "two" / f"wpm-p-3-seed{seed}").metrics() for seed in (0, 1)]
    assert [int(row["round"]) for row in line] == metrics[0]["round"].tolist()
    pair = [m["accuracy"][-1] for m in metrics]
    assert float(line[-1]["mean test accuracy, %"]) == pytest.approx(interval(pair).mean, rel=1e-5)
    watched.check()


def test_the_address_keeps_the_state(report: Path, open_page: Opened) -> None:
    watched = open_page(report.as_uri())
    page = watched.page
    page.get_by_role("radio", name="MB sent").check()
    page.get_by_label("log x").check()
    page.locator(".legend button").first.click()
    page.get_by_role("combobox", name="Run").select_option(index=1)
    page.get_by_role("slider", name="Round").fill("7")
    page.get_by_role("spinbutton", name="Device").fill("3")
    page.get_by_role("link", name="Settings").click()
    address = state_of(watched)
    assert address.startswith("#settings?")
    again = open_page(report.as_uri() + address)
    page = again.page
    assert page.get_by_role("radio", name="MB sent").is_checked()
    assert page.get_by_label("log x").is_checked()
    assert page.locator(".legend button").first.get_attribute("aria-pressed") == "false"
    assert page.get_by_role("combobox", name="Run").input_value() == "1"
    assert page.locator("output").text_content() == "after round 7 of 40"
    assert page.locator(".device-view h3").text_content() == "Device 3"
    assert drawn(again) == drawn(watched)
    again.check()
    watched.check()


@pytest.mark.parametrize(
    "address", ["#curves?x=nothing&zoom=5~1&smooth=many&metric=evil&group=no", "#%%%?off=%E0%A4"]
)
def test_a_wrong_address_is_ignored(report: Path, open_page: Opened, address: str) -> None:
    watched = open_page(report.as_uri() + address)
    assert watched.page.locator(CHART).count() >= 5
    watched.check()


def test_runs_are_selected_and_grouped_by_a_setting(grid: Path, open_page: Opened) -> None:
    watched = open_page(grid.as_uri())
    page = watched.page
    page.locator("#curves summary").first.click()
    page.get_by_role("combobox", name="Group by").select_option("batch")
    page.locator(".legend button", has_text="batch 64").wait_for()
    assert page.locator(".legend button").count() == 2
    table = page.get_by_role("table", name="Newest values of the selected groups")
    runs = grid.parent / "grid"
    values = []
    for eta in (0.01, 0.1):
        for seed in (0, 1):
            metrics = RunFolder(runs / f"{eta}-64-{seed}").metrics()
            values.append(float(metrics["accuracy"][-1]))
    expected = interval(values)
    cells = table.locator("tbody tr", has_text="batch 64").locator("td").all_text_contents()
    assert cells[0] == "4"
    mean, half = cells[1].split(" ± ")
    assert float(mean) == pytest.approx(100 * expected.mean, rel=1e-3)
    assert float(half) == pytest.approx(100 * expected.half, rel=0.02)
    page.get_by_role("group", name="algorithm.eta").get_by_label("0.01").uncheck()
    page.locator("td", has_text=re.compile("^2$")).first.wait_for()
    values = values[2:]
    cells = table.locator("tbody tr", has_text="batch 64").locator("td").all_text_contents()
    assert float(cells[1].split(" ± ")[0]) == pytest.approx(100 * np.mean(values), rel=1e-3)
    page.get_by_role("button", name="Show all runs").click()
    page.get_by_role("combobox", name="Group by").select_option("method")
    assert not table.is_visible()
    watched.check_accessible()
    watched.check()


def test_parallel_coordinates_select_methods(grid: Path, open_page: Opened) -> None:
    watched = open_page(grid.as_uri())
    page = watched.page
    figure = page.locator(".parallel")
    assert figure.locator(".way").count() == 4
    assert figure.locator(".title").all_text_contents()[-1] == "accuracy, %"
    grip = figure.locator(".grip").last
    grip.scroll_into_view_if_needed()
    box = grip.bounding_box()
    x = box["x"] + box["width"] / 2
    page.mouse.move(x, box["y"] + 2)
    page.mouse.down()
    page.mouse.move(x, box["y"] + box["height"] * 0.3, steps=4)
    page.mouse.up()
    kept = 4 - figure.locator(".way.off").count()
    assert 1 <= kept < 4
    page.locator("#curves .charts .line").first.wait_for()
    assert page.locator(".legend button").count() == kept
    figure.get_by_role("button", name="All methods").click()
    assert page.locator(".legend button").count() == 4
    watched.check()
