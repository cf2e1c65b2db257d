"""The table of methods: rounds and megabytes to the target on three networks, 10 devices.

One label per device. Every rate is the best of a grid, on a seed that is not reported and on
samples held out from the training data. A method that refuses a network is marked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gossamer as gs
from gossamer.algorithms.recipes import CATALOGUE, Entry
from gossamer.engines import Simulator
from gossamer.study import Study
from papers.field.paper import NETWORKS, megabytes_to_target, on_held_out
from papers.wpm.paper import Results, Scale, number, rounds_to_target, studies, study, write_csv
from papers.wpm.tuning import Method, grid, tuned

TITLE = "every method: rounds and megabytes to the target on three networks; one label per device"

SPLIT = "noniid"


def setting(scale: Scale, network: str) -> Scale:
    tiny = scale.name == "tiny"
    return replace(
        scale,
        network=NETWORKS[network],
        rounds=scale.rounds if tiny else 300,
        every=scale.every if tiny else 10,
        seeds=min(3, scale.seeds),
        tuning_seeds=scale.tuning_seeds[:1],
        grid=scale.grid if tiny else (0.005, 0.01, 0.02, 0.04, 0.08, 0.16),
        # Most methods end a round with mixing and are measured there; the others as well.
        measure_at="after_mix",
    )


def method(name: str) -> Method:
    return Method(name, lambda eta: CATALOGUE[name].make(eta=eta))


def refusal(scale: Scale, entry: Entry, devices: int) -> str | None:
    """Return why a method does not run on a network, found by running one round."""
    try:
        one = replace(study(scale, entry.make(), devices, SPLIT, 0), data=gs.Digits(), rounds=2)
        Simulator(one.plan()).advance(1)
    except gs.InputError as error:
        return error.accepted
    return None


def runs(scale: Scale) -> Iterator[tuple[str, str, Scale]]:
    """Return the methods that run on each network."""
    for network in NETWORKS:
        here = setting(scale, network)
        for name, entry in CATALOGUE.items():
            if refusal(here, entry, scale.table_devices[0]) is None:
                yield network, name, here


def cells(scale: Scale) -> list[Study]:
    return [
        run
        for _, name, here in runs(scale)
        for run in grid(on_held_out(here), [method(name)], scale.table_devices[0], SPLIT)
    ]


def then(scale: Scale, results: Results) -> list[Study]:
    """Return the runs to report, with the tuned rates."""
    devices = scale.table_devices[0]
    found = []
    for _, name, here in runs(scale):
        best = tuned(results.under(on_held_out(here)), method(name), devices, SPLIT, scale.target)
        found += studies(here, [(method(name).at(best.eta), devices, SPLIT)])
    return found


def make(scale: Scale, results: Results, out: Path) -> list[Path]:
    devices = scale.table_devices[0]
    able = {(network, name) for network, name, _ in runs(scale)}
    rows = []
    for name, entry in CATALOGUE.items():
        for network in NETWORKS:
            here = results.under(setting(scale, network))
            row = {
                "method": name,
                "file": entry.file,
                "paper": entry.paper,
                "needs": entry.needs,
                "network": network,
            }
            if (network, name) not in able:
                why = refusal(here.scale, entry, devices)
                rows.append(row | {"rounds": "refuses", "why": why})
                continue
            best = tuned(
                results.under(on_held_out(here.scale)), method(name), devices, SPLIT, scale.target
            )
            key = (method(name).at(best.eta), devices, SPLIT)
            rounds = number(here.over_seeds(key, rounds_to_target(scale)), 0)
            sent = number(here.over_seeds(key, megabytes_to_target(scale)), 1)
            reached = number(
                here.over_seeds(key, lambda cell: float(cell.metrics["accuracy"][-1])), 1, 100
            )
            shown = {
                "rounds": rounds["ours"] or f"> {here.scale.rounds}",
                "rounds_95": rounds["ours_95"],
            }
            last = {
                "megabytes": sent["ours"],
                f"accuracy_at_{here.scale.rounds}_%": reached["ours"],
                "why": "",
            }
            rows.append(row | {"eta": best.eta, "at_edge_of_grid": best.edge} | shown | last)
    write_csv(out / "methods.csv", rows)
    (out / "methods.md").write_text(_table(scale, rows))
    return [out / "methods.csv", out / "methods.md"]


def _table(scale: Scale, rows: list[dict[str, object]]) -> str:
    """Return the table as Markdown, one line per method."""
    lines = [
        f"| method | file | paper | needs | {' | '.join(NETWORKS)} |",
        "|---|---|---|---|" + "---|" * len(NETWORKS),
    ]
    for name, entry in CATALOGUE.items():
        several = [row for row in rows if row["method"] == name]
        lines.append(
            f"| {name} | `{entry.file}` | {entry.paper} | {entry.needs} | {' | '.join(map(_shown, several))} |"
        )
    return "\n".join(lines) + "\n"


def _shown(row: dict[str, object]) -> str:
    """Return rounds and megabytes to the target, or the final accuracy."""
    if row["rounds"] == "refuses":
        return "refuses"
    if row["megabytes"] != "":
        return f"{row['rounds']} ± {row['rounds_95']} / {row['megabytes']} MB"
    (reached,) = (value for name, value in row.items() if name.startswith("accuracy_at_"))
    return f"{row['rounds']} ({reached} %)"
