"""A study that measures a sample of its devices: what folders, tables and reports show."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import gossamer as gs
from gossamer.report import page_tables
from gossamer.results.run import Run
from gossamer.results.runs import Runs
from gossamer.results.statistics import interval
from gossamer.results.tables import Comparison, Method

STUDY = gs.Study(
    gs.DPSGD(0.1),
    gs.Random(12, 0.3),
    rounds=4,
    measure=gs.Measure(every=2, devices=5),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "run"
    gs.run(STUDY, folder)
    return Run.read(folder)


def test_folder_and_summary_have_the_error(run: Run) -> None:
    errors = run.metrics["accuracy_sampling_error"]
    assert len(errors) == 3
    assert errors[0] == 0  # all devices start with the same model
    assert run.sampling_error("accuracy") == errors[-1] > 0
    assert run.summary["accuracy_sampling_error"] == errors[-1]
    assert run.sampling_error("accuracy_worst") is None
    assert not [name for name in run.metrics if name.startswith("device_")]


def test_tables_of_one_seed_show_the_error_of_the_sample(run: Run) -> None:
    value = Method("A", (run,)).value("accuracy")
    assert value.half == run.summary["accuracy_sampling_error"]
    shown = f"{100 * value.mean:.2f} ± {100 * run.summary['accuracy_sampling_error']:.2f}"
    assert shown in str(Comparison([Method("A", (run,))]))
    assert shown in str(Runs((run,)))
    table = page_tables.results([Method("A", (run,))])
    cells = [cell for cell in table["rows"][0] if cell["text"] == shown]
    assert cells[0]["note"] == "estimated from a sample of the devices"


def test_tables_of_several_seeds_show_the_interval_over_the_seeds(run: Run) -> None:
    other = gs.run(STUDY.with_seed(1))
    value = Method("A", (run, other)).value("accuracy")
    assert value == interval([run.summary["accuracy"], other.summary["accuracy"]])


def test_the_mean_of_the_sample_is_close_to_that_of_all(run: Run) -> None:
    everything = gs.run(gs.Study(STUDY.algorithm, STUDY.network, rounds=4))
    error = run.summary["accuracy_sampling_error"]
    assert abs(run.summary["accuracy"] - everything.summary["accuracy"]) <= 2 * error
    for name in ("accuracy_merged", "loss_merged", "distance", "bytes"):
        assert run.summary[name] == everything.summary[name]


def test_a_resumed_run_measures_the_same_sample(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    whole = gs.run(STUDY)

    class Stop(gs.Observer):
        def measured(self, row: gs.engines.observer.Row) -> None:
            if row["round"] == 2:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(gs.errors.Interrupted):
        gs.run(STUDY, folder, observers=[Stop()])
    resumed = gs.run(STUDY, folder, resume=True)
    for name, values in whole.metrics.items():
        assert np.array_equal(resumed.metrics[name], values), name
