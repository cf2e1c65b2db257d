"""The live page: a real browser follows real runs and fleets to their end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from support.browser import Opened
from support.command import REAL, files
from support.processes import started, wait_until
from support.serving import serving

from gossamer import DPSGD, Random, Study, run
from gossamer.engines import Measure
from gossamer.fleet import provision as fleet
from gossamer.fleet.settings import Fleet
from gossamer.network import Full
from gossamer.report.watch import Watch
from gossamer.results.folder import RunFolder
from gossamer.results.live import LIVE_FILE
from gossamer.results.statistics import interval

pytestmark = pytest.mark.slow

NETWORK = Random(6, density=0.4)


@contextmanager
def real_run(folder: Path, *settings: str) -> Iterator[subprocess.Popen[str]]:
    """Start `gossamer run` and stop it by SIGSTOP as soon as it has measured something."""
    words = [
        *REAL,
        "run",
        "--quiet",
        "--out",
        str(folder),
        *(f"--set={setting}" for setting in settings),
    ]
    live = folder / LIVE_FILE
    with started(words, stdout=subprocess.DEVNULL) as process:
        wait_until(
            lambda: (
                process.poll() is not None or (live.exists() and b'"record"' in live.read_bytes())
            ),
            "the run has measured something",
        )
        process.send_signal(signal.SIGSTOP)
        assert process.poll() is None, "the run ended before it could be followed"
        yield process


@pytest.mark.skipif(
    os.name != "posix", reason="a process is stopped for a while by a signal of POSIX"
)
def test_a_run_is_followed_to_its_end(tmp_path: Path, open_page: Opened) -> None:
    folder = tmp_path / "run"
    with (
        real_run(folder, "rounds=6000", "measure.every=20", "network.devices=12") as process,
        serving(folder) as server,
    ):
        before = files(folder)
        pages = []
        for size, scheme in (("desktop", "light"), ("phone", "dark")):
            pages.append(open_page(server.url, size, scheme))
        for watched in pages:
            page = watched.page
            page.locator("html[data-state=running]").wait_for(state="attached")
            assert "1 of 1 running" in page.locator("p[role=status]").text_content()
            bar = page.get_by_role("progressbar")
            assert bar.get_attribute("max") == "6000"
            assert int(bar.get_attribute("value")) < 6000
            assert page.locator("#curves svg .line").count() >= 4
            assert page.locator("#network .device").count() == 12
            assert "running, round" in page.locator("#result tbody").first.text_content()
            watched.check_fits()
            watched.check_accessible()
        assert files(folder) == before  # watching changes nothing
        process.send_signal(signal.SIGCONT)
        focused = pages[0].page.get_by_role("combobox", name="Run")
        focused.focus()
        for watched in pages:
            watched.page.locator("html[data-state=over]").wait_for(
                state="attached", timeout=120_000
            )
            assert (
                watched.page.locator("p[role=status]").text_content()
                == "All that is here is finished."
            )
            assert "finished, 6000 rounds" in watched.page.locator(".progress").text_content()
            # The slider stays at the newest round.
            watched.page.locator("output", has_text="after round 6000 of 6000").wait_for()
        # Updates do not take the focus away.
        assert focused.evaluate("(menu) => menu === document.activeElement")
        assert process.wait() == 0
        summary = RunFolder(folder).summary() or {}
        for watched in pages:
            cells = (
                watched.page.get_by_role("table", name="Result")
                .locator("tbody td")
                .all_text_contents()
            )
            assert cells[1] == interval([summary["accuracy"]]).format(2, 100)
            watched.check()


def test_a_running_run_shows_what_it_has_measured(finished: Path) -> None:
    metrics = RunFolder(finished).metrics()
    (finished / "summary.json").unlink()
    (finished / "metrics.parquet").unlink()
    names = []
    for name in metrics:
        if name != "device_loss":
            names.append(name)
    with (finished / LIVE_FILE).open("w") as file:
        for k, t in enumerate(metrics["round"].tolist()):
            newest = k % 2 == 1
            record = {}
            for name in names:
                if newest or not name.startswith("device_"):
                    record[name] = metrics[name][k].tolist()
            file.write(
                json.dumps(
                    {"round": t, "rounds": 30, "seconds": 1.0, "left": 4.2, "record": record}
                )
                + "\n"
            )
        file.write('{"round": 25, "rounds": 30, "seconds": 2.0, "left": 1.5}\n')
        file.write('{"round": 2')  # a line that is being written
    content = json.loads(Watch(finished).content()[0])
    (shown,) = content["runs"]
    assert shown["progress"]["done"] == 25
    assert shown["progress"]["left"] == 2
    assert shown["state"] == "running, round 25 of 30"
    line = content["curves"][0]
    assert line["x"]["round"] == metrics["round"].tolist()
    np.testing.assert_allclose(line["y"]["accuracy"]["mean"], metrics["accuracy"], rtol=1e-5)
    assert line["ended"] == ""  # it has not ended
    assert content["networks"][0]["rounds"] == list(range(31))


def test_runs_that_start_later_are_found(tmp_path: Path, open_page: Opened) -> None:
    run(Study(DPSGD(), NETWORK, rounds=5), tmp_path / "one")
    with serving(tmp_path) as server:
        watched = open_page(server.url)
        assert watched.page.locator(".progress li").count() == 1
        run(Study(DPSGD(), NETWORK, rounds=5).with_seed(1), tmp_path / "two")
        watched.page.locator(".progress li", has_text="seed 1").wait_for()
        assert watched.page.locator(".legend button").count() == 1  # two seeds are one method
        watched.check()


def test_the_page_shows_how_long_a_killed_run_is_silent(finished: Path) -> None:
    (finished / "summary.json").unlink()
    (finished / LIVE_FILE).write_text('{"round": 12, "rounds": 30, "seconds": 1.0, "left": 2.0}\n')
    os.utime(finished / LIVE_FILE, (time.time() - 300,) * 2)
    (shown,) = json.loads(Watch(finished).content()[0])["runs"]
    assert 300 <= shown["progress"]["silent"] < 400


def test_the_page_shows_that_the_server_is_gone(finished: Path, open_page: Opened) -> None:
    with serving(finished) as server:
        watched = open_page(server.url)
        assert (
            watched.page.locator("p[role=status]").text_content() == "All that is here is finished."
        )
        watched.check()
    watched.page.locator("html[data-state=lost]").wait_for(state="attached")
    assert "does not answer" in watched.page.locator("p[role=status]").text_content()
    assert watched.page.locator("#curves svg .line").count() >= 4  # the last content stays


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """A fleet of three devices in its third round of four; n2 joined in round 2."""
    folder = tmp_path / "fleet"
    study = Study(DPSGD(), Full(3), rounds=4, measure=Measure(every=1), name="robots")
    fleet.init(study, Fleet(slot=10, insecure=True), folder, datetime.now(UTC), samples=False)
    met = {1: {0: [1], 1: [0]}, 2: {0: [1, 2], 1: [0], 2: [0]}, 3: {2: [1], 1: [2], 0: []}}
    for i in range(3):
        with (folder / f"n{i}" / "log.jsonl").open("w") as file:
            for t in (1, 2, 3):
                if i in met[t]:
                    accuracy = 0.1 * t + 0.01 * i
                    scores = {"metrics": {"accuracy": accuracy}, "loss": 2 - 0.1 * t}
                    line = {
                        "round": t,
                        "near": met[t][i],
                        "met": met[t][i],
                        "messages": t,
                        "bytes": 1000 * t,
                        "late": False,
                    }
                    file.write(json.dumps(line | scores) + "\n")
        status = {
            "device": i,
            "doing": "running",
            "round": 3,
            "rounds": 4,
            "near": [0, 1],
            "time": time.time(),
        }
        (folder / f"n{i}" / "status.json").write_text(
            json.dumps(status | {"metrics": {"accuracy": 0.3}, "loss": 1.7})
        )
    return folder


def test_a_fleet_is_followed(devices: Path, open_page: Opened) -> None:
    content = json.loads(Watch(devices).content()[0])
    (shown,) = content["runs"]
    assert shown["state"] == "running, round 3 of 4"
    assert 20 <= shown["progress"]["left"] <= 40
    accuracy = content["curves"][0]["y"]["accuracy"]["mean"]
    assert accuracy == pytest.approx([0.105, 0.21, 0.31])
    assert content["networks"][0]["rounds"] == [0, 1, 2, 3]
    with serving(devices) as server:
        watched = open_page(server.url)
        rows = watched.page.get_by_role("table", name="Devices of the fleet").locator("tbody tr")
        assert [row.locator("th").text_content() for row in rows.all()] == ["n0", "n1", "n2"]
        facts = watched.page.locator(".network-view .facts")
        assert facts.text_content().startswith("1 link, 1 of 3 devices alone")
        watched.page.get_by_role("slider", name="Round").press("ArrowLeft")
        assert facts.text_content().startswith("2 links, 0 of 3 devices alone")
        watched.check_accessible()
        for i in range(3):
            status = json.loads((devices / f"n{i}" / "status.json").read_text()) | {
                "doing": "done",
                "round": 4,
            }
            (devices / f"n{i}" / "status.json").write_text(json.dumps(status))
        watched.page.locator("html[data-state=over]").wait_for(state="attached")
        watched.check()


def test_the_working_directory_can_be_watched(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    content = json.loads(Watch(Path(".")).content()[0])
    assert content["runs"][0]["name"].endswith("copy")
