"""Results as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from gossamer.study import Interval, Method


def comparison(methods: Sequence[Method], title: str) -> Table:
    """One row a method: accuracy, loss, rounds (and simulated seconds) to each target, consensus distance, bytes sent."""
    first = methods[0].runs[0].summary
    classifies = first["accuracy"] is not None
    units = ["rounds", *(["seconds"] if "seconds_to_accuracy" in first else [])]
    targets = [
        *(
            (unit, "accuracy", target, f"{unit}\nto {float(target) * 100:g} %")
            for target in first["rounds_to_accuracy"]
            for unit in units
            if classifies
        ),
        *((unit, "loss", target, f"{unit} to\nloss {target}") for target in first["rounds_to_loss"] for unit in units),
    ]
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, collapse_padding=True)
    table.add_column("\nmethod", no_wrap=True)
    accuracies = ["accuracy\n%", "worst\ndevice %"] if classifies else []
    for heading in (*accuracies, "loss", *(heading for *_, heading in targets), "distance\nto mean", "MB\nsent"):
        table.add_column(heading, justify="right")
    for method in methods:
        cells = [method.label]
        if classifies:
            cells += [method.value(name).format(2, 100) for name in ("accuracy", "accuracy_worst")]
        cells.append(method.value("loss").format(3))
        for unit, kind, target, _ in targets:
            cells.append(_count(method.rounds_to(kind, target) if unit == "rounds" else method.seconds_to(kind, target), unit))
        cells += [method.value("distance").format(3), f"{method.value('bytes').mean * 1e-6:.1f}"]
        table.add_row(*cells)
    return table


def _count(value: Interval | None, unit: str) -> str:
    return "–" if value is None else value.format(2 if unit == "seconds" and value.mean < 100 else 0)
