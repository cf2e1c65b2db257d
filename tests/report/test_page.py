"""The report page in a real browser: it shows what was measured, and requests nothing."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from support.browser import Opened
from support.command import gossamer

import gossamer as gs
from gossamer import DPSGD, Random, Ring, Study, run
from gossamer._core.columns import LOSS
from gossamer.engines import Measure
from gossamer.errors import DataError, InputError
from gossamer.report.page import page, script, style
from gossamer.results import palette
from gossamer.results.folder import RunFolder
from gossamer.results.statistics import interval

pytestmark = pytest.mark.slow

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
SIZES = [(size, scheme) for size in ("desktop", "phone") for scheme in ("light", "dark")]


def saved_csv(download: Any) -> list[list[str]]:
    return list(csv.reader(io.StringIO(Path(download.path()).read_text(encoding="utf-8"))))


@pytest.mark.parametrize(("size", "scheme"), SIZES)
def test_the_page_needs_no_other_file(
    report: Path, open_page: Opened, size: str, scheme: str
) -> None:
    watched = open_page(report.as_uri(), size, scheme)
    watched.check_fits()
    watched.check_accessible()
    headings = watched.page.locator("h2").all_text_contents()
    assert headings == [
        "Result",
        "Curves",
        "The network and its devices",
        "Weights",
        "Runs, data, and how to repeat them",
        "Settings",
    ]
    titles = watched.page.locator("#curves svg .title").all_text_contents()
    assert titles[0] == "round"
    assert "mean test accuracy, %" in watched.page.locator("#curves figcaption").all_text_contents()
    watched.check()


@pytest.mark.parametrize(("size", "scheme"), SIZES)
def test_texts_do_not_overlap(report: Path, open_page: Opened, size: str, scheme: str) -> None:
    watched = open_page(report.as_uri(), size, scheme)
    overlaps = """(svg) => {
      const texts = [...svg.querySelectorAll("text")];
      const boxes = texts.map((text) => [text.textContent, text.getBoundingClientRect()]);
      const hit = (a, b) =>
        a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
      const others = (i) =>
        boxes.slice(i + 1).filter(([, b]) => hit(boxes[i][1], b)).map(([other]) => other);
      const pairs = boxes.flatMap(([one], i) => others(i).map((other) => [one, other]));
      const frame = svg.getBoundingClientRect();
      const beyond = (b) => b.left < frame.left - 1 || b.right > frame.right + 1;
      const outside = boxes.filter(([, b]) => beyond(b)).map(([text]) => text);
      return [...pairs, ...outside];
    }"""
    for axis in ("rounds", "MB sent"):
        watched.page.get_by_role("radio", name=axis).check()
        for log in (False, True):
            watched.page.get_by_label("logarithmic").set_checked(log)
            for picture in watched.page.locator(".picture svg").all():
                assert picture.locator("text").count() >= 5
                assert picture.evaluate(overlaps) == []


def test_the_slider_moves_through_the_rounds_by_keyboard(
    runs: Path, report: Path, open_page: Opened
) -> None:
    watched = open_page(report.as_uri())
    slider = watched.page.get_by_role("slider", name="Round")
    network = Random(8, 0.3)
    # The first round in which devices meet.
    assert watched.page.locator("output").text_content() == "after round 1 of 40"
    facts = watched.page.locator(".network-view .facts")
    for t in (2, 3, 4):
        slider.press("ArrowRight")
        assert slider.get_attribute("aria-valuetext") == f"after round {t} of 40"
        count = len(network.links(t - 1))  # the links of the last round done
        assert facts.text_content().startswith(f"{count} link")
        assert (
            len(re.findall("M", watched.page.locator(".links").first.get_attribute("d") or ""))
            == count
        )
    slider.press("Home")
    assert facts.text_content().startswith("0 links, 8 of 8 devices alone")
    slider.press("End")
    row = RunFolder(runs / "two" / "wpm-p-3-seed0").metrics()["device_accuracy"][-1]
    assert f"Lowest: device {row.argmin()} (" in facts.text_content()
    watched.check()


def test_play_runs_to_the_end_and_slower_with_reduced_motion(
    report: Path, open_page: Opened
) -> None:
    for motion, pace in (("no-preference", 125), ("reduce", 1000)):
        watched = open_page(report.as_uri(), reduced_motion=motion)
        watched.page.evaluate("""() => {
            const real = setInterval;
            window.paces = [];
            window.shown = [];
            window.setInterval = (f, ms) => (ms && window.paces.push(ms), real(f, ms / 10));
            const output = document.querySelector("output");
            const record = () => window.shown.push(output.textContent);
            new MutationObserver(record).observe(output, { childList: true });
        }""")
        watched.page.get_by_role("button", name="Play").press("Enter")
        watched.page.get_by_role("button", name="Play").wait_for()  # "Pause" until the end
        assert watched.page.evaluate("window.shown") == [
            f"after round {t} of 40" for t in range(2, 41)
        ]
        assert watched.page.evaluate("window.paces") == [pace]
        watched.check()


def test_colours_show_the_measured_values(runs: Path, report: Path, open_page: Opened) -> None:
    watched = open_page(report.as_uri())
    watched.page.get_by_role("slider", name="Round").press("End")
    metrics = RunFolder(runs / "two" / "wpm-p-3-seed0").metrics()
    viridis = mpl.colormaps["viridis"]
    for name, column, low in (
        ("accuracy", "device_accuracy", None),
        ("distance from the mean", "device_distance", 0.0),
    ):
        colour = watched.page.get_by_role("group", name="Colour by")
        colour.get_by_role("radio", name=name, exact=True).check()
        watched.page.get_by_role("img", name=re.compile(f"colours: .*{name.split()[0]}")).wait_for()
        values = metrics[column]
        begin = values.min() if low is None else low
        expected = np.array(viridis((values[-1] - begin) / (values.max() - begin)))[:, :3] * 255
        fills = [
            node.get_attribute("fill") for node in watched.page.locator(".device circle").all()
        ]
        shown = np.array([[int(part) for part in re.findall(r"\d+", fill)] for fill in fills])
        # The page interpolates linearly between ten colours.
        np.testing.assert_allclose(shown, expected, atol=16)
        first = f"{float(f'{values[-1][0]:.4g}'):g}"
        if name == "accuracy":
            first = f"{float(f'{100 * values[-1][0]:.4g}'):g} %"
        title = watched.page.locator(".device title").first.text_content()
        assert title == f"device 0: {first}"
    watched.check()


def test_a_device_is_selected(report: Path, open_page: Opened) -> None:
    watched = open_page(report.as_uri())
    watched.page.get_by_role("spinbutton", name="Device").fill("5")
    assert "Device 5: " in watched.page.locator(".network-view .facts").text_content()
    assert (
        watched.page.locator(".multiple[aria-pressed=true]").text_content().startswith("device 5")
    )
    watched.page.locator(".multiple").filter(has_text="device 2").press("Enter")
    assert watched.page.get_by_role("spinbutton", name="Device").input_value() == "2"
    watched.page.get_by_role("combobox", name="Order").select_option("by number")
    names = watched.page.locator(".multiple").all_text_contents()
    assert [re.match(r"device (\d)", name)[1] for name in names] == list("01234567")
    watched.check()


def test_the_table_sorts_by_keyboard(report: Path, open_page: Opened) -> None:
    watched = open_page(report.as_uri())
    table = watched.page.get_by_role("table", name="What else was measured")
    headings = table.locator("thead th").all_text_contents()
    (column,) = [k for k, text in enumerate(headings) if text.strip("\u202f↕") == "loss"]
    heading = table.locator("thead th").nth(column)

    def losses() -> list[float]:
        found = []
        for cell in table.locator(f"tbody td:nth-child({column + 1})").all_text_contents():
            found.append(float(cell.split()[0]))
        return found

    before = losses()
    for order in ("ascending", "descending"):
        heading.get_by_role("button").press("Enter")
        assert heading.get_attribute("aria-sort") == order
        assert losses() == sorted(before, reverse=order == "descending")
        focused = watched.page.evaluate("document.activeElement.textContent")
        assert focused.startswith("loss")
    watched.check()


def test_the_table_has_the_values_of_the_terminal(
    runs: Path, report: Path, open_page: Opened
) -> None:
    watched = open_page(report.as_uri())

    def cells_of(table: str) -> dict[str, list[str]]:
        rows = watched.page.get_by_role("table", name=table).locator("tbody tr")
        return {
            row.locator("th").text_content(): row.locator("td").all_text_contents()
            for row in rows.all()
        }

    shown = cells_of("Result of each method")
    others = cells_of("What else was measured")
    for name, folder in (("WPM p=3", "wpm-p-3"), ("D-PSGD (measure.every=10, eta=0.05)", "d-psgd")):
        summaries = [
            RunFolder(runs / "two" / f"{folder}-seed{seed}").summary() or {} for seed in (0, 1)
        ]
        assert shown[name][0] == "2"
        assert shown[name][1] == interval([s["accuracy"] for s in summaries]).format(2, 100)
        # The difference to the first method is the third column.
        assert shown[name][3] == interval([s["accuracy_worst"] for s in summaries]).format(2, 100)
        assert shown[name][4] == interval([s["accuracy_best"] for s in summaries]).format(2, 100)
        assert shown[name][5] == interval([s["accuracy_merged"] for s in summaries]).format(2, 100)
        losses = interval([s["loss"] for s in summaries])
        assert LOSS.text(losses.mean, losses.half) in others[name]
    diverged = next(cells for label, cells in shown.items() if "1e+20" in label)
    assert "diverged at round 1" in diverged[0]
    legend = watched.page.locator(".legend button").all_text_contents()
    assert legend == [label for label in legend if label in shown]
    assert len(legend) == len(shown) == 4


def test_curves_are_read_by_keyboard_and_hidden_by_their_legend(
    report: Path, open_page: Opened
) -> None:
    watched = open_page(report.as_uri())
    chart = watched.page.get_by_role("img", name="mean test accuracy, %")
    chart.press("End")
    readout = watched.page.locator("#curves .readout").first
    assert readout.is_visible()
    assert "round: 40" in readout.text_content()
    lines = watched.page.locator("#curves figure").first.locator("svg .line:not(.early)")
    count = lines.count()
    watched.page.locator(".legend button").first.press("Enter")
    assert lines.count() == count - 1
    watched.check()


@pytest.mark.parametrize("name", ["two/wpm-p-3-seed0", "two/d-psgd-seed1", "diverged", "moving"])
def test_the_download_is_exact(runs: Path, report: Path, open_page: Opened, name: str) -> None:
    watched = open_page(report.as_uri())
    with watched.page.expect_download() as download:
        watched.page.get_by_role(
            "button", name=re.compile(f"^CSV of .*{name.rpartition('/')[2]}$")
        ).press("Enter")
    head, *rows = saved_csv(download.value)
    expected = RunFolder(runs / name).metrics()
    columns = {key: np.array([float(row[k]) for row in rows]) for k, key in enumerate(head)}
    for key, values in expected.items():
        if values.ndim == 1:
            np.testing.assert_array_equal(columns.pop(key), values.astype(float))
            continue
        for d in range(values.shape[1]):
            np.testing.assert_array_equal(columns.pop(f"{key}_{d}"), values[:, d].astype(float))
    assert not columns
    watched.check()


def test_one_csv_file_holds_all_runs(report: Path, open_page: Opened) -> None:
    watched = open_page(report.as_uri())
    with watched.page.expect_download() as download:
        watched.page.get_by_role("button", name="CSV of all runs").click()
    rows = saved_csv(download.value)
    heads = [row for row in rows if row[0] == "run"]
    names = {row[0].rpartition("/")[2] for row in rows if row[0] != "run"}
    seeds = {f"{name}-seed{seed}" for name in ("d-psgd", "wpm-p-3") for seed in (0, 1)}
    assert names == seeds | {"diverged", "moving"}
    assert all(head[:3] == ["run", "method", "seed"] for head in heads)
    watched.check()


def test_the_spec_of_a_run_is_saved_unchanged(runs: Path, report: Path, open_page: Opened) -> None:
    watched = open_page(report.as_uri())
    watched.page.locator("#runs summary").nth(2).press("Enter")
    spec = (runs / "two" / "d-psgd-seed0" / "spec.toml").read_text()
    assert watched.page.locator("pre").nth(2).text_content() == spec
    with watched.page.expect_download() as download:
        watched.page.get_by_role(
            "button", name=re.compile("spec.toml of .*d-psgd-seed0")
        ).first.evaluate("(b) => b.click()")
    assert Path(download.value.path()).read_text() == spec


def test_a_label_cannot_inject_html(runs: Path, tmp_path: Path, open_page: Opened) -> None:
    evil = tmp_path / "evil"
    shutil.copytree(runs / "two" / "wpm-p-3-seed0", evil)
    text = (
        (evil / "spec.toml")
        .read_text()
        .replace('name = "made"', f"name = {json.dumps(EVIL.replace('/', ''))}")
    )
    text = re.sub(
        r'(?s)\[algorithm\]\nkind = "wpm"',
        f'[algorithm]\nkind = "python"\nis = {json.dumps(EVIL)}',
        text,
    )
    (evil / "spec.toml").write_text(text)
    summary = json.loads((evil / "summary.json").read_text())
    (evil / "summary.json").write_text(
        json.dumps(summary | {"method": EVIL, "name": EVIL, "command": f"gossamer {EVIL}"})
    )
    page([evil], tmp_path / "evil.html")
    watched = open_page((tmp_path / "evil.html").as_uri())
    assert watched.page.title() == f"{EVIL} – gossamer"
    assert watched.page.locator("h1").text_content() == EVIL
    assert watched.page.get_by_role("table").first.locator("tbody th").text_content() == EVIL
    assert watched.page.locator("img").count() == 0
    assert "made in Python" in watched.page.locator("#network").text_content()
    watched.check()  # an alert, a request or a blocked script fails here


def test_a_run_without_measurements_is_noted(runs: Path, tmp_path: Path, open_page: Opened) -> None:
    (tmp_path / "new").mkdir()
    shutil.copy(runs / "two" / "d-psgd-seed0" / "spec.toml", tmp_path / "new" / "spec.toml")
    page([tmp_path / "new"], tmp_path / "new.html")
    watched = open_page((tmp_path / "new.html").as_uri())
    assert "stopped after round 0 of 40" in watched.page.locator(".notes").text_content()
    watched.check_accessible()
    watched.check()


def test_what_cannot_be_reported_is_refused(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one run folder"):
        page([], tmp_path / "x.html")
    with pytest.raises(DataError, match="holds no run"):
        page([tmp_path], tmp_path / "x.html")
    with pytest.raises(DataError, match="is no folder"):
        page([tmp_path / "nothing"], tmp_path / "x.html")
    shutil.copytree(runs / "two" / "d-psgd-seed0", tmp_path / "broken")
    (tmp_path / "broken" / "metrics.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="not a whole Parquet file"):
        page([tmp_path / "broken"], tmp_path / "x.html")
    with pytest.raises(DataError, match="cannot write"):
        page([runs / "two"], tmp_path / "no" / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_of_many_devices_a_sample_is_drawn(tmp_path: Path, open_page: Opened) -> None:
    run(Study(DPSGD(), Ring(700), rounds=2, measure=Measure(every=1, test=50)), tmp_path / "many")
    page([tmp_path / "many"], tmp_path / "many.html")
    watched = open_page((tmp_path / "many.html").as_uri())
    assert "300 of 700 devices are drawn" in watched.page.locator("#network").text_content()
    text = watched.page.locator("#network").text_content()
    assert "120 of 700 devices are drawn, the worst ones" in text
    assert watched.page.locator(".device").count() == 300
    watched.check()


def test_the_largest_report_is_small_enough(tmp_path: Path) -> None:
    """20 runs × 500 rounds × 100 devices, every round measured, are under 15 MB.

    The test takes a fifth of the rounds and of the size.
    """
    where = Path(__file__).parents[2] / "benchmarks" / "report_page.py"
    spec = importlib.util.spec_from_file_location("report_page", where)
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    page([benchmark.made_up(tmp_path / "runs", rounds=100)], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 15e6 / 5


def test_the_page_loads_nothing_from_elsewhere(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    for source in (script("report"), style()):
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|innerHTML|eval\(", source)
        assert "import " not in re.sub(r"//.*|/\*[\s\S]*?\*/", "", source)


def luminance(colour: str) -> float:
    channels = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_colours_have_contrast_in_light_and_dark() -> None:
    for part in style().split("@media", 2)[:2]:
        theme = {}
        for name, colour in re.findall(r"--(\w+): (#[0-9a-f]{3,6});", part):
            short = len(colour) == 4
            theme[name] = "#" + "".join(2 * digit for digit in colour[1:]) if short else colour
        for k in range(len(palette.COLOURS)):
            assert contrast(theme[f"c{k}"], theme["panel"]) >= 3  # as WCAG asks of graphics
        for background in ("paper", "panel"):
            assert contrast(theme["soft"], theme[background]) >= 4.5  # as WCAG asks of text


def test_every_colour_has_a_marker() -> None:
    markers = re.search(r"const MARKS = \[(.*?)\];", script("report"), re.S)
    assert markers is not None
    assert markers[1].count('"') == 2 * len(palette.MARKERS)


def test_a_regression_shows_its_errors_and_the_reader_chooses_the_metric(
    tmp_path: Path, open_page: Opened
) -> None:
    measure = gs.Measure(
        every=5, metrics=(gs.RMSE(unit="cm"), "mae", "r2"), targets=("rmse <= 1.4",)
    )
    study = gs.Study(
        gs.DPSGD(0.05),
        gs.Ring(5),
        data=gs.LeastSquares(5),
        model=gs.LinearRegression(),
        rounds=20,
        measure=measure,
    )
    done = gs.run(study, tmp_path / "run")
    written = tmp_path / "page.html"
    assert gossamer("report", tmp_path / "run", "-o", written).code == 0
    watched = open_page(written.as_uri())
    text = watched.page.locator("#result").text_content()
    assert "accuracy" not in text
    for name in ("rmse", "rmse_worst", "rmse_best", "rmse_merged"):
        assert done.column.text(done.summary[name]) in text
    assert "rounds to rmse 1.4 cm" in text
    captions = watched.page.locator("#curves figcaption")
    assert captions.all_text_contents()[:6] == [
        "mean test rmse, cm",
        "merged model’s test rmse, cm",
        "worst device’s test rmse, cm",
        "best device’s test rmse, cm",
        "mean test loss",
        "consensus distance ‖w − mean of all w‖, mean of devices",
    ]
    metric = watched.page.get_by_role("group", name="Metric")
    metric.get_by_role("radio", name="r2", exact=True).check()
    assert captions.all_text_contents()[1] == "merged model’s test r2"
    metric.get_by_role("radio", name="loss", exact=True).check()
    assert captions.all_text_contents()[:2] == ["mean test loss", "merged model’s test loss"]
    watched.check()
