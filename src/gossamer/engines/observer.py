"""The one interface through which a run reports: start, progress, measurements, messages, end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]  # one measurement, by the column names of metrics.parquet


class Observer:
    """Follow a run. Every method does nothing; override those that you need.

    `gossamer.run` calls `started` once, `advanced` and `measured` as the run proceeds, and
    `ended` once. `message` may be called at any time between the two: an engine reports what
    happens to itself, for example a shard that is lost and replaced. All calls come from the
    thread that runs the study. One observer may follow several runs, one after the other.

    Example:
        >>> class Messages(Observer):
        ...     def message(self, text):
        ...         print(text)
        >>> Messages().message("shard 1 of 4 was lost")
        shard 1 of 4 was lost
    """

    def started(self, study: Any, folder: Path | None, rows: Sequence[Row]) -> None:
        """Handle the start of a run, or its resumption.

        Args:
            study: The `Study` that runs.
            folder: The run folder, or None if nothing is written.
            rows: The measurements of the run so far: empty, unless it is resumed.
        """

    def skipped(self, study: Any, folder: Path) -> None:
        """Handle a run that is not run again because its folder holds it finished.

        No other method is called for it.

        Args:
            study: The `Study` of the run.
            folder: The run folder.
        """

    def advanced(self, round: int) -> None:
        """Handle progress. Called a few times per second.

        Args:
            round: Number of rounds done.
        """

    def measured(self, row: Row) -> None:
        """Handle one measurement.

        Args:
            row: The measurement, by the column names of `metrics.parquet`.
        """

    def message(self, text: str) -> None:
        """Handle a message of the engine.

        Args:
            text: One sentence. The summary of the run lists all of them under `events`.
        """

    def ended(self, summary: Mapping[str, Any]) -> None:
        """Handle the end of a run.

        Args:
            summary: What `summary.json` holds. `finished` is False if the run was interrupted,
                diverged or failed.
        """
