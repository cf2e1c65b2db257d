"""Observers that write for experiment trackers: TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        purge_step = None
        if rows:
            purge_step = 0
        self._writer: Any = self._open(
            str(folder / "tensorboard"), purge_step=purge_step, flush_secs=_FLUSH_SECONDS
        )
        self._writer.add_text("spec", f"```toml\n{spec.dumps(study)}```")
        parameters = {"method": study.algorithm.label}
        parameters.update(plain_values(spec.to_table(study)))
        # `SummaryWriter.add_hparams` would write them to a folder, and so to a run, of their own.
        metrics = {"accuracy/mean": 0.0, "loss": 0.0}
        summaries = hparams(parameters, metrics)  # type: ignore[no-untyped-call]
        experiment, session_start, self._session_end = summaries
        self._writer.file_writer.add_summary(experiment)
        self._writer.file_writer.add_summary(session_start)
        for row in rows:
            self.measured(row)

    def measured(self, row: Row) -> None:
        for name in self.SCALARS:
            if name not in row or row[name] != row[name]:  # NaN: this cannot be measured here
                continue
            tag = name
            if name.startswith("accuracy"):
                which = name.removeprefix("accuracy").removeprefix("_")
                tag = f"accuracy/{which or 'mean'}"
            self._writer.add_scalar(tag, row[name], row["round"])

    def ended(self, summary: Mapping[str, Any]) -> None:
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
