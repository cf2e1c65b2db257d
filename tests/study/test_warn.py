"""Warnings of studies that can be run, but look like a mistake: in Python and at the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.command import gossamer

import gossamer as gs
from gossamer.network import Cycle, Graph
from gossamer.study.tune import tune

SPARSE = gs.Study(gs.DPSGD(), Cycle((Graph(20, ((0, 1),)), Graph(20, ()))), rounds=4)


def test_run_warns_and_the_summary_has_it() -> None:
    with pytest.warns(gs.NetworkWarning, match="the 20 devices have 2 links in all 4") as caught:
        done = gs.run(SPARSE)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert done.summary["warnings"] == [str(caught[0].message)]
    assert "warnings" not in gs.run(gs.Study(gs.DPSGD(), rounds=2)).summary


def test_a_method_without_links_gives_no_warning() -> None:
    assert "warnings" not in gs.run(replace(SPARSE, algorithm=gs.AllReduce())).summary


def test_compare_and_tune_warn(tmp_path: Path) -> None:
    with pytest.warns(gs.NetworkWarning, match="fewer than one per device"):
        gs.compare([SPARSE])
    with (
        pytest.warns(gs.NetworkWarning, match="fewer than one per device"),
        pytest.raises(gs.InputError, match="Stop"),
    ):
        tune(SPARSE, 200, tmp_path, pool=_NoPool())


class _NoPool:
    def each(self, studies: object, keep_models: bool = False) -> object:
        raise gs.InputError("pool", "Stop", "nothing")


SETTINGS = ("--set", "rounds=4", "--set", 'network={kind="erdos-renyi",devices=20,probability=0}')


@pytest.mark.filterwarnings("default::gossamer.NetworkWarning")
@pytest.mark.parametrize("command", [("run",), ("compare",), ("network", "show")], ids=str)
def test_the_command_prints_it_once(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = gossamer(*command, *SETTINGS)
    assert done.code == 0
    lines = [line for line in done.err.splitlines() if "no two of the 20 devices" in line]
    assert len(lines) == 1
    assert lines[0].startswith("gossamer: no two of the 20 devices are linked in any of the 4")
