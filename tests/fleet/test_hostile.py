"""A hostile device, with a certificate and without: the others learn as if it were absent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from support.fleets import Fleets, Trial, leftovers, require_namespaces, simulated

import gossamer as gs
from gossamer._core.files import write_atomically
from gossamer.fleet import keys
from gossamer.fleet.identity import study_digest, wire_run
from gossamer.fleet.namespaces import address
from gossamer.fleet.node import make_worker
from gossamer.fleet.protocol.wire import Reason
from gossamer.fleet.provision import AUTHORITY
from gossamer.fleet.rehearsal import Event, Rehearsal
from gossamer.fleet.settings import Fleet, read_device

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.fleet]

SCRIPT = Path(__file__).parents[1] / "support" / "hostile.py"
M, ROUNDS, SLOT = 6, 48, 1.2
HONEST, ABSENT, HOSTILE = range(4), 4, 5
IGNORED = 10  # rounds for which a refused sender is ignored
PHASES = (2, 5, 39)  # rounds from which it floods, sends what must be refused, and breaks all rules
STUDY = gs.Study(
    gs.WPM(3, 0.2),
    gs.Full(M),
    gs.Digits(),
    gs.Dirichlet(1.0),
    batch=256,
    rounds=ROUNDS,
    measure=gs.Measure(every=0),
)


@dataclass
class Attack:
    """Run support/hostile.py in the namespace of the hostile device, and keep its results."""

    certified: bool
    results: dict[str, Any] = field(default_factory=dict)

    def start(self, rehearsal: Rehearsal) -> None:
        command = [sys.executable, str(SCRIPT), str(rehearsal.folder / "given.json")]
        with (rehearsal.folder / "hostile.log").open("w") as log:
            self.process = rehearsal.network.run(
                HOSTILE, command, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def __call__(self, rehearsal: Rehearsal) -> Iterator[Event]:
        yield 0.5, partial(self.begin, rehearsal)
        yield ROUNDS - 2, self.end

    def begin(self, rehearsal: Rehearsal) -> None:
        folder = rehearsal.folder
        device = read_device(folder / f"n{HOSTILE}.toml")
        plan = STUDY.plan()
        digest = study_digest(plan, make_worker(plan, 0).start(), rehearsal.fleet)
        given = {
            "device": HOSTILE,
            "run": device.run,
            "message_run": wire_run(bytes.fromhex(device.run), digest).hex(),
            "names": device.names,
            "honest": list(HONEST),
            "hosts": [address(i) for i in HONEST],
            "certificates": str(folder / f"n{HOSTILE}") if self.certified else None,
            "folders": [] if self.certified else invalid_certificates(folder),
            "parameters": STUDY.plan().task.learner.parameters,
            "lease": rehearsal.fleet.lease,
            "start": rehearsal.start_time,
            "slot": SLOT,
            "phases": PHASES,
            "ignored": IGNORED,
            "until": ROUNDS - 4,
        }
        write_atomically(folder / "given.json", json.dumps(given).encode())

    def end(self) -> None:
        self.results = json.loads(self.process.communicate(timeout=60)[0])


def invalid_certificates(folder: Path) -> list[str]:
    """Make certificates with the hostile device's name: by another authority, and expired."""
    name = f"n{HOSTILE}"
    past = datetime.now(UTC) - timedelta(days=100)
    keys.make_authority(folder / "another", "fleet", days=100)
    keys.make_certificate(folder / "foreign", folder / "another", name, days=50)
    keys.make_certificate(folder / "expired", folder / AUTHORITY, name, days=50, now=past)
    return [str(folder / "foreign"), str(folder / "expired")]


ATTACKS = {"peer": Attack(certified=True), "intruder": Attack(certified=False)}


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleets]:
    require_namespaces()
    fleet = Fleet(slot=SLOT, lease=0.5, sync=False)
    trials = {"undisturbed": Trial(STUDY, fleet, absent=(ABSENT, HOSTILE))}
    for name, attack in ATTACKS.items():
        trials[name] = Trial(STUDY, fleet, attack, attack.start, absent=(ABSENT, HOSTILE))
    running = Fleets(trials, tmp_path_factory.mktemp("fleets"))
    yield running
    running.close()
    assert not leftovers()


@pytest.mark.parametrize("name", ATTACKS)
def test_honest_devices_learn_as_without_the_attack(name: str, fleets: Fleets) -> None:
    outcome = fleets[name]
    assert [outcome.status(i)["doing"] for i in HONEST] == ["done"] * len(HONEST)
    honest_links = gs.Graph(M, tuple(combinations(HONEST, 2)))
    record = simulated(replace(STUDY, network=honest_links)).record()
    assert outcome.accuracy(HONEST) >= record.metrics["accuracy"][: len(HONEST)].mean() - 0.01
    committed = 0
    for i in HONEST:
        for line in outcome.log(i):
            committed += len(set(line["met"]) & set(HONEST))
    possible = ROUNDS * len(HONEST) * (len(HONEST) - 1)
    assert committed > 0.8 * possible, "the attack has prevented exchanges"
    assert torch.stack([outcome.model(i) for i in HONEST]).abs().max() < 10


@pytest.mark.parametrize("name", ATTACKS)
def test_it_cannot_pose_as_another(name: str, fleets: Fleets) -> None:
    """It claims to be an absent device; without a certificate it is nobody's neighbour."""
    neighbours = set()
    for i in HONEST:
        for line in fleets[name].log(i):
            neighbours.update(line["near"])
    assert neighbours == ({*HONEST, HOSTILE} if name == "peer" else set(HONEST))


@pytest.mark.parametrize("name", ATTACKS)
def test_memory_is_bounded(name: str, fleets: Fleets) -> None:
    """It announces chunks of 1 GB and sends messages of 64 MB."""
    undisturbed = max(fleets["undisturbed"].peak_memory.values())
    assert max(fleets[name].peak_memory.values()) < undisturbed + 100  # MB


def test_refusals_are_counted_and_the_sender_is_ignored(fleets: Fleets) -> None:
    outcome = fleets["peer"]
    reasons = set()
    for key in outcome.counts(HONEST):
        if key.startswith("refused"):
            reasons.add(key.removeprefix("refused: "))
    # The other reasons need messages that the code of a device cannot make.
    assert reasons == set(get_args(Reason)) - {"version", "kind", "fields"}
    for i in HONEST:
        counts = outcome.counts([i])
        refused = sum(count for key, count in counts.items() if key.startswith("refused"))
        assert 2 <= refused <= 1 + ROUNDS // IGNORED, "a refused sender is ignored for a while"
        assert counts["ignored"] > 20
        assert counts["late"] > 0  # replays
        assert counts["unexpected"] > 0
        assert outcome.status(i)["pending"] <= 1


def test_intruders_get_no_link(fleets: Fleets) -> None:
    assert fleets["intruder"]
    assert ATTACKS["intruder"].results["links"] == 0
    assert ATTACKS["intruder"].results["refused"] > 50
