"""How well seconds to a target are predicted for devices at the pace of contacts.

    python benchmarks/contacts.py                     three published traces, in namespaces: as root
    python benchmarks/contacts.py --simulated-only    without the namespaces; writes nothing
    python benchmarks/contacts.py --trace hospital    one of them; writes nothing

Each trace is a busy period of a published log of contacts at its resolution of 20 seconds, with the
devices that meet most in it, played as fast as it was. The same study is run three times:

    predicted     by the events engine, `engine = { kind = "events" }`
    simulated     by the code that runs on devices, in simulated time (gossamer.fleet.simulation)
    measured      by that code in one process per device, in network namespaces, in real time

A step of a device takes between 2.5 and 25 seconds. The mean accuracy of the devices' models is
read at the end of every round of the network. Devices of all traces run at the same time, for a
quarter of an hour. The results are written to
benchmarks/results/contacts-PROCESSOR-INSTRUCTIONS.json and .md. `GOSSAMER_OUTSIDE` names the folder
that has the logs, in its folder traces.
"""

import own_process  # noqa: F401  # isort: skip

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from busiest_period import RESOLUTION, TRACES, Contact, busiest
from result_names import file_name, title

import gossamer as gs
from gossamer.backend import versions
from gossamer.engines.events import start_events
from gossamer.fleet import files
from gossamer.fleet.rehearsal import Rehearsal
from gossamer.fleet.settings import Fleet
from gossamer.fleet.simulation.replay import Log, Replay, seconds_to

RESULTS = Path(__file__).with_name("results")
TARGETS = (0.6, 0.7, 0.8)
WITHIN = 0.2  # largest relative error of a prediction

_DEVICES = 6
_ROUNDS = 40
_MANY_ROUNDS = 2000  # more than a device takes of its own
# Links are noticed after up to a second. As many seconds per round as the logs have.
_FLEET = Fleet(pace="contacts", slot=RESOLUTION, join="own", sync=False)
_SLOT = _FLEET.slot
Row = dict[str, Any]
Measured = tuple[dict[float, float | None], Counter[str]]


def write_log(contacts: list[Contact], path: Path) -> None:
    """Write contacts as a log with a line per round, in seconds since the first.

    Args:
        contacts: Rounds and pairs.
        path: The file.
    """
    with path.open("w") as file:
        file.write("time,a,b\n")
        for t, a, b in contacts:
            file.write(f"{t * _SLOT},{a},{b}\n")


def study_of(log: Path) -> gs.Study:
    """Return what the devices do: D-PSGD on digits, with labels that differ between devices."""
    network = gs.ContactTrace(
        log, devices=_DEVICES, seconds_per_round=_SLOT, start=0.0, beyond="empty"
    )
    return gs.Study(
        gs.DPSGD(0.3),
        network,
        gs.Digits(),
        gs.Dirichlet(0.3),
        gs.Softmax(),
        batch=8,
        rounds=_ROUNDS,
        seed=1,
        threads=1,
        measure=gs.Measure(every=1),
        timing=gs.Timing(gs.LogUniform(2.5, 25.0), rate=1e6, latency=0.02, seed=12),
        events=gs.Events(patience_seconds=_FLEET.patience),
        name="contacts",
    )


def predicted(study: gs.Study) -> dict[float, float | None]:
    """Return the seconds to each target by the events engine."""
    engine = start_events(study.plan(), _SLOT, patience_seconds=_FLEET.patience)
    found: dict[float, float | None] = dict.fromkeys(TARGETS)
    for t in range(1, _ROUNDS + 1):
        engine.advance(t)
        accuracy = float(np.mean(engine.record().metrics["accuracy"]))
        for target in TARGETS:
            if found[target] is None and accuracy >= target:
                found[target] = t * _SLOT
    return found


def simulated(study: gs.Study) -> dict[float, float | None]:
    """Return the seconds to each target by the devices' code in simulated time."""
    assert study.timing is not None
    step_seconds = study.timing.of("compute", 0, np.arange(_DEVICES)).tolist()
    replay = Replay(_without_end(study).plan(), _FLEET, step_seconds)
    return _seconds_to_targets(replay.run(_ROUNDS))


def measured(study: gs.Study, folder: Path) -> Measured:
    """Return the seconds to each target of devices in namespaces, and counts of their exchanges.

    Args:
        study: What the devices do.
        folder: The folder of the fleet, which is made.
    """
    with Rehearsal(_without_end(study), _FLEET, folder) as rehearsal:

        def stop_all() -> None:
            for device in rehearsal.running:
                rehearsal.stop(device)

        rehearsal.start()
        rehearsal.play(events=[(_ROUNDS, stop_all)])
    logs = []
    counts: Counter[str] = Counter()
    for device in range(_DEVICES):
        logs.append(files.read_log(folder / f"n{device}"))
        status = json.loads((folder / f"n{device}" / files.STATUS).read_bytes())
        counts.update(status["counts"])
    return _seconds_to_targets(logs), counts


