"""The live page: a real browser follows a real run to its end; the server answers who is meant to ask, and only reads."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import Opened, chromium, opener
from support.command import REAL, files
from support.processes import DEADLINE, started, wait_until

from gossamer import DPSGD, Random, Study, run
from gossamer.engines import Measure
from gossamer.errors import DataError, InputError
from gossamer.fleet import provision as fleet
from gossamer.fleet.settings import Fleet
from gossamer.network import Full
from gossamer.report.server import Server
from gossamer.report.watch import Watch
from gossamer.results.folder import RunFolder
from gossamer.study import interval
from gossamer.study.live import NAME as LIVE

NETWORK = Random(6, density=0.4)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def open_page(browser: Any) -> Iterator[Opened]:
    yield from opener(browser)


@contextmanager
def serving(folder: Path, **options: Any) -> Iterator[Server]:
    with Server(folder, **options) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    run(Study(DPSGD(eta=0.1), NETWORK, rounds=30), tmp_path / "run")
    return tmp_path / "run"


# -- following ---------------------------------------------------------------------------------------------------------------


@contextmanager
def real_run(folder: Path, *settings: str) -> Iterator[subprocess.Popen[str]]:
    """`gossamer run` as a process of its own, stopped for now as soon as it has measured something."""
    words = [
        *REAL,
        "run",
        "--quiet",
        "--out",
        str(folder),
        *(f"--set={setting}" for setting in settings),
    ]
    live = folder / LIVE
    with started(words, stdout=subprocess.DEVNULL) as process:
        wait_until(
            lambda: (
                process.poll() is not None or (live.exists() and b'"record"' in live.read_bytes())
            ),
            "the run has measured something",
        )
        process.send_signal(signal.SIGSTOP)
        assert process.poll() is None, "it was over too soon to be followed"
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
        pages = [
            open_page(server.url, size, scheme)
            for size, scheme in (("desktop", "light"), ("phone", "dark"))
        ]
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
        assert files(folder) == before  # who watches changes nothing
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
            watched.page.locator(
                "output", has_text="after round 6000 of 6000"
            ).wait_for()  # it stays with the newest
        assert focused.evaluate(
            "(menu) => menu === document.activeElement"
        )  # whatever came, the reader was left alone
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


def test_what_is_shown_of_a_running_one_is_what_it_has_measured(finished: Path) -> None:
    metrics = RunFolder(finished).metrics()
    (finished / "summary.json").unlink()
    (finished / "metrics.parquet").unlink()
    names = [name for name in metrics if name != "device_loss"]
    with (finished / LIVE).open("w") as file:
        for k, t in enumerate(metrics["round"].tolist()):
            newest = k % 2 == 1
            record = {
                name: metrics[name][k].tolist()
                for name in names
                if newest or not name.startswith("device_")
            }
            file.write(
                json.dumps(
                    {"round": t, "rounds": 30, "seconds": 1.0, "left": 4.2, "record": record}
                )
                + "\n"
            )
        file.write(
            '{"round": 25, "rounds": 30, "seconds": 2.0, "left": 1.5}\n{"round": 2'
        )  # half a line
    content = json.loads(Watch(finished).content()[0])
    (told,) = content["runs"]
    assert told["progress"]["done"] == 25
    assert told["progress"]["left"] == 2
    assert told["state"] == "running, round 25 of 30"
    line = content["curves"][0]
    assert line["x"]["round"] == metrics["round"].tolist()
    np.testing.assert_allclose(line["y"]["accuracy"]["mean"], metrics["accuracy"], rtol=1e-5)
    assert line["ended"] == ""  # it goes on
    assert content["networks"][0]["rounds"] == [10, 30]  # of those rounds every device is known


def test_runs_that_come_later_are_found(tmp_path: Path, open_page: Opened) -> None:
    run(Study(DPSGD(), NETWORK, rounds=5), tmp_path / "one")
    with serving(tmp_path) as server:
        watched = open_page(server.url)
        assert watched.page.locator(".progress li").count() == 1
        run(Study(DPSGD(), NETWORK, rounds=5).with_seed(1), tmp_path / "two")
        watched.page.locator(".progress li", has_text="seed 1").wait_for()
        assert watched.page.locator(".legend button").count() == 1  # two seeds are one method
        watched.check()


def test_one_that_was_killed_is_told_by_its_silence(finished: Path) -> None:
    (finished / "summary.json").unlink()
    (finished / LIVE).write_text('{"round": 12, "rounds": 30, "seconds": 1.0, "left": 2.0}\n')
    os.utime(finished / LIVE, (time.time() - 300,) * 2)
    (told,) = json.loads(Watch(finished).content()[0])["runs"]
    assert 300 <= told["progress"]["silent"] < 400


def test_the_page_says_when_the_watcher_is_gone(finished: Path, open_page: Opened) -> None:
    with serving(finished) as server:
        watched = open_page(server.url)
        assert (
            watched.page.locator("p[role=status]").text_content() == "All that is here is finished."
        )
        watched.check()
    watched.page.locator("html[data-state=lost]").wait_for(state="attached")
    assert "does not answer" in watched.page.locator("p[role=status]").text_content()
    assert watched.page.locator("#curves svg .line").count() >= 4  # what was known stays


# -- a fleet -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """A fleet of three in its third round of four: n2 came late."""
    folder = tmp_path / "fleet"
    study = Study(DPSGD(), Full(3), rounds=4, measure=Measure(every=1), name="robots")
    fleet.init(study, Fleet(slot=10, insecure=True), folder, datetime.now(UTC), samples=False)
    met = {1: {0: [1], 1: [0]}, 2: {0: [1, 2], 1: [0], 2: [0]}, 3: {2: [1], 1: [2], 0: []}}
    for i in range(3):
        with (folder / f"n{i}" / "log.jsonl").open("w") as file:
            for t in (1, 2, 3):
                if i in met[t]:
                    scores = {"accuracy": 0.1 * t + 0.01 * i, "loss": 2 - 0.1 * t}
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
            json.dumps(status | {"accuracy": 0.3, "loss": 1.7})
        )
    return folder


def test_a_fleet_is_followed(devices: Path, open_page: Opened) -> None:
    content = json.loads(Watch(devices).content()[0])
    (told,) = content["runs"]
    assert told["state"] == "running, round 3 of 4"
    assert 20 <= told["progress"]["left"] <= 40
    assert content["curves"][0]["y"]["accuracy"]["mean"] == pytest.approx(
        [0.105, 0.21, 0.31]
    )  # n2 from round 2
    assert content["networks"][0]["rounds"] == [1, 2, 3]
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


# -- the server --------------------------------------------------------------------------------------------------------------


def ask(
    server: Server, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        if value:
            connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    return (
        answer.status,
        {name.lower(): value for name, value in answer.getheaders()},
        answer.read(),
    )


@pytest.fixture
def server(finished: Path) -> Iterator[Server]:
    with serving(finished) as found:
        yield found


def test_it_listens_to_this_machine_alone(server: Server) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_address[1]}/"


def test_it_answers_what_is_known_and_nothing_else(server: Server, finished: Path) -> None:
    assert [ask(server, path)[0] for path in ("/", "/content.json", "/data/0.json")] == [
        200,
        200,
        200,
    ]
    for path in (
        "/data/1.json",
        "/data/00000.json",
        "/data/-1.json",
        "/data/../../run/spec.toml",
        "/../spec.toml",
        "/%2e%2e/spec.toml",
        "/spec.toml",
        "/content.json?x=1",
        "/content.json/",
        "http://elsewhere.example/content.json",
        str(finished / "spec.toml"),
    ):
        assert ask(server, path)[0] in (404, 421), path
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"):
        status, headers, _ = ask(server, "/content.json", method)
        assert status == 501
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.1.2.3", "[::", ""]
)
def test_a_foreign_name_that_points_here_is_refused(server: Server, host: str) -> None:
    for path in ("/", "/content.json", "/data/0.json"):
        status, _, body = ask(server, path, Host=host)
        assert status == 421
        assert b"accuracy" not in body


def test_a_server_for_everybody_goes_by_its_addresses(finished: Path) -> None:
    with serving(finished, host="0.0.0.0") as server:
        assert [
            ask(server, "/", Host=host)[0] for host in ("10.1.2.3:80", "localhost", "evil.example")
        ] == [200, 200, 421]


def test_headers_are_strict(server: Server) -> None:
    for path in ("/", "/content.json", "/nothing"):
        headers = ask(server, path)[1]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert headers["server"].strip() == "gossamer"
    page = ask(server, "/")[2].decode()
    assert "default-src 'none'" in page
    assert "connect-src 'self'" in page


def test_what_is_known_is_not_sent_again(server: Server) -> None:
    _, headers, body = ask(server, "/content.json")
    status, _, again = ask(server, "/content.json", If_None_Match=headers["etag"])
    assert (status, again) == (304, b"")
    assert json.loads(body)["runs"][0]["finished"]


def test_there_are_not_more_connections_than_it_can_bear(server: Server) -> None:
    address = ("127.0.0.1", server.server_address[1])
    waiting = [socket.create_connection(address) for _ in range(16)]
    try:
        wait_until(lambda: server._free._value == 0, "all are taken")  # type: ignore[attr-defined]
        with socket.create_connection(address) as more:
            more.settimeout(30)
            assert more.recv(10) == b""  # hung up on
    finally:
        for connection in waiting:
            connection.close()
    wait_until(lambda: server._free._value == 16, "all are given back")  # type: ignore[attr-defined]
    assert ask(server, "/content.json")[0] == 200


def test_a_folder_that_breaks_meanwhile_is_said_and_mended(finished: Path) -> None:
    with serving(finished) as server:
        kept = (finished / "metrics.parquet").read_bytes()
        (finished / "metrics.parquet").write_bytes(b"PAR1")
        server.watch._read_at = 0.0
        status, _, body = ask(server, "/content.json")
        assert status == 503
        assert b"not a whole Parquet file" in body
        (finished / "metrics.parquet").write_bytes(kept)
        assert ask(server, "/content.json")[0] == 200


def test_refusals(tmp_path: Path, finished: Path) -> None:
    with pytest.raises(DataError, match="is no folder"):
        Server(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no run"):
        Server(tmp_path / "empty")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="that is free"):
            Server(finished, port=taken.getsockname()[1])
    with pytest.raises(InputError, match="that is free"):
        Server(finished, host="192.0.2.1")
    with pytest.raises(InputError, match="that is free"):
        Server(finished, port=99_999)


def test_the_command_says_where_and_ends_by_a_signal(finished: Path) -> None:
    with started([*REAL, "watch", finished], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith(f"watching {finished} at http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 0


def test_a_copy_of_a_run_folder_can_be_watched_from_inside(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    content = json.loads(Watch(Path(".")).content()[0])
    assert content["runs"][0]["name"].endswith("copy")
