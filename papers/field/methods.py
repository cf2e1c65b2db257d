"""The table of methods: rounds and megabytes to the target on three networks.

    gossamer reproduce field methods

There are 10 devices and one label per device. Every learning rate is the best of a grid, on a seed
that is not reported and on samples held out from the training data. A method that does not run on a
network is listed with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import gossamer as gs
from gossamer.algorithms import METHODS
from gossamer.algorithms import Method as Entry
from gossamer.engines import Simulator
from gossamer.study import Study
from papers.field.paper import NETWORKS, megabytes_to_target, on_held_out
from papers.wpm.paper import Results, Scale, number, rounds_to_target, studies, study, write_csv
from papers.wpm.tuning import Method, grid, tuned

TITLE = "every method: rounds and megabytes to the target on three networks; one label per device"

SPLIT = "noniid"


def setting(scale: Scale, network: str) -> Scale:
    """Return the setting of one network."""
    setting = replace(
        scale,
        network=NETWORKS[network],
        seeds=min(3, scale.seeds),
        tuning_seeds=scale.tuning_seeds[:1],
        # Most methods end a round with the mix, and are measured there; so are the others.
        measure_at="after_mix",
    )
    if scale.name == "tiny":
        return setting
    return replace(setting, rounds=300, every=10, grid=(0.005, 0.01, 0.02, 0.04, 0.08, 0.16))


def method(name: str) -> Method:
    """Return a method of the catalogue as a function of its learning rate."""
    make: Callable[..., gs.Algorithm] = METHODS[name].make
    return Method(name, lambda eta: make(eta=eta))


def refusal(scale: Scale, entry: Entry, devices: int) -> str | None:
    """Return why a method does not run on a network, or None; found by running one round."""
    try:
        one = replace(study(scale, entry.make(), devices, SPLIT, 0), data=gs.Digits(), rounds=2)
        Simulator(one.plan()).advance(1)
    except gs.InputError as error:
        return error.accepted
    return None


def runs(scale: Scale) -> Iterator[tuple[str, str, Scale]]:
    """Yield network, method and setting wherever the method runs on the network."""
    for network in NETWORKS:
        here = setting(scale, network)
        for name, entry in METHODS.items():
            if refusal(here, entry, scale.table_devices[0]) is None:
                yield network, name, here


def cells(scale: Scale) -> list[Study]:
    """Return the runs that tuning needs."""
    found = []
    for _, name, here in runs(scale):
        found += grid(on_held_out(here), [method(name)], scale.table_devices[0], SPLIT)
    return found


def then(scale: Scale, results: Results) -> list[Study]:
    """Return the runs that are reported, once the rates are known."""
    devices = scale.table_devices[0]
    found = []
    for _, name, here in runs(scale):
        best = tuned(results.under(on_held_out(here)), method(name), devices, SPLIT, scale.target)
        found += studies(here, [(method(name).at(best.eta), devices, SPLIT)])
    return found


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    """Write the table as CSV and as Markdown."""
    runnable = {(network, name) for network, name, _ in runs(scale)}
    rows = []
    for name, entry in METHODS.items():
        for network in NETWORKS:
            row: dict[str, object] = {
                "method": name,
                "file": entry.file,
                "paper": entry.paper,
                "needs": entry.needs,
                "network": network,
            }
            here = setting(scale, network)
            if (network, name) in runnable:
                row |= _measured(here, results, name, scale)
            else:
                reason = refusal(here, entry, scale.table_devices[0])
                row |= {
                    "eta": "",
                    "at_edge_of_grid": "",
                    "rounds": "refuses",
                    "rounds_95": "",
                    "megabytes": "",
                    f"accuracy_at_{here.rounds}_%": "",
                    "why": reason,
                }
            rows.append(row)
    write_csv(out / "methods.csv", rows)
    (out / "methods.md").write_text(_markdown(rows))
    return [out / "methods.csv", out / "methods.md"]


def _measured(here: Scale, results: Results, name: str, scale: Scale) -> dict[str, object]:
    """Return the columns of a method that runs on a network, whose setting is `here`."""
    devices = scale.table_devices[0]
    reported = results.under(here)
    best = tuned(results.under(on_held_out(here)), method(name), devices, SPLIT, scale.target)
    key = (method(name).at(best.eta), devices, SPLIT)
    rounds = number(reported.over_seeds(key, rounds_to_target(scale)), 0)
    sent = number(reported.over_seeds(key, megabytes_to_target(scale)), 1)
    final = number(reported.over_seeds(key, lambda run: float(run.metrics["accuracy"][-1])), 1, 100)
    return {
        "eta": best.eta,
        "at_edge_of_grid": best.edge,
        "rounds": rounds["ours"] or f"> {here.rounds}",
        "rounds_95": rounds["ours_95"],
        "megabytes": sent["ours"],
        f"accuracy_at_{here.rounds}_%": final["ours"],
        "why": "",
    }


def _markdown(rows: list[dict[str, object]]) -> str:
    """Return the table as Markdown, one line per method."""
    lines = [
        f"| method | file | paper | needs | {' | '.join(NETWORKS)} |",
        "|---|---|---|---|" + "---|" * len(NETWORKS),
    ]
    for name, entry in METHODS.items():
        cells = " | ".join(_cell(row) for row in rows if row["method"] == name)
        lines.append(f"| {name} | `{entry.file}` | {entry.paper} | {entry.needs} | {cells} |")
    return "\n".join(lines) + "\n"


def _cell(row: dict[str, object]) -> str:
    """Return rounds and megabytes to the target, or the final accuracy if it is not reached."""
    if row["rounds"] == "refuses":
        return "refuses"
    if row["megabytes"] != "":
        return f"{row['rounds']} ± {row['rounds_95']} / {row['megabytes']} MB"
    (final,) = (value for name, value in row.items() if name.startswith("accuracy_at_"))
    return f"{row['rounds']} ({final} %)"
