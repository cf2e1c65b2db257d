"""Pass the events of a run to several observers; none of them can stop the run."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.engines.observer import Observer, Row

if TYPE_CHECKING:
    from gossamer.study.study import Study


class ObserverGroup(Observer):
    """Several observers as one.

    A failing observer must not stop a run: it is removed at its first error, with a warning.

    Args:
        observers: The observers, in the order in which they are called.
    """

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = list(observers)
        self.messages: list[str] = []  # messages of the engine so far

    def started(self, study: Study, folder: Path | None, rows: Sequence[Row]) -> None:
        self._call("started", study, folder, rows)

    def skipped(self, study: Study, folder: Path) -> None:
        self._call("skipped", study, folder)

    def advanced(self, round: int) -> None:
        self._call("advanced", round)

    def measured(self, row: Row) -> None:
        self._call("measured", row)

    def message(self, text: str) -> None:
        self.messages.append(text)
        self._call("message", text)

    def ended(self, summary: Mapping[str, Any]) -> None:
        """Report the end of the run. Later calls have no effect, so the first summary counts."""
        self._call("ended", summary)
        self._observers.clear()

    def _call(self, method: str, *arguments: Any) -> None:
        for observer in list(self._observers):
            try:
                getattr(observer, method)(*arguments)
            except Exception as error:
                self._observers.remove(observer)
                name = f"{type(observer).__qualname__}.{method}"
                warnings.warn(
                    f"{name} failed and is left out; the run continues "
                    f"({type(error).__name__}: {error})",
                    RuntimeWarning,
                    stacklevel=4,
                )
