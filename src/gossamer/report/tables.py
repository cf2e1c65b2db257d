"""Results as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from gossamer.study import Interval, Method


def comparison(methods: Sequence[Method], title: str) -> Table:
    """One row a method: accuracy, loss, rounds to each target, consensus distance, bytes sent."""
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("method", no_wrap=True)
    first = methods[0].runs[0].summary
    targets = [
        *(("accuracy", target, f"rounds to {float(target) * 100:g} %") for target in first["rounds_to_accuracy"]),
        *(("loss", target, f"rounds to loss {target}") for target in first["rounds_to_loss"]),
    ]
    if first["accuracy"] is not None:
        for heading in ("accuracy %", "worst device %"):
            table.add_column(heading, justify="right")
    table.add_column("loss", justify="right")
    for _, _, heading in targets:
        table.add_column(heading, justify="right")
    for heading in ("distance", "MB sent"):
        table.add_column(heading, justify="right")
    for method in methods:
        cells = [method.label]
        if first["accuracy"] is not None:
            cells += [method.value(name).format(2, 100) for name in ("accuracy", "accuracy_worst")]
        cells.append(method.value("loss").format(3))
        cells += [_rounds(method.rounds_to(kind, target)) for kind, target, _ in targets]
        cells += [method.value("distance").format(3), method.value("bytes").format(1, 1e-6)]
        table.add_row(*cells)
    return table


def _rounds(value: Interval | None) -> str:
    return "–" if value is None else value.format(0)
