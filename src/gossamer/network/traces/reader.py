"""Reads the lines of a small table of numbers.

Fields of a line are separated by spaces or commas. Empty lines, and everything after a `#`, are
ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from gossamer.errors import DataError

MAX_BYTES = 2**30  # size of a file


class TraceReader:
    """Reads a text file line by line; every error names the file and the line.

    Args:
        path: The file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.line = 0

    def error(self, reason: str, line: int | None = None) -> DataError:
        """Return an error about a line; the current one by default."""
        return DataError(f"{self.path}, line {line or self.line}: {reason}")

    def __iter__(self) -> Iterator[list[str]]:
        try:
            size = self.path.stat().st_size
            if size > MAX_BYTES:
                raise DataError(f"{self.path} has {size:,} bytes: a trace may have {MAX_BYTES:,}")
            with open(self.path, encoding="utf-8-sig") as file:
                for self.line, text in enumerate(file, 1):
                    words = text.partition("#")[0].replace(",", " ").split()
                    if words:
                        yield words
        except OSError as error:
            reason = error.strerror or error
            raise DataError(f"{self.path} cannot be read: {reason}; give a text file") from error
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.path} is not UTF-8 text after line {self.line}; give a text file"
            ) from error

    def parse_number(self, word: str, name: str) -> float:
        """Return a finite number; `name` is what an error calls it."""
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.error(f"{name} {word!r} is not a finite number")
        return value
