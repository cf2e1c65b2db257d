"""One run, finished or not: its spec, its measurements and its summary."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gossamer._core.arguments import checked
from gossamer._core.columns import SAMPLING_ERROR, Column, Target, columns_of, targets_of
from gossamer.errors import DataError, InputError
from gossamer.results.folder import RunFolder
from gossamer.results.statistics import rounds_to
from gossamer.results.upgrade import upgrade_summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

# The class in the description of an object: "Mine(eta=0.1)" or "<__main__.Mine object>".
_CLASS_NAME = re.compile(r"(\w+)(?=\(| object>|$)")

# The values of a summary that are no results. All other keys hold numbers.
_NO_RESULTS: dict[str, type] = {
    "name": str,
    "method": str,
    "finished": bool,
    "diverged": dict,
    "warnings": list,
    "events": list,
    "versions": dict,
    "backend": dict,
    "command": str,
    # Of a run that was collected from real devices:
    "devices": list,
    "missing": list,
    "unfinished": dict,
    "refused": dict,
    "counts": dict,
}
_MAX_SEED = 2**63
_TO_TARGETS = ("_to", "_to_merged")  # keys of the costs of each target

Status = Literal["finished", "running", "diverged", "stopped", "broken"]


@dataclass(frozen=True)
class Progress:
    """How far a run that is still going has come.

    Attributes:
        round: Rounds done.
        left: Estimated seconds to the end; None if not known yet.
        silent: Seconds since the run last reported.
    """

    round: int
    left: float | None
    silent: float


@checked
@dataclass(frozen=True)
class Run:
    """The result of a run, in memory or read from its folder.

    Attributes:
        spec: The study as a plain table, with every default written out.
        metrics: The measurements by column; per-device columns are [measurements, devices].
        summary: The result in short; empty while the run has not ended.
        method: The method's label in tables; empty if the folder does not say it yet. Use `label`.
        folder: Where the run is kept; None if it is kept in memory only.
        study: The `Study` that was run; None if the run was read from a folder.
        progress: How far the run has come, if it is still going.
        spec_text: The spec as the folder has it, in TOML.
        final_models: The final models, if they are in memory; use `models`.
        problem: Why the folder cannot be read; see `broken`.

    Example:
        >>> import gossamer as gs
        >>> run = gs.run(gs.Study(rounds=100))
        >>> run.summary["accuracy"] > 0.5
        True
        >>> run.status, run.seed, run.devices
        ('finished', 0, 10)
    """

    spec: dict[str, Any]
    metrics: dict[str, Any]
    summary: dict[str, Any]
    method: str = ""
    folder: Path | None = None
    # Any: this package does not import `study`, which makes runs.
    study: Any = field(default=None, repr=False, compare=False)
    progress: Progress | None = None
    spec_text: str = field(default="", repr=False, compare=False)
    final_models: dict[str, torch.Tensor] | None = field(default=None, repr=False, compare=False)
    problem: str = ""

    @classmethod
    def read(
        cls,
        folder: Path | str,
        *,
        columns: Sequence[str] | None = None,
        per_device: bool = True,
        spec_name: str = "spec.toml",
    ) -> Run:
        """Read a run from its folder, whatever its status.

        Args:
            folder: The run folder.
            columns: The metrics to load; None loads all of them.
            per_device: Load columns that have a value for each device, too.
            spec_name: The name of the file with the spec.

        Returns:
            The run. Its models are loaded when `models` is first used.

        Raises:
            DataError: The folder holds no run, or one of its files is damaged.

        Example:
            >>> Run.read("runs/demo/d-psgd-seed0").summary["accuracy"]    # doctest: +SKIP
            0.93
        """
        if not isinstance(folder, str | os.PathLike):
            raise InputError("folder", folder, "the path of a run folder")
        files = RunFolder(Path(folder))
        text, spec = files.spec(spec_name)
        metrics = files.metrics(columns, per_device) if files.has("metrics.parquet") else {}
        summary = upgrade_summary(files.summary() or {})
        _check_summary(summary, files.path / "summary.json")
        method = str(summary.get("method", ""))
        run = cls(spec, metrics, summary, method, files.path, spec_text=text)
        try:  # a file can have the right format and still not hold what it should
            _ = run.status_text, run.rounds, run.round, run.columns, run.targets
            whole = -_MAX_SEED <= run.seed < _MAX_SEED
        except (InputError, TypeError, ValueError, LookupError, AttributeError):
            whole = False
        if not whole:
            raise DataError(f"{files.path} is not of a run: its spec or its summary is damaged")
        return run

    @classmethod
    def broken(cls, folder: Path, problem: str) -> Run:
        """Return a run with status "broken", for a list of runs in which one cannot be read.

        Args:
            folder: The run folder.
            problem: Why it cannot be read.
        """
        return cls({}, {}, {}, folder=folder, problem=problem or "damaged")

    @property
    def status(self) -> Status:
        """How the run stands."""
        if self.problem:
            return "broken"
        if self.progress is not None:
            return "running"
        if self.summary.get("finished"):
            return "finished"
        if "diverged" in self.summary:
            return "diverged"
        return "stopped"

    @property
    def status_text(self) -> str:
        """The status in words, with the round; empty if the run is finished."""
        if self.status == "finished":
            return ""
        if self.status == "running":
            return f"running, round {self.round} of {self.spec.get('rounds')}"
        if self.status == "diverged":
            return f"diverged at round {self.summary['diverged'].get('round')}"
        return f"stopped after round {self.round} of {self.spec.get('rounds')}"

    @property
    def finished(self) -> bool:
        """True if the run came to its end without diverging."""
        return self.status == "finished"

    @property
    def diverged(self) -> bool:
        """True if the run stopped because a model was no longer finite."""
        return self.status == "diverged"

    @property
    def name(self) -> str:
        """The name of the study."""
        return str(self.summary.get("name") or self.spec.get("name", "study"))

    @property
    def label(self) -> str:
        """The method's label in tables, or its name in the spec while the label is not known."""
        if self.method:
            return self.method
        algorithm = self.spec.get("algorithm", {})
        if not isinstance(algorithm, dict):
            return "unknown"
        own = str(algorithm.get("object", "")).rpartition(":")[2]  # the user's own class
        described = _CLASS_NAME.search(str(algorithm.get("is", "")))  # an object made in Python
        if described:
            own = described[1]
        return own or str(algorithm.get("kind") or "unknown")

    @property
    def seed(self) -> int:
        return int(self.spec.get("seed", 0))

    def sampling_error(self, name: str) -> float | None:
        """Return the half-width of the 95 % interval of a newest mean.

        Args:
            name: The name of a metric, such as "accuracy".

        Returns:
            The half-width; None if all devices were measured, or the column is no mean of a metric.
        """
        column = name + SAMPLING_ERROR
        if not self.has(column):
            return None
        return float(self.metrics[column][-1])

    @property
    def rounds(self) -> int:
        """The number of rounds that the study asks for."""
        return int(self.spec.get("rounds", 0))

    @property
    def round(self) -> int:
        """The number of rounds done."""
        if self.progress is not None:
            return self.progress.round
        if self.diverged:
            return int(self.summary["diverged"].get("round", 0))
        measured = self.metrics.get("round", ())
        last = int(measured[-1]) if len(measured) else 0
        return int(self.summary.get("rounds", last))

    @cached_property
    def devices(self) -> int:
        """The number of devices."""
        network = self.spec.get("network", {})
        if isinstance(network, dict) and network.get("devices"):
            return int(network["devices"])
        if "device_loss" in self.metrics:
            return int(np.shape(self.metrics["device_loss"])[1])
        return len(next(iter(self.models.values())))

    @cached_property
    def models(self) -> dict[str, torch.Tensor]:
        """The final model of every device by the names of its parts, each [devices, …].

        Raises:
            DataError: The run is not finished, or its folder was written without models.
        """
        if self.final_models is not None:
            return self.final_models
        if self.folder is None:
            raise DataError("this run has no models: it has no folder to load them from")
        return RunFolder(self.folder).models()

    @cached_property
    def columns(self) -> list[Column]:
        """The metrics that were measured, in the order of the spec; the loss is the last."""
        measured = [name for name in self.metrics if name == "loss" or self.has(name)]
        if not self.metrics:
            measured = [name for name, value in self.summary.items() if value is not None]
        return columns_of(self.spec, measured)

    @property
    def column(self) -> Column:
        """The metric that comes first: what tables and figures show if nothing else is asked."""
        return self.columns[0]

    @property
    def targets(self) -> list[Target]:
        """The targets of the run."""
        given = self.summary.get("rounds_to")
        if given is None:
            given = targets_of(self.spec, [column.name for column in self.columns])
        return [Target.parse(text) for text in given]

    def has(self, column: str) -> bool:
        """True if the run has measured a column at least once.

        Args:
            column: The name of a column of the metrics.
        """
        return column in self.metrics and bool(np.isfinite(self.metrics[column]).any())

    def rounds_to(self, target: str, merged: bool = False) -> float:
        """Return the first measured round at which a target was reached.

        Args:
            target: Any target of a metric that was measured, such as "accuracy >= 0.88".
            merged: The target is to be reached by the merged model, not by the devices' mean.

        Returns:
            The round, a whole number; `math.inf` if the target was not reached.

        Raises:
            InputError: The metric was not measured.

        Example:
            >>> import gossamer as gs
            >>> run = gs.run(gs.Study(rounds=100))
            >>> run.rounds_to("accuracy >= 0.3") <= 100, run.rounds_to("accuracy >= 1")
            (True, inf)
        """
        parsed = Target.parse(target, "target")
        parsed.check(self.columns, "target")
        name = parsed.name
        if merged:
            name += "_merged"
        if name not in self.metrics:
            raise InputError("merged", True, "false: this run has not measured a merged model")
        return rounds_to(self.metrics["round"], self.metrics[name], parsed.value, parsed.rising)

    def title(self, seeds: int = 1) -> str:
        """Return what was run, for the title of a table or a figure.

        Args:
            seeds: The number of seeds per method.
        """
        words = f"{self.name}: {self.devices} devices, {self.rounds} rounds"
        if seeds > 1:
            words += f", {seeds} seeds"
        return words

    def _repr_html_(self) -> str:
        """Show the run in a notebook: its row of the tables, and its curve."""
        from gossamer.results.tables import Comparison, Method

        return Comparison([Method(self.label, (self,))])._repr_html_()


def _check_summary(summary: dict[str, Any], path: Path) -> None:
    """Raise `DataError` if a value of a summary is of another type than a run writes."""
    for name, value in summary.items():
        if name in _NO_RESULTS:
            right = isinstance(value, _NO_RESULTS[name])
        elif name.endswith(_TO_TARGETS):
            right = isinstance(value, dict) and all(map(_is_result, value.values()))
        else:
            right = _is_result(value)
        if name == "diverged":
            right = right and all(_is_result(value.get(key, "")) for key in ("round", "device"))
        if not right:
            raise DataError(f"{path} is not of a run: it has a wrong value of {name!r:.60}")


def _is_result(value: Any) -> bool:
    """True for a number, and for None: a target that was not reached."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
