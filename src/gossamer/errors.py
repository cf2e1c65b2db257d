"""What the user is told when something cannot be done: one sentence naming the field, the value and what would be accepted."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GossamerError(Exception):
    """Any refusal. The command prints its sentence and ends with `exit_code`; no traceback."""

    exit_code = 2


class InputError(GossamerError, ValueError):
    """A value that cannot be used.

    >>> raise InputError("network.density", 1.5, "a number from 0 to 1")
    Traceback (most recent call last):
    gossamer.errors.InputError: network.density = 1.5 is not accepted: give a number from 0 to 1
    """

    def __init__(self, field: str, value: object, accepted: str) -> None:
        super().__init__(field, value, accepted)
        self.field, self.value, self.accepted = field, value, accepted

    def __str__(self) -> str:
        return f"{self.field} = {_short(self.value)} is not accepted: give {self.accepted}"

    def under(self, prefix: str) -> InputError:
        """The same refusal with its field named from further out: `p` becomes `algorithm.p`."""
        return InputError(f"{prefix}.{self.field}", self.value, self.accepted)


class DataError(GossamerError):
    """A file that is missing, truncated, or not what it should be."""


class Diverged(GossamerError):
    """A model left the finite numbers. Names the round and the device; exit code 3.

    `received`: it was sound until it mixed what it had received.
    """

    exit_code = 3

    def __init__(self, round: int, device: int, received: bool = False) -> None:
        super().__init__(
            f"the run diverged: device {device} has a value that is not finite after round {round}; "
            'a smaller eta, a smaller p or step = "safe" usually mends it, or a guard such as "checked" against a broken device'
        )
        self.round, self.device, self.received = round, device, received

    def __reduce__(self) -> tuple[type[Diverged], tuple[int, int, bool]]:
        return Diverged, (self.round, self.device, self.received)


class MissingExtra(GossamerError):
    """Something that needs a package which is not installed; names the command that installs it."""

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f"{what} is not installed: pip install 'gossamer[{extra}]' brings it")


class Lost(GossamerError):
    """What a run needs is gone: a cluster, a link to it. What was done until then is kept; exit code 4."""

    exit_code = 4


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint such as ` (did you mean 'density'?)`, or nothing where no known word is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _short(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
