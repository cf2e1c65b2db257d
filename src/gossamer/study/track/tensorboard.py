"""TensorBoard: event files in the run folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer._core.arguments import checked
from gossamer.engines.observer import Row
from gossamer.errors import InputError, MissingExtra
from gossamer.study import spec
from gossamer.study.track.base import Status, Tracker, settings

if TYPE_CHECKING:
    from gossamer.study.study import Study

_FLUSH_SECONDS = 5
_FOLDER = "tensorboard"
# TensorBoard's own words for the status of a run.
_STATUS = {
    "finished": "STATUS_SUCCESS",
    "stopped": "STATUS_UNKNOWN",
    "diverged": "STATUS_FAILURE",
    "failed": "STATUS_FAILURE",
}


@checked
class TensorBoard(Tracker):
    """Write the measurements of a run for TensorBoard, into the run folder.

    `tensorboard --logdir runs` shows all runs, `tensorboard --logdir runs/NAME` those of one
    comparison. A resumed run is written again from its start; TensorBoard hides what was written
    before.

    Raises:
        MissingExtra: If TensorBoard is not installed.

    Example:
        >>> import gossamer as gs
        >>> gs.run(gs.Study(), "runs/demo", observers=[gs.TensorBoard()])      # doctest: +SKIP
    """

    name = "tensorboard"

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra("tensorboard", "TensorBoard") from None
        self._writer_class: Callable[..., Any] = SummaryWriter
        self._folders: list[Path] = []

    @property
    def note(self) -> str:
        """One sentence that says how to look at the runs."""
        if not self._folders:
            return "TensorBoard: nothing was written"
        return f"TensorBoard: tensorboard --logdir {os.path.commonpath(self._folders)}"

    def holds(self, folder: Path) -> bool:
        """Return True if a finished run has been written for TensorBoard.

        Args:
            folder: The run folder.
        """
        return (folder / _FOLDER).exists()

    def started(self, study: Study, folder: Path | None, rows: Sequence[Row]) -> None:
        self._purge_step = None
        if rows:
            self._purge_step = 0
        super().started(study, folder, rows)

    def open(self, study: Study, folder: Path | None) -> int:
        """Start an event file.

        Args:
            study: The study.
            folder: The run folder.

        Returns:
            -1: all measurements are written again.

        Raises:
            InputError: If there is no run folder.
        """
        if folder is None:
            raise InputError("out", None, "a folder, which is where TensorBoard's files go")
        self._folders.append(folder)
        self._writer: Any = self._writer_class(
            str(folder / _FOLDER), purge_step=self._purge_step, flush_secs=_FLUSH_SECONDS
        )
        self._writer.add_text("spec", f"```toml\n{spec.dumps(study)}```")
        self._settings: dict[str, Any] | None = settings(study)
        return -1

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write one measurement; the settings go before the first.

        Args:
            values: The measured values by tag.
            step: The round.
        """
        if self._settings is not None:
            self._write_settings(self._settings, values)
            self._settings = None
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, step)

    def _write_settings(self, table: dict[str, Any], values: Mapping[str, float]) -> None:
        """Write the settings of the run, with the metrics that TensorBoard lists beside them."""
        from torch.utils.tensorboard.summary import hparams

        # `SummaryWriter.add_hparams` would write them to a folder, and so to a run, of their own.
        metrics = {}
        for tag in values:
            if tag.endswith("/mean"):
                metrics[tag] = 0.0
        summaries = hparams(table, metrics)  # type: ignore[no-untyped-call]
        experiment, session_start, self._session_end = summaries
        self._writer.file_writer.add_summary(experiment)
        self._writer.file_writer.add_summary(session_start)

    def close(self, summary: Mapping[str, Any], status: Status) -> None:
        """End the event file with the status of the run.

        Args:
            summary: The results by name, which TensorBoard has as scalars.
            status: How the run ended.
        """
        self._writer.add_text("status", status)
        if self._settings is None:  # they have been written, with the first measurement
            self._write_status(_STATUS[status])
        self._writer.close()

    def _write_status(self, status: str) -> None:
        """Write the end of the run; torch makes only that of a run which succeeded."""
        from tensorboard.plugins.hparams.api_pb2 import Status as BoardStatus
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

        field = self._session_end.value[0].metadata.plugin_data
        content = HParamsPluginData.FromString(field.content)
        content.session_end_info.status = BoardStatus.Value(status)
        field.content = content.SerializeToString()
        self._writer.file_writer.add_summary(self._session_end)
