"""Results as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from gossamer.study import Interval, Method


def comparison(methods: Sequence[Method], title: str) -> Table:
    """One row a method: accuracy, loss, rounds to each target, consensus distance, bytes sent."""
    first = methods[0].runs[0].summary
    classifies = first["accuracy"] is not None
    targets = [
        *(
            ("accuracy", target, f"rounds\nto {float(target) * 100:g} %")
            for target in first["rounds_to_accuracy"]
            if classifies
        ),
        *(("loss", target, f"rounds to\nloss {target}") for target in first["rounds_to_loss"]),
    ]
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, collapse_padding=True)
    table.add_column("\nmethod", no_wrap=True)
    accuracies = ["accuracy\n%", "worst\ndevice %"] if classifies else []
    for heading in (*accuracies, "loss", *(heading for _, _, heading in targets), "distance\nto mean", "MB\nsent"):
        table.add_column(heading, justify="right")
    for method in methods:
        cells = [method.label]
        if classifies:
            cells += [method.value(name).format(2, 100) for name in ("accuracy", "accuracy_worst")]
        cells.append(method.value("loss").format(3))
        cells += [_rounds(method.rounds_to(kind, target)) for kind, target, _ in targets]
        cells += [method.value("distance").format(3), f"{method.value('bytes').mean * 1e-6:.1f}"]
        table.add_row(*cells)
    return table


def _rounds(value: Interval | None) -> str:
    return "–" if value is None else value.format(0)
