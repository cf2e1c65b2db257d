"""A device that means harm, with a certificate and without: the others learn as if it were not there."""

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
from gossamer.fleet.namespaces import address
from gossamer.fleet.protocol.wire import Reason
from gossamer.fleet.provision import AUTHORITY
from gossamer.fleet.rehearsal import Event, Rehearsal
from gossamer.fleet.settings import Fleet, read_device

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.fleet]

M, ROUNDS, SLOT = 6, 48, 1.2
HONEST, ABSENT, HOSTILE = range(4), 4, 5
IGNORED = 10  # rounds
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
    """Runs hostile.py in the hostile device's network, and keeps what it says at the end."""

    certified: bool
    said: dict[str, Any] = field(default_factory=dict)

    def start(self, rehearsal: Rehearsal) -> None:
        words = [
            sys.executable,
            str(Path(__file__).parents[1] / "support" / "hostile.py"),
            str(rehearsal.folder / "given.json"),
        ]
        with (rehearsal.folder / "hostile.log").open("w") as log:
            self.process = rehearsal.network.run(
                HOSTILE, words, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def __call__(self, rehearsal: Rehearsal) -> Iterator[Event]:
        yield 0.5, partial(self.begin, rehearsal)
        yield ROUNDS - 2, self.end

    def begin(self, rehearsal: Rehearsal) -> None:
        folder = rehearsal.folder
        device = read_device(folder / f"n{HOSTILE}.toml")
        given = {
            "device": HOSTILE,
            "run": device.run,
            "names": device.names,
            "honest": list(HONEST),
            "hosts": [address(i) for i in HONEST],
            "certificates": str(folder / f"n{HOSTILE}") if self.certified else None,
            "folders": [] if self.certified else other_certificates(folder),
            "parameters": STUDY.plan().task.learner.parameters,
            "lease": rehearsal.fleet.lease,
            "start": rehearsal.start_time,
            "slot": SLOT,
            "phases": (
                2,
                5,
                39,
            ),  # rounds from which it talks nonsense, says what must be refused, and has no manners
            "ignored": IGNORED,
            "until": ROUNDS - 4,
        }
        write_atomically(folder / "given.json", json.dumps(given).encode())

    def end(self) -> None:
        self.said = json.loads(self.process.communicate(timeout=60)[0])


def other_certificates(folder: Path) -> list[str]:
    """Of the hostile device's name: by another authority, and expired."""
    past = datetime.now(UTC) - timedelta(days=100)
    keys.make_authority(folder / "another", "fleet", days=100)
    keys.make_certificate(folder / "stranger", folder / "another", f"n{HOSTILE}", days=50)
    keys.make_certificate(folder / "expired", folder / AUTHORITY, f"n{HOSTILE}", days=50, now=past)
    return [str(folder / "stranger"), str(folder / "expired")]


ATTACKS = {"peer": Attack(certified=True), "stranger": Attack(certified=False)}


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleets]:
    require_namespaces()
    fleet = Fleet(slot=SLOT, lease=0.5, sync=False)
    trials = {
        name: Trial(STUDY, fleet, attack, attack.start, absent=(ABSENT, HOSTILE))
        for name, attack in ATTACKS.items()
    }
    trials["undisturbed"] = Trial(STUDY, fleet, absent=(ABSENT, HOSTILE))
    running = Fleets(trials, tmp_path_factory.mktemp("fleets"))
    yield running
    running.close()
    assert not leftovers()


@pytest.mark.parametrize("name", ATTACKS)
def test_the_honest_learn_as_if_alone(name: str, fleets: Fleets) -> None:
    outcome = fleets[name]
    assert [outcome.status(i)["doing"] for i in HONEST] == ["done"] * len(HONEST)
    alone = (
        simulated(replace(STUDY, network=gs.Graph(M, tuple(combinations(HONEST, 2)))))
        .record()
        .accuracy[: len(HONEST)]
        .mean()
    )
    assert outcome.accuracy(HONEST) >= alone - 0.01
    met = sum(len(set(line["met"]) & set(HONEST)) for i in HONEST for line in outcome.log(i))
    assert met > 0.8 * ROUNDS * len(HONEST) * (len(HONEST) - 1), "they were kept from each other"
    assert torch.stack([outcome.model(i) for i in HONEST]).abs().max() < 10


@pytest.mark.parametrize("name", ATTACKS)
def test_nobody_takes_it_for_another(name: str, fleets: Fleets) -> None:
    """It says that it is one who is not there; and without a certificate it is nobody at all."""
    near = {j for i in HONEST for line in fleets[name].log(i) for j in line["near"]}
    assert near == {*HONEST, HOSTILE} if name == "peer" else near == set(HONEST)


@pytest.mark.parametrize("name", ATTACKS)
def test_memory_is_bounded(name: str, fleets: Fleets) -> None:
    """It was sent parts of 1 GB and messages of 64 MB."""
    assert (
        max(fleets[name].peak_memory.values())
        < max(fleets["undisturbed"].peak_memory.values()) + 100
    )


def test_what_is_refused_is_counted_and_its_sender_ignored(fleets: Fleets) -> None:
    outcome = fleets["peer"]
    reasons = {
        key.removeprefix("refused: ") for key in outcome.counts(HONEST) if key.startswith("refused")
    }
    assert reasons == set(get_args(Reason)) - {
        "version",
        "kind",
        "fields",
    }  # these take more than a device's own code to say
    for i in HONEST:
        counts = outcome.counts([i])
        refused = sum(count for key, count in counts.items() if key.startswith("refused"))
        assert 2 <= refused <= 1 + ROUNDS // IGNORED, "who is refused is to be ignored for a while"
        assert counts["ignored"] > 20
        assert counts["late"] > 0  # replays
        assert counts["unexpected"] > 0
        assert outcome.status(i)["pending"] <= 1


def test_strangers_find_nobody(fleets: Fleets) -> None:
    assert fleets["stranger"]
    assert ATTACKS["stranger"].said["links"] == 0
    assert ATTACKS["stranger"].said["refused"] > 50
