"""Observers that write for experiment trackers: TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer._core.columns import ENDINGS, Column
from gossamer.engines.observer import Observer, Row
from gossamer.errors import InputError, MissingExtra
from gossamer.study import spec

if TYPE_CHECKING:
    from gossamer.study.study import Study

_FLUSH_SECONDS = 5


def trackers(name: str | None) -> list[Observer]:
    """Return the observers of `--track NAME`.

    Args:
        name: "tensorboard", or None for no tracker.

    Returns:
        The observers; none if `name` is None.

    Raises:
        InputError: If the tracker is not known.
        MissingExtra: If its package is not installed.
    """
    if name is None:
        return []
    if name != "tensorboard":
        raise InputError("track", name, '"tensorboard"')
    return [TensorBoard()]


class TensorBoard(Observer):
    """Write the measurements of a run for TensorBoard, into the run folder.

    `tensorboard --logdir runs` shows all runs. A resumed run is written again from its start;
    TensorBoard hides what was written before.

    Example:
        >>> from gossamer import Study, run
        >>> run(Study(), "runs/demo", observers=[TensorBoard()])      # doctest: +SKIP
    """

    SCALARS = ("distance", "power_distance", "bytes", "simulated_seconds")
    """Columns that are written beside the metrics and the loss."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("tensorboard", "TensorBoard") from None
        self._open: Callable[..., Any] = SummaryWriter

    def started(self, study: Study, folder: Path | None, rows: Sequence[Row]) -> None:
        if folder is None:
            raise InputError("out", None, "a folder, which is where TensorBoard's files go")
        purge_step = None
        if rows:
            purge_step = 0
        self._writer: Any = self._open(
            str(folder / "tensorboard"), purge_step=purge_step, flush_secs=_FLUSH_SECONDS
        )
        self._writer.add_text("spec", f"```toml\n{spec.dumps(study)}```")
        self._measure = study.measure
        self._parameters: dict[str, Any] | None = {"method": study.algorithm.label}
        self._parameters.update(plain_values(spec.to_table(study)))
        for row in rows:
            self.measured(row)

    def _write_parameters(self, parameters: dict[str, Any], columns: Sequence[Column]) -> None:
        """Write the settings of the run, with the metrics that TensorBoard lists beside them."""
        from torch.utils.tensorboard.summary import hparams

        # `SummaryWriter.add_hparams` would write them to a folder, and so to a run, of their own.
        metrics = {}
        for column in columns:
            metrics[f"{column.name}/mean"] = 0.0
        summaries = hparams(parameters, metrics)  # type: ignore[no-untyped-call]
        experiment, session_start, self._session_end = summaries
        self._writer.file_writer.add_summary(experiment)
        self._writer.file_writer.add_summary(session_start)

    def measured(self, row: Row) -> None:
        columns = self._measure.columns_in(row)
        if self._parameters is not None:
            self._write_parameters(self._parameters, columns)
            self._parameters = None
        tags = {name: name for name in self.SCALARS}
        for column in columns:
            for ending in ENDINGS:
                tags[column.name + ending] = f"{column.name}/{ending.strip('_') or 'mean'}"
        for name, tag in tags.items():
            if name in row and row[name] == row[name]:  # not NaN: it can be measured here
                self._writer.add_scalar(tag, row[name], row["round"])

    def ended(self, summary: Mapping[str, Any]) -> None:
        if self._parameters is None:  # they have been written, with the first measurement
            self._writer.file_writer.add_summary(self._session_end)
        self._writer.close()


def plain_values(table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield the plain values of a spec by their dotted names.

    Args:
        table: The tables of a spec.
        prefix: Put before every name.

    Yields:
        Pairs of a name and a value; a list of plain values is given as text.

    Example:
        >>> dict(plain_values({"rounds": 9, "algorithm": {"p": 3}, "faults": [{"kind": "churn"}]}))
        {'rounds': 9, 'algorithm.p': 3, 'faults.0.kind': 'churn'}
    """
    for key, value in table.items():
        if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            value = {str(index): item for index, item in enumerate(value)}
        if isinstance(value, Mapping):
            yield from plain_values(value, f"{prefix}{key}.")
        elif isinstance(value, bool | int | float | str):
            yield prefix + key, value
        else:
            yield prefix + key, str(value)