def _without_end(study: gs.Study) -> gs.Study:
    """Return the study for devices: `rounds` are then those of each device, which are stopped."""
    return replace(study, rounds=_MANY_ROUNDS, events=None)


def _seconds_to_targets(logs: list[Log]) -> dict[float, float | None]:
    return {x: seconds_to(logs, "accuracy", x, _SLOT, _ROUNDS) for x in TARGETS}


def measure(names: list[str], in_namespaces: bool) -> list[Row]:
    """Run the study on traces in all ways.

    Args:
        names: Keys of TRACES.
        in_namespaces: Whether to run devices in namespaces too, of all traces at the same time.

    Returns:
        A row per trace and target.
    """
    with tempfile.TemporaryDirectory() as folder:
        studies: dict[str, gs.Study] = {}
        contacts: dict[str, int] = {}
        for number, name in enumerate(names):
            log = Path(folder) / f"contacts-{number}.csv"
            found = busiest(_trace_path(name), _DEVICES, _ROUNDS)
            contacts[name] = len(found)
            write_log(found, log)
            studies[name] = study_of(log)
        by_devices: dict[str, Future[Measured]] = {}
        with ThreadPoolExecutor(len(names)) as pool:
            if in_namespaces:
                for number, name in enumerate(names):
                    fleet = Path(folder) / f"fleet-{number}"
                    by_devices[name] = pool.submit(measured, studies[name], fleet)
        rows = []
        for name, study in studies.items():
            in_time, counts = by_devices[name].result() if in_namespaces else ({}, Counter())
            by_engine = predicted(study)
            by_simulation = simulated(study)
            for target in TARGETS:
                row: Row = {"trace": name, "contacts": contacts[name], "target": target}
                row["predicted"] = by_engine[target]
                row["simulated"] = by_simulation[target]
                row["measured"] = in_time.get(target)
                row["exchanges"] = counts["committed"]
                row["failed"] = counts["failed"] + counts["in doubt"]
                rows.append(row)
    return rows


def _trace_path(name: str) -> Path:
    path = Path(os.environ.get("GOSSAMER_OUTSIDE", "")) / "traces" / TRACES[name]
    if not path.exists():
        sys.exit(f"{path} is missing: GOSSAMER_OUTSIDE names the folder with the folder traces")
    return path


def error_of(row: Row, by: str) -> float | None:
    """Return the relative error of a prediction; None if a target was missed.

    Args:
        row: A row of `measure`.
        by: "predicted" or "simulated".
    """
    if row[by] is None or row["measured"] is None:
        return None
    return float(row[by] / row["measured"] - 1)


def table(rows: list[Row]) -> str:
    """Return the results as Markdown; predictions that are further off than WITHIN are in bold."""
    lines = [
        "| trace | mean accuracy | measured s | events engine s | error | "
        "devices' code in simulated time s | error |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row["trace"], f"{row['target']:.0%}", _seconds(row["measured"])]
        for by in ("predicted", "simulated"):
            cells += [_seconds(row[by]), _error(error_of(row, by))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _seconds(value: float | None) -> str:
    return "not reached" if value is None else f"{value:.0f}"


def _error(value: float | None) -> str:
    if value is None:
        return "–"
    text = f"{value:+.0%}"
    if abs(value) > WITHIN:
        return f"**{text}**"
    return text


def write(rows: list[Row]) -> None:
    """Write the results as JSON and as a section of a page."""
    made_by = versions()
    path = RESULTS / f"{file_name('contacts', made_by['processor'])}.json"
    path.write_text(json.dumps({"versions": made_by, "rows": rows}, indent=2) + "\n")
    heading = (
        f"#### {title(made_by['processor'])}\n\n"
        f"gossamer {made_by['gossamer']}, torch {made_by['torch']}.\n\n"
    )
    path.with_suffix(".md").write_text(f"{heading}{table(rows)}")
    print(f"written: {path}")


def main() -> None:
    """Measure, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", choices=TRACES, help="one trace only; writes nothing")
    parser.add_argument("--simulated-only", action="store_true", help="no devices; writes nothing")
    given = parser.parse_args()
    torch.set_num_threads(1)
    names = [given.trace] if given.trace else list(TRACES)
    rows = measure(names, in_namespaces=not given.simulated_only)
    print(table(rows))
    for row in rows[:: len(TARGETS)]:
        print(f"{row['trace']}: {row['exchanges']} exchanges, {row['failed']} failed")
    if not given.trace and not given.simulated_only:
        write(rows)


if __name__ == "__main__":
    main()
