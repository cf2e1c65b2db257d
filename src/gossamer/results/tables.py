"""What comes out of several runs: the seeds of a method together, and methods side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossamer.results.statistics import Interval, interval

if TYPE_CHECKING:
    from gossamer.results.run import Run


@dataclass(frozen=True)
class Method:
    """One method's runs, one a seed."""

    label: str
    runs: tuple[Run, ...]

    def value(self, name: str) -> Interval:
        """The mean of a number of the summary over the seeds, with its interval."""
        return interval([run.summary[name] for run in self.runs])

    def rounds_to(self, kind: str, target: str) -> Interval | None:
        """Rounds to a target over the seeds; None unless every seed reached it."""
        return self.to("rounds", kind, target)

    def seconds_to(self, kind: str, target: str) -> Interval | None:
        """The same in simulated seconds, of studies that have a timing."""
        return self.to("seconds", kind, target)

    def to(self, unit: str, kind: str, target: str) -> Interval | None:
        """What it took to reach a target, in "rounds", "bytes" or "seconds"; None unless every seed reached it."""
        reached = [run.summary[f"{unit}_to_{kind}"][target] for run in self.runs]
        return None if None in reached else interval(reached)

    def _repr_html_(self) -> str:
        return Comparison([self])._repr_html_()


class Comparison(list[Method]):
    """The methods of a comparison, in the order of its studies. In a notebook it shows its table and its curves."""

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The headings and the rows, one a method: accuracy, loss, what each target took, consensus distance, bytes sent."""
        first = self[0].runs[0].summary
        classifies = first["accuracy"] is not None
        accuracies = ["accuracy\n%", "worst\ndevice %"] if classifies else []
        units = ["rounds", *(["seconds"] if "seconds_to_accuracy" in first else [])]
        targets = [
            (unit, "accuracy", t)
            for t in first["rounds_to_accuracy"]
            for unit in units
            if classifies
        ]
        targets += [(unit, "loss", t) for t in first["rounds_to_loss"] for unit in units]
        to = [
            f"{u}\nto {float(t) * 100:g} %" if kind == "accuracy" else f"{u} to\nloss {t}"
            for u, kind, t in targets
        ]
        rows = []
        for method in self:
            cells = [
                method.value(name).format(2, 100)
                for name in ("accuracy", "accuracy_worst")
                if classifies
            ]
            cells.append(method.value("loss").format(3))
            cells += [_count(method.to(*target), target[0]) for target in targets]
            cells += [
                method.value("distance").format(3),
                f"{method.value('bytes').mean * 1e-6:.1f}",
            ]
            rows.append([method.label, *cells])
        return ["\nmethod", *accuracies, "loss", *to, "distance\nto mean", "MB\nsent"], rows

    def _repr_html_(self) -> str:
        from gossamer.results.notebook import show_methods

        return show_methods(self, *self.table() if self else ([], []))


def _count(value: Interval | None, unit: str) -> str:
    return (
        "–" if value is None else value.format(2 if unit == "seconds" and value.mean < 100 else 0)
    )
