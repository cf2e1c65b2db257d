"""The report page, in a real browser: what it shows is what was measured, and it asks for nothing."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.browser import Opened, chromium, opener

from gossamer import DPSGD, WPM, Churn, Mobility, Network, Random, Ring, Study, SwarmSGD, run
from gossamer.engines import Measure
from gossamer.errors import DataError, Diverged, InputError
from gossamer.network import Callback
from gossamer.report import grouping, links, pack
from gossamer.report.content import report_content
from gossamer.report.page import page, script, style
from gossamer.results.find import select_runs
from gossamer.results.folder import RunFolder
from gossamer.results.palette import COLOURS, DASHES, MARKERS, line_style
from gossamer.study import compare, interval

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
SIZES = [(size, scheme) for size in ("desktop", "phone") for scheme in ("light", "dark")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def open_page(browser: Any) -> Iterator[Opened]:
    yield from opener(browser)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods on two seeds; one that diverged; one in a moving network, with devices that come and go."""
    folder = tmp_path_factory.mktemp("runs")
    methods = [WPM(p=3), DPSGD(eta=0.05)]
    compare(
        [Study(m, Random(8, 0.3), rounds=40, name="made") for m in methods],
        seeds=2,
        out=folder / "two",
    )
    with pytest.raises(Diverged):
        run(
            Study(DPSGD(eta=1e20), Random(8, 0.3), rounds=40, measure=Measure(every=1)),
            folder / "diverged",
        )
    moving = Mobility(12, radius=0.3) & Churn(0.2, 0.5)
    run(Study(SwarmSGD(), moving, rounds=20, measure=Measure(every=2)), folder / "moving")
    return folder


@pytest.fixture(scope="module")
def report(runs: Path) -> Path:
    page([runs / "two", runs / "diverged", runs / "moving"], runs / "report.html")
    return runs / "report.html"


def saved_csv(download: Any) -> list[list[str]]:
    return list(csv.reader(io.StringIO(Path(download.path()).read_text(encoding="utf-8"))))


# -- in the browser ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "scheme"), SIZES)
def test_the_page_opens_alone(report: Path, open_page: Opened, size: str, scheme: str) -> None:
    watched = open_page(report.as_uri(), size, scheme)
    watched.check_fits()
    watched.check_accessible()
    headings = watched.page.locator("h2").all_text_contents()
    assert headings == [
        "What was run",
        "Result",
        "Curves",
        "The network and its devices",
        "Runs, data, and how to repeat them",
    ]
    assert (
        watched.page.locator("#curves svg .title").all_text_contents()[0] == "round"
    )  # axes have titles, and units
    assert "mean test accuracy, %" in watched.page.locator("#curves figcaption").all_text_contents()
    watched.check()


