"""Observers of a run; the live file; TensorBoard files, read by TensorBoard."""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command import assert_refused, gossamer
from support.interrupts import stop
from support.listing import attribute, column, names_in

import gossamer as gs
from gossamer.engines import Observer
from gossamer.errors import Diverged, InputError, MissingExtra
from gossamer.results.live import LIVE_FILE
from gossamer.study import Run, live
from gossamer.study.track import TensorBoard, trackers

# The package has a function of the same name, which hides the module.
running = importlib.import_module("gossamer.study.run")

STUDY = gs.Study(gs.DPSGD(eta=0.1), gs.Ring(5), rounds=12, measure=gs.Measure(every=5))


class Recorder(Observer):
    """Keep every event."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def started(
        self, study: gs.Study, folder: Path | None, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        self.events.append(("started", study, folder, column(rows, "round")))

    def advanced(self, round: int) -> None:
        self.events.append(("advanced", round))

    def measured(self, row: Mapping[str, Any]) -> None:
        self.events.append(("measured", row))

    def ended(self, summary: Mapping[str, Any]) -> None:
        self.events.append(("ended", summary))

    def all(self, name: str) -> list[Any]:
        return [event[-1] for event in self.events if event[0] == name]


# -- observers -----------------------------------------------------------------------------------


def test_an_observer_receives_every_event_in_order(tmp_path: Path) -> None:
    recorder = Recorder()
    done = gs.run(STUDY, tmp_path / "a", observers=[recorder])
    assert recorder.events[0] == ("started", STUDY, tmp_path / "a", [])
    assert recorder.events[-1] == ("ended", done.summary)
    assert column(recorder.all("measured"), "round") == [0, 5, 10, 12]
    for name, values in done.metrics.items():
        np.testing.assert_array_equal(column(recorder.all("measured"), name), values)
    advanced = recorder.all("advanced")
    assert advanced == sorted(advanced)
    assert (advanced[0], advanced[-1]) == (0, 12)


def test_an_observer_needs_no_folder_and_follows_several_runs() -> None:
    recorder = Recorder()
    gs.compare([STUDY, replace(STUDY, algorithm=gs.SwarmSGD())], seeds=2, observers=[recorder])
    assert len(recorder.all("started")) == len(recorder.all("ended")) == 4
    assert len(recorder.all("measured")) == 16


def test_a_resumed_run_reports_earlier_measurements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    stop(STUDY, tmp_path / "a", monkeypatch, 9, recorder)
    assert recorder.all("ended")[0]["finished"] is False
    before = column(recorder.all("measured"), "round")
    assert 0 < len(before) < 4
    gs.run(STUDY, tmp_path / "a", resume=True, observers=[recorder])
    assert recorder.all("started") == [[], before]
    assert column(recorder.all("measured"), "round") == [0, 5, 10, 12]  # each once
    gs.run(STUDY, tmp_path / "a", resume=True, observers=[recorder])  # is finished: nothing to tell
    assert len(recorder.all("started")) == 2


@pytest.mark.parametrize("what", ["started", "advanced", "measured", "ended"])
def test_a_failing_observer_is_named_and_left_out_and_the_run_continues(what: str) -> None:
    class Failing(Recorder):
        pass

    def fail(self: Failing, *arguments: Any) -> None:
        getattr(Recorder, what)(self, *arguments)
        raise RuntimeError("no such page")

    setattr(Failing, what, fail)
    failing = Failing()
    recorder = Recorder()
    with pytest.warns(
        RuntimeWarning,
        match=rf"Failing\.{what} failed and is left out; the run continues.*no such page",
    ):
        done = gs.run(STUDY, observers=[failing, recorder])
    assert len(failing.all(what)) == 1
    assert recorder.all("ended") == [done.summary]
    assert column(recorder.all("measured"), "round") == [0, 5, 10, 12]


def test_the_command_reports_a_failing_observer_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("default")  # pytest makes errors of them
        patch.setattr(TensorBoard, "measured", lambda *_: 1 / 0)
        result = gossamer("run", "--set", "rounds=10", "--track", "tensorboard", "-q")
    assert result.code == 0
    assert result.err == (
        "gossamer: TensorBoard.measured failed and is left out; "
        "the run continues (ZeroDivisionError: division by zero)\n"
    )


def test_divergence_and_errors_are_reported_to_observers() -> None:
    recorder = Recorder()
    with pytest.raises(Diverged):
        gs.run(replace(STUDY, algorithm=gs.DPSGD(eta=1e30), rounds=100), observers=[recorder])
    assert recorder.all("ended")[0]["diverged"]["round"] > 0

    def links(t: int) -> list[tuple[int, int]]:
        if t == 7:
            raise OSError("the radio is gone")
        return [(0, 1)]

    with pytest.raises(OSError, match="radio"):
        gs.run(replace(STUDY, network=gs.Callback(5, links)), observers=[recorder])
    assert recorder.all("ended")[1] == {
        "finished": False,
        "rounds": 7,
        "failed": "the radio is gone",
    }


def test_observers_do_not_change_results(tmp_path: Path) -> None:
    plain = gs.run(STUDY, tmp_path / "a")
    followed = gs.run(STUDY, tmp_path / "b", observers=[Recorder()])
    for name, values in plain.metrics.items():
        np.testing.assert_array_equal(followed.metrics[name], values)


# -- the live file -------------------------------------------------------------------------------


class Reader(Observer):
    """Read the live file at every event, as a page does."""

    def started(
        self, study: gs.Study, folder: Path | None, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        assert folder is not None
        self.path = folder / LIVE_FILE
        self.seen: list[Any] = []

    def advanced(self, round: int) -> None:
        self.seen.append([json.loads(line) for line in self.path.read_text().splitlines()])

    def ended(self, summary: Mapping[str, Any]) -> None:
        assert not self.path.exists()


def test_the_live_file_holds_the_measurements_of_a_run_in_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_SECONDS", 0.0)
    reader = Reader()
    done = gs.run(STUDY, tmp_path / "a", observers=[reader])
    lines = reader.seen[-1]
    for line in lines:
        assert line["rounds"] == 12
    rounds = column(lines, "round")
    assert rounds == sorted(rounds)
    records = []
    for line in lines:
        if "record" in line:
            records.append(line["record"])
    assert column(records, "round") == [
        0,
        5,
        10,
    ]  # the last one ends the run, and is in its folder
    for k, record in enumerate(records):
        for name in ("accuracy", "accuracy_worst", "loss", "distance", "bytes"):
            assert record[name] == pytest.approx(done.metrics[name][k], rel=1e-4)
        for name in ("device_accuracy", "device_distance"):
            assert record[name] == pytest.approx(done.metrics[name][k].tolist(), rel=1e-4)
    assert lines[0]["left"] is None
    assert lines[-1]["left"] >= 0
    for earlier, later in zip(reader.seen, reader.seen[1:], strict=False):
        assert later[: len(earlier)] == earlier  # only ever more


def test_the_live_file_is_written_at_most_once_per_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(np.arange(0.0, 1e4, 0.05))
    monkeypatch.setattr("gossamer.study.live.time.monotonic", lambda: float(next(now)))
    file = live.Live()
    file.started(STUDY, tmp_path, [])
    written = []
    for t in range(200):
        before = (tmp_path / LIVE_FILE).stat().st_size
        file.measured({"round": t, "accuracy": 0.5, "device_accuracy": [0.1, float("nan")]})
        file.advanced(t)
        written.append((tmp_path / LIVE_FILE).stat().st_size > before)
    times = np.flatnonzero(written)
    assert (np.diff(times) >= 10).all()  # each turn takes 0.1 s of this clock
    lines = []
    for line in (tmp_path / LIVE_FILE).read_text().splitlines():
        lines.append(json.loads(line))
    assert [line["record"]["round"] for line in lines] == list(
        range(times[-1] + 1)
    )  # nothing is lost
    newest = []
    for line in lines:
        if "device_accuracy" in line["record"]:
            newest.append(line["round"])
    assert newest == times.tolist()
    assert lines[-1]["record"]["device_accuracy"] == [0.1, None]


def test_the_live_file_stays_small_and_keeps_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_SECONDS", 0.0)
    monkeypatch.setattr(live, "LIMIT", 20_000)
    file = live.Live()
    path = tmp_path / LIVE_FILE
    inodes = set()
    file.started(STUDY, tmp_path, [])
    for t in range(3000):
        file.measured({"round": t, "accuracy": 0.5})
        file.advanced(t)
        assert path.stat().st_size <= 20_000
        inodes.add(path.stat().st_ino)
    rounds = []
    for line in path.read_text().splitlines():
        rounds.append(json.loads(line)["record"]["round"])
    assert rounds == sorted(set(rounds))
    assert rounds[-1] == 2999
    assert rounds[0] < 300  # the whole of the curve is there still, with gaps
    assert len(inodes) > 1
    assert names_in(tmp_path) == [LIVE_FILE]


def test_the_live_file_of_a_resumed_run_has_the_earlier_measurements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop(STUDY, tmp_path / "a", monkeypatch, 9)
    (tmp_path / "a" / LIVE_FILE).write_text("what a killed process left")
    reader = Reader()
    monkeypatch.setattr(live, "_SECONDS", 0.0)
    gs.run(STUDY, tmp_path / "a", resume=True, observers=[reader])
    assert [line["record"]["round"] for line in reader.seen[-1] if "record" in line] == [0, 5, 10]


def test_a_failed_write_is_reported_to_observers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        running.RunFolder, "write_models", lambda *_: (_ for _ in ()).throw(OSError("full"))
    )
    recorder = Recorder()
    with pytest.raises(OSError, match="full"):
        gs.run(STUDY, tmp_path / "a", observers=[recorder])
    assert recorder.all("ended") == [{"finished": False, "rounds": 12, "failed": "full"}]
    assert names_in(tmp_path / "a") == ["metrics.parquet", "spec.toml"]


def test_a_run_that_cannot_start_leaves_no_files(tmp_path: Path) -> None:
    def links(t: int) -> list[tuple[int, int]]:
        raise OSError("no radio")

    with pytest.raises(OSError, match="no radio"):
        gs.run(replace(STUDY, network=gs.Callback(5, links)), tmp_path / "a")
    assert not (tmp_path / "a").exists()


# -- TensorBoard ---------------------------------------------------------------------------------


def events(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()


TAGS = {
    "accuracy/mean": "accuracy",
    "accuracy/worst": "accuracy_worst",
    "accuracy/best": "accuracy_best",
    "accuracy/merged": "accuracy_merged",
    "loss/mean": "loss",
    "loss/worst": "loss_worst",
    "loss/best": "loss_best",
    "loss/merged": "loss_merged",
    "distance": "distance",
    "power_distance": "power_distance",
    "bytes": "bytes",
}


def assert_shows(folder: Path, run: Run) -> None:
    read = events(folder / "tensorboard")
    tags = dict(TAGS)
    if "loss_merged_power" in run.metrics:
        tags["accuracy/merged_power"] = "accuracy_merged_power"
        tags["loss/merged_power"] = "loss_merged_power"
    assert set(read.Tags()["scalars"]) == tags.keys()
    for tag, name in tags.items():
        found = read.Scalars(tag)
        assert attribute(found, "step") == run.metrics["round"].tolist(), tag
        np.testing.assert_allclose(attribute(found, "value"), run.metrics[name], rtol=1e-6)


def test_tensorboard_shows_what_was_measured(tmp_path: Path) -> None:
    done = gs.run(STUDY, tmp_path / "a", observers=[TensorBoard()])
    assert_shows(tmp_path / "a", done)
    read = events(tmp_path / "a" / "tensorboard")
    (text,) = read.Tensors("spec/text_summary")
    assert (tmp_path / "a" / "spec.toml").read_text() in text.tensor_proto.string_val[0].decode()
    assert {"_hparams_/session_start_info", "_hparams_/session_end_info"} <= set(
        read.Tags()["tensors"]
    ) | set(read.summary_metadata)
    start = read.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    for word in (b"algorithm.eta", b"D-PSGD", b"network.kind"):
        assert word in start


def test_tensorboard_of_an_interrupted_and_resumed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = TensorBoard()
    for calls in (4, 6):
        stop(STUDY, tmp_path / "a", monkeypatch, calls, board)
    done = gs.run(STUDY, tmp_path / "a", resume=True, observers=[board])
    assert len(list((tmp_path / "a" / "tensorboard").iterdir())) == 3
    assert_shows(tmp_path / "a", done)


def status_in(folder: Path) -> tuple[str, str]:
    """Return the status of a run as TensorBoard's text and in its table of runs."""
    from tensorboard.plugins.hparams.api_pb2 import Status
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    read = events(folder / "tensorboard")
    text = read.Tensors("status/text_summary")[-1].tensor_proto.string_val[0].decode()
    ended = read.summary_metadata["_hparams_/session_end_info"].plugin_data.content
    return text, Status.Name(HParamsPluginData.FromString(ended).session_end_info.status)


