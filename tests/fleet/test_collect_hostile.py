"""Folders that come back from the field may hold anything: one is refused, the rest collected."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.nodes import NodeFleet

import gossamer as gs
from gossamer.fleet import files
from gossamer.fleet.collect import collect
from gossamer.fleet.provision import init
from gossamer.fleet.settings import Fleet

M, ROUNDS = 3, 6
STUDY = gs.Study(
    gs.DPSGD(0.1), gs.Full(M), gs.Digits(), rounds=ROUNDS, measure=gs.Measure(every=2, test=50)
)
HOSTILE = "n1"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a fleet that has run."""
    folder = tmp_path_factory.mktemp("fleet") / "fleet"
    fleet = Fleet(slot=1.0, sync=False, insecure=True)
    init(STUDY, fleet, folder, datetime.now(UTC))
    nodes = NodeFleet(STUDY, folder, fleet, nodes=M, prefix="n")
    nodes.run()
    assert nodes.results == dict.fromkeys(range(M), True)
    return folder


def with_line(**changes: object) -> Callable[[Path], None]:
    def attack(folder: Path) -> None:
        lines = (folder / files.LOG).read_text().splitlines()
        lines[-1] = json.dumps(json.loads(lines[-1]) | changes)
        (folder / files.LOG).write_text("\n".join(lines) + "\n")

    return attack


def with_model(**tensors: torch.Tensor) -> Callable[[Path], None]:
    return lambda folder: save_file(tensors, folder / files.MODEL)


def as_link(folder: Path) -> None:
    (folder / files.MODEL).unlink()
    (folder / files.MODEL).symlink_to("/etc/passwd")


def as_pipe(folder: Path) -> None:
    (folder / files.LOG).unlink()
    os.mkfifo(folder / files.LOG)


def nan_model(folder: Path) -> None:
    model = files.read_model(folder / files.MODEL)
    next(iter(model.values())).view(-1)[0] = float("nan")
    save_file(model, folder / files.MODEL)


ATTACKS: dict[str, Callable[[Path], object]] = {
    "a round beyond the last": with_line(round=10**9),
    "a neighbour that does not exist": with_line(met=[10**6]),
    "neighbours that are no numbers": with_line(met=["\x1b[31m"]),
    "bytes below zero": with_line(bytes=-1),
    "a missing key": with_line(messages=None),
    "metrics that are no numbers": with_line(metrics={"accuracy": "good"}),
    "a model of another shape": with_model(weight=torch.zeros(3)),
    "a model that is not finite": nan_model,
    "a model that is no model": lambda folder: (folder / files.MODEL).write_bytes(b"\0" * 100),
    "a model that announces terabytes": lambda folder: (folder / files.MODEL).write_bytes(
        np.uint64(1 << 60).tobytes() + b"{}"
    ),
    "a link to another file": as_link,
    "a pipe": as_pipe,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_one_hostile_folder_is_refused_and_the_rest_collected(
    good: Path, tmp_path: Path, attack: str
) -> None:
    folder = tmp_path / "fleet"
    shutil.copytree(good, folder)
    ATTACKS[attack](folder / HOSTILE)
    found = collect(folder, folder / "run")
    assert found.devices == [0, 2]
    assert list(found.refused) == [HOSTILE]
    assert found.missing == []
    assert "\x1b" not in found.refused[HOSTILE]
    assert np.isfinite(gs.Run.read(folder / "run").metrics["accuracy"]).all()


def test_a_status_of_any_content_does_no_harm(good: Path, tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    shutil.copytree(good, folder)
    for content in (b"", b"[[[", b'{"counts": {"a": "b"}}', b"\xff" * 100):
        (folder / HOSTILE / files.STATUS).write_bytes(content)
        shutil.rmtree(folder / "run", ignore_errors=True)
        assert collect(folder, folder / "run").devices == [0, 1, 2]


def test_a_log_cut_at_any_byte_is_collected_without_its_last_line(
    good: Path, tmp_path: Path
) -> None:
    path = tmp_path / files.LOG
    whole = (good / HOSTILE / files.LOG).read_bytes()
    lines = whole.count(b"\n")
    last = whole[:-1].rindex(b"\n") + 1
    for size in range(last, len(whole) + 1):
        path.write_bytes(whole[:size])
        found = files.read_log(tmp_path)
        assert len(found) in (lines - 1, lines), size
        assert (len(found) == lines) == (size >= len(whole) - 1)
        files.end_torn_line(tmp_path)  # as the device does when it is restarted
        with path.open("ab") as log:
            log.write(b'{"round": 99}\n')
        assert files.read_log(tmp_path)[-1] == {"round": 99}, "a torn line is dropped alone"
