"""Insiders that send finite values within the bound, and devices that diverge."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from support.nodes import NodeFleet, send_value

import gossamer as gs
from gossamer._core.disk import SYSTEM_DISK
from gossamer.errors import DataError
from gossamer.fleet.identity import study_digest
from gossamer.fleet.node import make_worker
from gossamer.fleet.protocol.journal import Checkpoint, Journal
from gossamer.fleet.recovery import Recovery
from gossamer.fleet.settings import Fleet
from gossamer.study import spec

M, ROUNDS, INSIDER = 4, 30, 3
FLEET = Fleet(slot=1.0, sync=False)
STUDY = gs.Study(
    gs.WPM(3, 0.1),
    gs.Full(M),
    gs.Digits(),
    rounds=ROUNDS,
    batch=64,
    measure=gs.Measure(every=0, test=100),
)


def alternating(t: int) -> float:
    return 9e5 if t % 2 else -9e5


def attacked(folder: Path, fleet: Fleet, value: Callable[[int], float]) -> NodeFleet:
    nodes = NodeFleet(STUDY, folder, fleet, nodes=M - 1)
    nodes.run({INSIDER: partial(send_value, value, nodes)})
    return nodes


def largest(nodes: NodeFleet) -> float:
    return max(float(nodes.checkpoint(i).state["w"].abs().max()) for i in range(M - 1))


def test_one_insider_does_not_make_the_others_diverge(tmp_path: Path) -> None:
    guarded = attacked(tmp_path / "guarded", FLEET, alternating)
    assert guarded.results == {0: True, 1: True, 2: True}
    assert largest(guarded) < 10
    for i in range(M - 1):
        assert ("too large", INSIDER) in guarded.notices(i)
    open_ = attacked(tmp_path / "open", replace(FLEET, guard=0.0), alternating)
    assert largest(open_) > 1e4, "the attack is one: without a guard the models are lost"


def test_the_mean_of_honest_devices_is_exact_while_an_insider_is_refused(tmp_path: Path) -> None:
    """No steps, different models: the mean changes by rounding only."""
    study = replace(STUDY, algorithm=gs.DPSGD(1e-30), dtype="float64")
    nodes = NodeFleet(study, tmp_path, replace(FLEET, wire="float64"), nodes=M - 1)
    start = torch.randn(M - 1, 650, generator=torch.manual_seed(1), dtype=torch.float64)
    for i in range(M - 1):
        journal = Journal(tmp_path / str(i), sync=False)
        journal.write_checkpoint(Checkpoint(0, {"w": start[i : i + 1]}))
    nodes.run({INSIDER: partial(send_value, alternating, nodes)})
    end = torch.cat([nodes.checkpoint(i).state["w"] for i in range(M - 1)])
    torch.testing.assert_close(end.mean(0), start.mean(0), rtol=0, atol=1e-13)
    assert float((end - end.mean(0)).abs().max()) < 1e-3, "the honest ones still mix"


def test_a_device_that_diverges_goes_back_and_goes_on(tmp_path: Path) -> None:
    """The values are huge in one round: without a guard all models overflow."""
    study = replace(STUDY, algorithm=gs.DPSGD(0.1))

    def value(t: int) -> float:
        return 3e38 if t == 15 else 0.0

    nodes = NodeFleet(study, tmp_path, replace(FLEET, guard=0.0, bound=3.4e38), nodes=M - 1)
    nodes.run({INSIDER: partial(send_value, value, nodes)})
    assert nodes.results == {0: True, 1: True, 2: True}
    assert largest(nodes) < 100
    assert any(("diverged", i) in nodes.notices(i) for i in range(M - 1))


def test_a_device_goes_back_five_times_without_a_good_round(tmp_path: Path) -> None:
    """A study that always diverges ends: its settings are wrong, and no restart mends that."""
    recovery = Recovery(tmp_path, SYSTEM_DISK, rounds=1000)
    recovery.keep(0, {"w": torch.ones(1, 3)})
    assert all(recovery.fall_back(t) is not None for t in range(1, 6))
    assert recovery.fall_back(6) is None


def test_the_state_that_is_kept_is_a_good_one(tmp_path: Path) -> None:
    """States grow without bound from round 50 on: none of those is kept."""
    recovery = Recovery(tmp_path, SYSTEM_DISK, rounds=1000)
    for t in range(80):
        size = 2.0 if t < 50 else 2.0 * 5.0 ** (t - 50)
        recovery.keep(t, {"w": torch.full((1, 3), size)})
    recovery = Recovery(tmp_path, SYSTEM_DISK, rounds=1000)  # also after a restart
    round, state = recovery.fall_back(80) or (0, {})
    assert round == 41
    assert state["w"].tolist() == [[2.0, 2.0, 2.0]]


def test_a_torn_state_is_none(tmp_path: Path) -> None:
    recovery = Recovery(tmp_path, SYSTEM_DISK, rounds=1000)
    recovery.keep(0, {"w": torch.ones(1, 3)})
    whole = (tmp_path / "good").read_bytes()
    for size in range(len(whole)):
        (tmp_path / "good").write_bytes(whole[:size])
        assert Recovery(tmp_path, SYSTEM_DISK, rounds=1000).fall_back(5) is None
    (tmp_path / "good").write_bytes(whole)
    assert Recovery(tmp_path, SYSTEM_DISK, rounds=1000).fall_back(5) is not None


def test_a_device_with_another_study_is_named_and_ignored(tmp_path: Path) -> None:
    study = replace(STUDY, network=gs.Full(2), rounds=10)
    nodes = NodeFleet(study, tmp_path, FLEET, nodes=2, runs={1: bytes([1]) * 16})
    nodes.run()
    for i in (0, 1):
        assert ("other study", 1 - i) in nodes.notices(i)
        assert nodes.statuses[i]["counts"]["committed"] == 0


def test_a_study_has_the_same_digest_after_a_round_trip_through_a_spec() -> None:
    plan = STUDY.plan()
    start = make_worker(plan, 0).start()
    (read,) = spec.studies(tomllib.loads(spec.dumps(STUDY)))
    assert study_digest(read.plan(), start, FLEET) == study_digest(plan, start, FLEET)


def test_an_old_journal_never_meets_another_study(tmp_path: Path) -> None:
    study = replace(STUDY, network=gs.Full(2), rounds=3)
    NodeFleet(study, tmp_path, FLEET, nodes=2).run()
    more = NodeFleet(replace(study, rounds=5), tmp_path, FLEET, nodes=2)
    more.run()
    assert more.results == {0: True, 1: True}, "more rounds of the same study"
    for other in (
        replace(study, algorithm=gs.DPSGD(0.1)),
        replace(study, algorithm=gs.WPM(5, 0.1)),
        replace(study, model=gs.Svm()),
        replace(study, dtype="float64"),
    ):
        nodes = NodeFleet(other, tmp_path, FLEET, nodes=2)
        nodes.run()
        for result in nodes.results.values():
            assert isinstance(result, DataError)
            assert "another model or method" in str(result)


def test_the_files_of_a_device_are_private(tmp_path: Path) -> None:
    study = replace(STUDY, network=gs.Full(2), rounds=5, measure=gs.Measure(every=1, test=10))
    NodeFleet(study, tmp_path, FLEET, nodes=2).run()
    folder = tmp_path / "0"
    assert folder.stat().st_mode & 0o777 == 0o700
    for name in ("kept", "promised", "good", "history/000001.safetensors"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600, name
