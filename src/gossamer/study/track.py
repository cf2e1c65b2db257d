"""Follow a run while it goes: callbacks, and TensorBoard as one of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.errors import InputError, MissingExtra
from gossamer.study import spec

if TYPE_CHECKING:
    from gossamer.study.study import Study

Row = Mapping[str, Any]  # one measurement, by the names of metrics.parquet's columns


class Callback:
    """What is told of a run as it goes. Inherit from it and write the methods that you need; the others do nothing.

    One object may follow several runs, one after the other. One that raises is named in a warning and told no more: the run
    goes on. A run that is read because it is finished tells nothing.

    >>> class Lines(Callback):
    ...     def measured(self, row):
    ...         print(row["round"], "learned" if row["accuracy"] > 0.5 else "new")
    >>> from gossamer import DPSGD, Study, run
    >>> done = run(Study(DPSGD(eta=0.1), rounds=20), callbacks=[Lines()])
    0 new
    10 learned
    20 learned
    """

    def started(self, study: Study, folder: Path | None, rows: Sequence[Row]) -> None:
        """A run begins, or goes on: `rows` is what had been measured until then."""

    def advanced(self, round: int) -> None:
        """So many rounds are done; told a few times a second."""

    def measured(self, row: Row) -> None:
        """A measurement: what `metrics.parquet` holds of a round."""

    def ended(self, summary: Mapping[str, Any]) -> None:
        """The run is over; `finished` is false in the summary of one that was stopped, diverged or failed."""


class Callbacks:
    """Those of a run as one, each left out from the first time that it raises: no picture is worth a run."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._left = list(callbacks)

    def started(self, study: Study, folder: Path | None, rows: Sequence[Row]) -> None:
        self._tell("started", study, folder, rows)

    def advanced(self, round: int) -> None:
        self._tell("advanced", round)

    def measured(self, row: Row) -> None:
        self._tell("measured", row)

    def ended(self, summary: Mapping[str, Any]) -> None:
        """Told once: what goes wrong after that is no news."""
        self._tell("ended", summary)
        self._left.clear()

    def _tell(self, what: str, *facts: Any) -> None:
        for callback in self._left[:]:
            try:
                getattr(callback, what)(*facts)
            except Exception as error:
                self._left.remove(callback)
                name = f"{type(callback).__qualname__}.{what}"
                reason = f"{type(error).__name__}: {error}"
                warnings.warn(
                    f"{name} failed and is left out; the run goes on ({reason})",
                    RuntimeWarning,
                    stacklevel=4,
                )


def trackers(name: str | None) -> list[Callback]:
    """The callbacks of `--track NAME`."""
    if name not in (None, "tensorboard"):
        raise InputError("track", name, '"tensorboard"')
    return [] if name is None else [TensorBoard()]


class TensorBoard(Callback):
    """Writes what is measured for TensorBoard, into the run folder: `tensorboard --logdir runs` then shows all runs.

    A run that goes on is written anew from its start; TensorBoard hides what was written of it before.
    """

    SCALARS = (
        "accuracy",
        "accuracy_worst",
        "accuracy_best",
        "loss",
        "distance",
        "power_distance",
        "bytes",
        "simulated_seconds",
    )

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("track", "TensorBoard") from None
        self._open: Callable[..., Any] = SummaryWriter

    def started(self, study: Study, folder: Path | None, rows: Sequence[Row]) -> None:
        from torch.utils.tensorboard.summary import hparams

        if folder is None:
            raise InputError("out", None, "a folder, which is where TensorBoard's files go")
        self._writer: Any = self._open(
            str(folder / "tensorboard"), purge_step=0 if rows else None, flush_secs=5
        )
        self._writer.add_text("spec", f"```toml\n{spec.dumps(study)}```")
        named = {"method": study.algorithm.label} | dict(settings(spec.to_table(study)))
        # add_hparams would make a folder of its own, and so a run of its own, of them
        first, begin, self._end = hparams(named, {"accuracy/mean": 0.0, "loss": 0.0})  # type: ignore[no-untyped-call]
        for part in (first, begin):
            self._writer.file_writer.add_summary(part)
        for row in rows:
            self.measured(row)

    def measured(self, row: Row) -> None:
        for name in self.SCALARS:
            if name in row and row[name] == row[name]:  # not a number: this cannot be measured here
                kind, _, which = name.partition("_")
                tag = f"accuracy/{which or 'mean'}" if kind == "accuracy" else name
                self._writer.add_scalar(tag, row[name], row["round"])

    def ended(self, summary: Mapping[str, Any]) -> None:
        self._writer.file_writer.add_summary(self._end)
        self._writer.close()


def settings(table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """The plain values of a spec by their full names.

    >>> dict(settings({"rounds": 9, "algorithm": {"p": 3}, "faults": [{"kind": "churn"}]}))
    {'rounds': 9, 'algorithm.p': 3, 'faults.0.kind': 'churn'}
    """
    for key, value in table.items():
        if isinstance(value, list) and any(isinstance(x, Mapping) for x in value):
            value = {str(k): x for k, x in enumerate(value)}
        if isinstance(value, Mapping):
            yield from settings(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value if isinstance(value, bool | int | float | str) else str(value)
