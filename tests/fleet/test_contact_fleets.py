"""Fleets of real processes at the pace of contacts: faults, clocks and commands."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from support.command import gossamer
from support.fleet_commands import DEVICES, init, logs
from support.fleets import drift, initial_models, leftovers, require_namespaces
from support.loopback import python

import gossamer as gs
from gossamer import draws
from gossamer.fleet import files
from gossamer.fleet.protocol.journal import Checkpoint, Journal
from gossamer.fleet.rehearsal import Rehearsal
from gossamer.fleet.settings import Fleet
from gossamer.mirror import signed_power
from gossamer.results.run import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.fleet]

M, P = 4, 3
FAULTY_SECONDS = 16  # during which links are cut, packets lost and devices killed, at least
# On a busy machine devices exchange less, and it takes longer until a fault hits an exchange.
MOST_FAULTY_SECONDS = 80
NEVER_KILLED = (0, 3)  # their counts are those since the start
SETTLING_SECONDS = 6


def counts_of(folder: Path, devices: Iterable[int]) -> Counter[str]:
    """Return the counts of devices since their last start, added up."""
    total: Counter[str] = Counter()
    for i in devices:
        total.update(json.loads((folder / f"n{i}" / files.STATUS).read_bytes())["counts"])
    total["disturbed"] = total["in doubt"] + total["failed"]
    return total


def disturb(rehearsal: Rehearsal) -> Counter[str]:
    """Cut links, lose packets and kill devices until exchanges were hit, then heal everything."""
    done: Counter[str] = Counter()
    network = rehearsal.network
    pairs = list(combinations(range(M), 2))
    for a, b in pairs:
        network.loss(a, b, 0.03)
    down: set[tuple[int, int]] = set()
    for step in range(2 * MOST_FAULTY_SECONDS):
        if step >= 2 * FAULTY_SECONDS and counts_of(rehearsal.folder, NEVER_KILLED)["disturbed"]:
            break
        rehearsal.sleep_until(step / 2 + 0.2 * float(draws.uniform(3, "moment", step)))
        pair = pairs[int(draws.below(len(pairs), 3, "pair", step))]
        network.link(*pair, up=pair in down)
        down ^= {pair}
        done["cuts"] += pair in down
        if step % 6 == 5:
            device = 1 + (step // 6) % 2
            rehearsal.kill(device)
            rehearsal.launch(device)
            done["kills"] += 1
    for a, b in pairs:
        network.loss(a, b, 0)
    for pair in down:
        network.link(*pair, up=True)
    return done


def test_the_mean_is_invariant_under_cuts_loss_and_kills(tmp_path: Path) -> None:
    """Without steps, in float64, with clocks that are off by hours."""
    require_namespaces()
    study = gs.Study(
        gs.WPM(P, 0.0, gs.Constant(), anchor=False),
        gs.Full(M),
        rounds=20_000,  # devices are stopped
        dtype="float64",
        measure=gs.Measure(every=0),
    )
    fleet = Fleet(
        pace="contacts",
        slot=1.0,
        wire="float64",
        join="own",
        lease=0.7,
        patience=0.5,
        timeout=1.0,
        sync=False,
    )
    start = initial_models(study).double()
    clocks = {0: -7200.0, 2: 1e6}
    with Rehearsal(study, fleet, tmp_path / "fleet", clocks=clocks) as rehearsal:
        for i in range(M):
            journal = Journal(rehearsal.folder / f"n{i}", sync=False)
            journal.write_checkpoint(Checkpoint(0, study.algorithm.first_state(start[i][None])))
        rehearsal.load()
        rehearsal.start()
        done = disturb(rehearsal)
        time.sleep(SETTLING_SECONDS)
        for i in range(M):
            rehearsal.stop(i)
    assert done["cuts"] >= 8
    assert done["kills"] >= 4
    models = []
    for i in range(M):
        folder = tmp_path / "fleet" / f"n{i}"
        checkpoint = Journal(folder).read()
        assert checkpoint is not None
        assert not checkpoint.pending, "a transfer in doubt has not been settled"
        models.append(checkpoint.state["w"])
    counts = counts_of(tmp_path / "fleet", range(M))
    z = signed_power(torch.cat(models), P)
    assert drift(signed_power(start, P), z) < 1e-12
    assert counts["committed"] > 200
    assert counts["disturbed"] > 0, "no exchange was disturbed"
    assert not leftovers()


HOSTS = ",".join(f"127.0.0.1:{port}" for port in range(7001, 7001 + DEVICES))

NODES_RUN = """
import subprocess, sys
command = [sys.executable, "-m", "gossamer", "node"]
nodes = []
for i in range(given["devices"]):
    err = open(f"fleet/n{i}.err", "a")
    words = [*command, f"fleet/n{i}.toml"]
    nodes.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=err, text=True))
result = []
for process in nodes:
    out = process.communicate(timeout=150)[0]
    result.append([process.returncode, out])
"""


@pytest.mark.usefixtures("fleet_spec")
def test_commands_need_no_clock() -> None:
    """Devices begin when they are started, an hour before the time in their files."""
    pytest.importorskip("zenoh", reason="needs the extra gossamer[peer]")
    pace = ("--set", "fleet.pace=contacts", "--set", "fleet.patience=2", "--set", "rounds=40")
    printed = init("--hosts", HOSTS, *pace, ahead=3600)
    assert "no clock is needed" in printed
    assert "NTP" not in printed
    file = Path("fleet/n1.toml")
    text = re.sub(r"(?m)^clock = .*$", "clock = 1e7", file.read_text())
    assert "clock = 1e7" in text
    file.write_text(text)
    ended = python(NODES_RUN, Path.cwd(), devices=DEVICES)
    for code, out in ended:
        assert (code, "is done" in out) == (0, True)
    meetings: Counter[frozenset[int]] = Counter()
    for i, log in enumerate(logs()):
        assert [line["round"] for line in log] == list(range(41))
        seconds = [line["seconds"] for line in log]
        assert seconds == sorted(seconds)
        assert all(len(line["met"]) <= 1 for line in log)
        for line in log:
            meetings.update(frozenset({i, j}) for j in line["met"])
    assert sum(meetings.values()) > 40
    in_doubt = 0
    for i in range(DEVICES):
        status = json.loads(Path(f"fleet/n{i}/status.json").read_bytes())
        in_doubt += status["counts"]["in doubt"]
    logged_once = sum(number % 2 for number in meetings.values())
    assert logged_once <= in_doubt, "both ends log a meeting, unless one of them settles it late"
    collected = gossamer("fleet", "collect", "fleet")
    assert collected.code == 0, collected.err
    run = Run.read(Path("fleet/run"))
    rows: Any = run.metrics["simulated_seconds"]
    assert rows[-1] == max(log[-1]["seconds"] for log in logs())