def test_tensorboard_shows_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = TensorBoard()
    stop(STUDY, tmp_path / "a", monkeypatch, 9, board)
    assert status_in(tmp_path / "a") == ("stopped", "STATUS_UNKNOWN")
    diverging = replace(STUDY, algorithm=gs.DPSGD(eta=1e30), rounds=100)
    with pytest.raises(Diverged):
        gs.run(diverging, tmp_path / "b", observers=[board])
    assert status_in(tmp_path / "b") == ("diverged", "STATUS_FAILURE")
    gs.run(STUDY, tmp_path / "c", observers=[board])
    assert status_in(tmp_path / "c") == ("finished", "STATUS_SUCCESS")
    assert board.note == f"TensorBoard: tensorboard --logdir {tmp_path}"


def test_tensorboard_added_at_a_resume_shows_earlier_measurements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop(STUDY, tmp_path / "a", monkeypatch, 9)
    assert_shows(
        tmp_path / "a", gs.run(STUDY, tmp_path / "a", resume=True, observers=[TensorBoard()])
    )


def test_tensorboard_has_no_accuracy_of_a_regression(tmp_path: Path) -> None:
    study = replace(
        STUDY, data=gs.LeastSquares(5), model=gs.LinearRegression(), timing=gs.Timing(0.1, rate=1e6)
    )
    gs.run(study, tmp_path / "a", observers=[TensorBoard()])
    tags = set(events(tmp_path / "a" / "tensorboard").Tags()["scalars"])
    expected = {tag.replace("accuracy", "rmse") for tag in TAGS}
    assert tags == expected | {"simulated_seconds"}


def test_track_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("--set", "rounds=10", "--track", "tensorboard", "-q")
    assert gossamer("run", *words, "--out", "a").code == 0
    assert_shows(Path("a"), Run.read("a"))
    assert gossamer("compare", *words, "--out", "b").code == 0
    folders = []
    for path in Path("b").iterdir():
        if path.is_dir():
            folders.append(path)
    assert len(folders) > 1
    for folder in folders:
        assert_shows(folder, Run.read(folder))
    assert_refused(
        gossamer("run", "--track", "tensorbord"),
        "track = 'tensorbord' is not accepted",
        '"tensorboard"',
    )


def test_missing_tensorboard_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtra, match=r"gossamer\[tensorboard\]"):
        trackers("tensorboard")
    assert trackers(None) == []


def test_tensorboard_without_a_folder_is_left_out() -> None:
    with pytest.warns(RuntimeWarning, match="TensorBoard.started failed.*out = None"):
        gs.run(STUDY, observers=[TensorBoard()])


def test_observers_and_a_pool_exclude_each_other(tmp_path: Path) -> None:
    from gossamer.study.pools import Processes

    with pytest.raises(InputError, match="observers"):
        gs.compare([STUDY], out=tmp_path, pool=Processes(1), observers=[Recorder()])
