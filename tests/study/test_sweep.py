"""Sweeps: every study runs once, in parallel; runs are kept and resumed; divergence is a result."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.listing import attribute, times_of
from support.processes import started, wait_until

import gossamer as gs
from gossamer.results.live import LIVE_FILE as LIVE
from gossamer.study import spec
from gossamer.study.pools import Processes
from gossamer.study.sweep import Done, run_path, sweep


def study(seed: int = 0, eta: float = 0.1) -> gs.Study:
    return gs.Study(
        gs.DPSGD(eta), gs.Ring(4), rounds=6, seed=seed, measure=gs.Measure(every=2), threads=1
    )


@pytest.mark.slow
def test_a_sweep_runs_each_study_once(tmp_path: Path) -> None:
    studies = [study(0), study(1), study(0)]
    progress: list[Done] = []
    cells = sweep(studies, tmp_path, pool=Processes(2), progress=progress.append)
    for cell, alone in zip(cells, (gs.run(s) for s in studies), strict=True):
        assert cell.metrics["accuracy"].tolist() == alone.metrics["accuracy"].tolist()
    assert progress == [Done(0, 2, 0.0), Done(1, 2, 0.5), Done(2, 2, 1.0)]
    assert len(list(tmp_path.iterdir())) == 2  # equal studies share a cell
    before = times_of(tmp_path.rglob("*"))
    progress.clear()
    again = sweep(studies, tmp_path, Processes(2), progress.append)
    assert progress == [Done(2, 2, 1.0)]
    assert times_of(tmp_path.rglob("*")) == before
    assert attribute(again, "summary") == attribute(cells, "summary")


@pytest.mark.slow
def test_a_diverging_run_does_not_stop_the_others(tmp_path: Path) -> None:
    wild, tame = sweep([study(eta=1e30), study()], tmp_path, Processes(1))
    assert wild.diverged
    assert not tame.diverged
    assert tame.summary["finished"]


def test_the_folder_name_depends_on_the_whole_study(tmp_path: Path) -> None:
    paths = set()
    for s in (study(0), study(1), study(0, eta=0.2), study(0).with_seed(2)):
        paths.add(run_path(tmp_path, s))
    assert len(paths) == 4
    assert run_path(tmp_path, study()) == run_path(tmp_path, study())


def test_equal_studies_have_equal_folder_names(tmp_path: Path) -> None:
    whole = gs.Study(gs.WPM(1, 1, anchor=False), gs.Ring(4))
    real = gs.Study(gs.WPM(1.0, 1.0, anchor=False), gs.Ring(4))
    (read,) = spec.studies(spec.parse(spec.dumps(whole)))
    assert run_path(tmp_path, whole) == run_path(tmp_path, real) == run_path(tmp_path, read)


@pytest.mark.slow
def test_the_workers_of_a_killed_sweep_exit(tmp_path: Path) -> None:
    """Otherwise they would write to the same folders as the next sweep."""
    script = f"""
if __name__ == "__main__":
    from pathlib import Path
    import gossamer as gs
    from gossamer.study.pools import Processes
    from gossamer.study.sweep import sweep
    study = gs.Study(gs.DPSGD(0.1), gs.Ring(4), rounds=10**6, threads=1)
    studies = [study.with_seed(seed) for seed in range(2)]
    sweep(studies, Path({str(tmp_path)!r}), Processes(2))
"""
    path = tmp_path / "endless.py"
    path.write_text(script)
    with started([sys.executable, path]) as parent:
        wait_until(lambda: len(list(tmp_path.rglob(LIVE))) == 2, "both runs have begun")
        workers = _workers(parent.pid)
        parent.kill()
        parent.wait()
        wait_until(
            lambda: not any(b"spawn_main" in _command(pid) for pid in workers), "they have ended"
        )


def _workers(parent: int) -> list[int]:
    return [pid for pid in _children(parent) if b"spawn_main" in _command(pid)]


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