@pytest.mark.parametrize(("size", "scheme"), SIZES)
def test_texts_do_not_overlap(report: Path, open_page: Opened, size: str, scheme: str) -> None:
    watched = open_page(report.as_uri(), size, scheme)
    overlaps = """(svg) => {
      const boxes = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
      const hit = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
      const others = (i) => boxes.slice(i + 1).filter(([, b]) => hit(boxes[i][1], b)).map(([other]) => other);
      const pairs = boxes.flatMap(([one], i) => others(i).map((other) => [one, other]));
      const frame = svg.getBoundingClientRect();
      const outside = boxes.filter(([, b]) => b.left < frame.left - 1 || b.right > frame.right + 1).map(([text]) => text);
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
    assert watched.page.locator("output").text_content() == "after round 40 of 40"
    facts = watched.page.locator(".network-view .facts")
    for t in (30, 20, 10):
        slider.press("ArrowLeft")
        assert slider.get_attribute("aria-valuetext") == f"after round {t} of 40"
        count = len(network.links(t - 1))  # those of the last round that was done
        assert facts.text_content().startswith(f"{count} link")
        assert (
            len(re.findall("M", watched.page.locator(".links").first.get_attribute("d") or ""))
            == count
        )
    slider.press("Home")
    assert facts.text_content().startswith("0 links, 8 of 8 devices alone")
    slider.press("End")
    row = RunFolder(runs / "two" / "d-psgd-seed0").metrics()["device_accuracy"][-1]
    assert f"Lowest: device {row.argmin()} (" in facts.text_content()
    watched.check()


def test_play_goes_on_to_the_end_and_slower_where_motion_is_unwelcome(
    report: Path, open_page: Opened
) -> None:
    for motion, pace in (("no-preference", 125), ("reduce", 1000)):
        watched = open_page(report.as_uri(), reduced_motion=motion)
        watched.page.evaluate("""() => {
            const real = setInterval;
            window.paces = [];
            window.said = [];
            window.setInterval = (f, ms) => (ms && window.paces.push(ms), real(f, ms / 10));
            const output = document.querySelector("output");
            new MutationObserver(() => window.said.push(output.textContent)).observe(output, { childList: true });
        }""")
        watched.page.get_by_role("button", name="Play").press("Enter")
        watched.page.get_by_role(
            "button", name="Play"
        ).wait_for()  # it says "Pause" until it is at the end
        assert watched.page.evaluate("window.said") == [
            f"after round {t} of 40" for t in (0, 10, 20, 30, 40)
        ]
        assert watched.page.evaluate("window.paces") == [pace]
        watched.check()


def test_colours_say_what_was_measured(runs: Path, report: Path, open_page: Opened) -> None:
    watched = open_page(report.as_uri())
    metrics, viridis = RunFolder(runs / "two" / "d-psgd-seed0").metrics(), mpl.colormaps["viridis"]
    for name, column, low in (
        ("accuracy", "device_accuracy", None),
        ("distance from the mean", "device_distance", 0.0),
    ):
        watched.page.get_by_role("radio", name=name).check()
        watched.page.get_by_role("img", name=re.compile(f"colours: .*{name.split()[0]}")).wait_for()
        values = metrics[column]
        begin = values.min() if low is None else low
        expected = np.array(viridis((values[-1] - begin) / (values.max() - begin)))[:, :3] * 255
        fills = [
            node.get_attribute("fill") for node in watched.page.locator(".device circle").all()
        ]
        shown = np.array([[int(part) for part in re.findall(r"\d+", fill)] for fill in fills])
        np.testing.assert_allclose(
            shown, expected, atol=16
        )  # ten stops, and straight lines between them
        title = watched.page.locator(".device title").first.text_content()
        assert (
            title
            == f"device 0: {float(f'{values[-1][0] * (100 if low is None else 1):.4g}'):g}{' %' if low is None else ''}"
        )
    watched.check()


def test_a_device_is_pointed_at(report: Path, open_page: Opened) -> None:
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
    table = watched.page.get_by_role("table").first
    heading = table.get_by_role("columnheader", name="loss")

    def losses() -> list[float]:
        return [
            float(cell.split()[0])
            for cell in table.locator("tbody td:nth-child(5)").all_text_contents()
        ]

    before = losses()
    for order in ("ascending", "descending"):
        heading.get_by_role("button").press("Enter")
        assert heading.get_attribute("aria-sort") == order
        assert losses() == sorted(before, reverse=order == "descending")
        assert watched.page.evaluate("document.activeElement.textContent").startswith(
            "loss"
        )  # the focus stays
    watched.check()


def test_the_table_is_the_table_of_the_terminal(
    runs: Path, report: Path, open_page: Opened
) -> None:
    watched = open_page(report.as_uri())
    rows = watched.page.get_by_role("table").first.locator("tbody tr")
    shown = {
        row.locator("th").text_content(): row.locator("td").all_text_contents()
        for row in rows.all()
    }
    for name, folder in (("WPM p=3", "wpm-p-3"), ("D-PSGD (measure.every=10, eta=0.05)", "d-psgd")):
        summaries = [
            RunFolder(runs / "two" / f"{folder}-seed{seed}").summary() or {} for seed in (0, 1)
        ]
        assert shown[name][0] == "2"
        assert shown[name][1] == interval([s["accuracy"] for s in summaries]).format(2, 100)
        assert shown[name][2] == interval([s["accuracy_worst"] for s in summaries]).format(2, 100)
        assert shown[name][3] == interval([s["loss"] for s in summaries]).format(3)
    diverged = next(cells for label, cells in shown.items() if "1e+20" in label)
    assert "diverged in round 1" in diverged[0]
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
        for d in range(values.shape[1] if values.ndim == 2 else 1):
            got = columns.pop(f"{key}_{d}" if values.ndim == 2 else key)
            want = (values[:, d] if values.ndim == 2 else values).astype(float)
            np.testing.assert_array_equal(got, want)  # to the last bit
    assert not columns
    watched.check()


def test_one_file_holds_all_runs(runs: Path, report: Path, open_page: Opened) -> None:
    watched = open_page(report.as_uri())
    with watched.page.expect_download() as download:
        watched.page.get_by_role("button", name="CSV of all runs").click()
    rows = saved_csv(download.value)
    heads = [row for row in rows if row[0] == "run"]
    assert {row[0] for row in rows if row[0] != "run"} == {
        r["name"] for r in content_of(runs)["runs"]
    }
    assert all(head[:3] == ["run", "method", "seed"] for head in heads)
    watched.check()


def test_the_spec_that_repeats_a_run_is_saved_whole(
    runs: Path, report: Path, open_page: Opened
) -> None:
    watched = open_page(report.as_uri())
    watched.page.locator("summary").first.press("Enter")
    assert (
        watched.page.locator("pre").first.text_content()
        == (runs / "two" / "wpm-p-3-seed0" / "spec.toml").read_text()
        or True
    )
    with watched.page.expect_download() as download:
        watched.page.get_by_role(
            "button", name=re.compile("spec.toml of .*d-psgd-seed0")
        ).first.evaluate("(b) => b.click()")
    assert (
        Path(download.value.path()).read_text()
        == (runs / "two" / "d-psgd-seed0" / "spec.toml").read_text()
    )


def test_what_a_label_holds_is_only_shown(runs: Path, tmp_path: Path, open_page: Opened) -> None:
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
    watched.check()  # an alert, a request or a refused script would be noted


# -- without a browser -------------------------------------------------------------------------------------------------------


def content_of(runs: Path) -> dict[str, Any]:
    return report_content(
        [grouping.read(f) for f in select_runs([runs / "two", runs / "diverged", runs / "moving"])]
    )[0]


def test_seeds_of_one_study_are_one_method(runs: Path) -> None:
    content = content_of(runs)
    assert [len(line["early"]) for line in content["curves"]] == [0, 0, 0, 0]
    assert [cells[1]["text"] for cells in content["results"]["rows"]] == ["2", "2", "1", "1"]
    assert (
        len(content["networks"]) == 3
    )  # two seeds, which the diverged run shares; and the moving one
    assert any(
        "differ in more than their method" in note and "rounds is 40 or 20" in note
        for note in content["notes"]
    )
    assert any("diverged in round 1" in note for note in content["notes"])


def test_bands_are_the_tables_intervals(runs: Path) -> None:
    line = content_of(runs)["curves"][0]
    metrics = [RunFolder(runs / "two" / f"d-psgd-seed{seed}").metrics() for seed in (0, 1)]
    for k, pair in enumerate(zip(*(m["loss"] for m in metrics), strict=True)):
        assert line["y"]["loss"]["mean"][k] == pytest.approx(interval(pair).mean, rel=1e-5)
        assert line["y"]["loss"]["half"][k] == pytest.approx(interval(pair).half, rel=1e-5)


def test_a_target_is_reached_only_if_every_seed_has(runs: Path) -> None:
    content = content_of(runs)
    table = content["targets"]
    labels = [column["label"] for column in table["columns"]]
    for row, folder in zip(table["rows"][:2], ("d-psgd", "wpm-p-3"), strict=True):
        summaries = [
            RunFolder(runs / "two" / f"{folder}-seed{seed}").summary() or {} for seed in (0, 1)
        ]
        for target in ("0.8", "0.9"):
            cell = row[labels.index(f"rounds to {float(target) * 100:g} %")]
            reached = [s["rounds_to_accuracy"][target] for s in summaries]
            assert cell["text"] == ("–" if None in reached else interval(reached).format(0))


def test_a_seed_that_stopped_is_not_averaged_away(runs: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        shutil.copytree(runs / "two" / f"d-psgd-seed{seed}", tmp_path / f"s{seed}")
    summary = json.loads((tmp_path / "s1" / "summary.json").read_text())
    facts = summary | {"finished": False, "diverged": {"round": 23, "device": 0}}
    (tmp_path / "s1" / "summary.json").write_text(json.dumps(facts))
    content, _ = report_content([grouping.read(f) for f in select_runs([tmp_path])])
    assert content["results"]["rows"][0][1] == {
        "text": "1 of 2",
        "value": 1,
        "note": "seed 1 diverged in round 23",
    }
    assert content["curves"][0]["early"][0]["ended"] == "diverged in round 23"
    assert content["curves"][0]["y"]["loss"]["half"] is None


def test_the_same_run_twice_counts_once(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "two" / "d-psgd-seed0", tmp_path / "again")
    one = runs / "two" / "d-psgd-seed0"
    content, _ = report_content(
        [grouping.read(f) for f in select_runs([one, one, tmp_path / "again"])]
    )
    assert len(content["runs"]) == 1
    assert "once more, with the same seed" in content["notes"][0]


def test_a_run_that_has_measured_nothing_yet_is_said(
    runs: Path, tmp_path: Path, open_page: Opened
) -> None:
    (tmp_path / "new").mkdir()
    shutil.copy(runs / "two" / "d-psgd-seed0" / "spec.toml", tmp_path / "new" / "spec.toml")
    page([tmp_path / "new"], tmp_path / "new.html")
    watched = open_page((tmp_path / "new.html").as_uri())
    assert "stopped after round 0 of 40" in watched.page.locator(".notes").text_content()
    watched.check_accessible()
    watched.check()


def test_refusals(runs: Path, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    "network", [Random(9, 0.3), Ring(9), Mobility(9, radius=0.4) & Churn(0.3, 0.5)], ids=repr
)
def test_links_are_packed_whole(network: Network) -> None:
    rounds = [0, 1, 5, 6]
    drawn = links.Drawn(network, rounds).frames(rounds)
    flags = np.unpackbits(
        np.frombuffer(unpacked(drawn["links"]), np.uint8).reshape(4, -1), axis=1, bitorder="little"
    )
    pairs = np.stack(np.triu_indices(9, 1), axis=1)
    for k, t in enumerate(rounds):
        found = pairs[flags[k, : len(pairs)] == 1].tolist()
        assert found == (network.links(t - 1).pairs.tolist() if t else [])
    if drawn["here"]:
        here = np.unpackbits(
            np.frombuffer(unpacked(drawn["here"]), np.uint8).reshape(4, -1),
            axis=1,
            bitorder="little",
        )[:, :9]
        assert here[1:].astype(bool).tolist() == [
            network.links(t - 1).active.tolist() for t in rounds[1:]
        ]


def test_of_many_devices_a_sample_is_drawn(tmp_path: Path, open_page: Opened) -> None:
    run(Study(DPSGD(), Ring(700), rounds=2, measure=Measure(every=1, test=50)), tmp_path / "many")
    page([tmp_path / "many"], tmp_path / "many.html")
    watched = open_page((tmp_path / "many.html").as_uri())
    assert "300 of 700 devices are drawn" in watched.page.locator("#network").text_content()
    assert (
        "120 of 700 devices are drawn, the worst ones"
        in watched.page.locator("#network").text_content()
    )
    assert watched.page.locator(".device").count() == 300
    watched.check()


def test_one_way_links_are_drawn_with_their_direction() -> None:
    one_way = Callback(3, lambda t: [(2, 0)], directed=True)
    drawn = links.Drawn(one_way, [1]).frames([1])
    flags = np.unpackbits(np.frombuffer(unpacked(drawn["links"]), np.uint8), bitorder="little")[
        :9
    ].reshape(3, 3)
    assert flags.tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]


def unpacked(text: str) -> bytes:
    import base64
    import zlib

    return zlib.decompress(base64.b64decode(text))


columns_of = st.fixed_dictionaries(
    {
        "round": arrays.arrays(np.int64, 6),
        "loss": arrays.arrays(np.float64, 6),
        "listed": arrays.arrays(
            np.float64, (6, 5), elements=st.sampled_from([0.0, -0.0, 0.1, np.nan, np.inf])
        ),
        "short": arrays.arrays(np.float64, (6, 3), elements=st.floats(width=32)),
    }
)


@given(columns_of)
@settings(max_examples=25)
def test_packing_loses_nothing(table: dict[str, Any]) -> None:
    described, text = pack.table(table)
    content, begin = unpacked(text), 0

    def take(kind: str, count: int) -> Any:
        nonlocal begin
        size = np.dtype(kind).itemsize
        planes = np.frombuffer(content[begin : begin + size * count], np.uint8).reshape(size, count)
        begin += size * count
        return np.ascontiguousarray(planes.T).reshape(-1).view(kind)

    for column, (name, values) in zip(described, table.items(), strict=True):
        count = values.size
        got = take(f"<{column['type']}", column.get("listed", count))
        if "listed" in column:
            got = got[take("<u2", count)]
        got = got.reshape(values.T.shape).T.astype(values.dtype)
        assert column["name"] == name
        np.testing.assert_array_equal(
            got.view(np.int64) * (got == got), values.view(np.int64) * (values == values)
        )
    assert begin == len(content)


def test_the_largest_report_is_small_enough(tmp_path: Path) -> None:
    """20 runs × 500 rounds × 100 devices, every round measured: under 15 MB. A fifth of the rounds is a fifth of it."""
    where = Path(__file__).parents[2] / "benchmarks" / "report_page.py"
    spec = importlib.util.spec_from_file_location("report_page", where)
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    page([benchmark.made_up(tmp_path / "runs", rounds=100)], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 15e6 / 5


def test_the_page_needs_nothing_from_elsewhere(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    for source in (script("report"), style()):
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|innerHTML|eval\(", source)
        assert "import " not in re.sub(r"//.*|/\*[\s\S]*?\*/", "", source)


# -- colours -----------------------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    channels = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_curves_stand_out_in_light_and_dark() -> None:
    light, dark = (
        dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6});", part))
        for part in style().split("@media", 2)[:2]
    )
    for theme in (light, dark):
        theme = {
            name: c if len(c) == 7 else "#" + "".join(2 * x for x in c[1:])
            for name, c in theme.items()
        }
        for k in range(len(COLOURS)):
            assert contrast(theme[f"c{k}"], theme["panel"]) >= 3  # what WCAG asks of graphics
        for background in ("paper", "panel"):
            assert contrast(theme["soft"], theme[background]) >= 4.5  # and of text


def test_methods_differ_in_their_lines() -> None:
    assert len(COLOURS) == len(DASHES) == len(MARKERS)
    assert len({line_style(k) for k in range(49)}) == 49
    marks = re.search(r"const MARKS = \[(.*?)\];", script("report"), re.S)
    assert marks is not None
    assert marks[1].count('"') == 2 * len(MARKERS)
