"""Exceptions. Each message is one sentence that names the field, the value and what is accepted.

GossamerError            any error of gossamer; the command exits with 2
├── InputError           a value that cannot be used (also a ValueError)
├── DataError            a file that is missing, damaged, or not what it should be
│   └── Unavailable      what may mend itself, such as a full disk: try again; exit code 75
├── Diverged             a model has a value that is not finite; exit code 3
├── MissingExtra         a package that is not installed
└── Lost                 a cluster or a link that a run needs is gone; exit code 4

Interrupted              the user stopped a run (a KeyboardInterrupt); exit code 130

DataWarning              data that are accepted, but look like a mistake (a UserWarning)
NetworkWarning           a network that is accepted, but has hardly a link (a UserWarning)
SpeedWarning             a model that runs, but slowly (a UserWarning)
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

_LONGEST_VALUE = 80  # characters of a value in a message
_LONGEST_NUMBER = 1000  # bits of a whole number in a message
_SIMILARITY = 0.6  # least similarity of a word in a hint, as difflib measures it


class GossamerError(Exception):
    """Base class of all errors of gossamer.

    The command prints its sentence without a traceback and exits with `exit_code`.

    Example:
        >>> issubclass(InputError, GossamerError)
        True
    """

    exit_code = 2


class InputError(GossamerError, ValueError):
    """A value that cannot be used.

    Args:
        field: Name of the argument, or of the key in a spec.
        value: The value.
        accepted: What is accepted instead, as in "give …".

    Example:
        >>> raise InputError("network.density", 1.5, "a number from 0 to 1")
        Traceback (most recent call last):
        gossamer.errors.InputError: network.density = 1.5 is not accepted: give a number from 0 to 1
    """

    def __init__(self, field: str, value: object, accepted: str) -> None:
        super().__init__(field, value, accepted)
        self.field = field
        self.value = value
        self.accepted = accepted

    def __str__(self) -> str:
        return f"{self.field} = {_shortened(self.value)} is not accepted: give {self.accepted}"

    def under(self, prefix: str) -> InputError:
        """Return the same error with a longer name of the field: `p` becomes `algorithm.p`.

        Args:
            prefix: What the field is part of.
        """
        return InputError(f"{prefix}.{self.field}", self.value, self.accepted)


class DataError(GossamerError):
    """A file that is missing, truncated, or not what it should be.

    Example:
        >>> raise DataError("cannot read links.parquet: No such file or directory")
        Traceback (most recent call last):
        gossamer.errors.DataError: cannot read links.parquet: No such file or directory
    """


class Unavailable(DataError):
    """What may mend itself: a full disk, a certificate that is not valid yet, no network.

    The exit code is 75, that of a temporary failure (EX_TEMPFAIL of sysexits.h): try again.

    Example:
        >>> Unavailable.exit_code
        75
    """

    exit_code = 75


class Diverged(GossamerError):
    """A model has a value that is not finite. The exit code is 3.

    Args:
        round: The round after which it was found.
        device: Number of the device.
        received: True if the model was finite until it was mixed with what it had received.

    Attributes:
        run: The `gossamer.Run` with what was measured before; None if it is not known.

    Example:
        >>> Diverged(round=7, device=3).device
        3
    """

    exit_code = 3

    def __init__(self, round: int, device: int, received: bool = False) -> None:
        super().__init__(
            f"the run diverged: device {device} has a value that is not finite "
            f'after round {round}; a smaller eta, a smaller p or step = "safe" usually mends it, '
            'or a guard such as "checked" against a broken device'
        )
        self.round = round
        self.device = device
        self.received = received
        self.run: Any = None  # a `Run`, which this module cannot import

    def __reduce__(self) -> tuple[type[Diverged], tuple[int, int, bool]]:
        return Diverged, (self.round, self.device, self.received)


class MissingExtra(GossamerError):
    """A package that is not installed. The message names the command that installs it.

    Args:
        extra: The extra of gossamer that contains the package.
        what: What needs it.
    """

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f"{what} is not installed: pip install 'gossamer[{extra}]' brings it")


class Lost(GossamerError):
    """A cluster or a link that a run needs is gone. Its results so far are kept; exit code 4."""

    exit_code = 4


class Interrupted(KeyboardInterrupt):
    """The user stopped a run. Its state is saved, and `--resume` continues it. Exit code 130.

    Like any Ctrl-C it is a `KeyboardInterrupt`, which `except Exception` does not catch: a loop
    over studies ends, instead of going on with the next one.

    Example:
        >>> issubclass(Interrupted, Exception)
        False
    """

    exit_code = 130


class DataWarning(UserWarning):
    """Data that are accepted, but look like a mistake, such as labels that skip a number."""


class NetworkWarning(UserWarning):
    """A network that is accepted, but looks like a mistake, such as one without links."""


class SpeedWarning(UserWarning):
    """A model that runs, but slower than it could, such as a recurrent layer."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint with the known word that is closest to an unknown one.

    Args:
        word: The unknown word.
        known: The known words.

    Returns:
        A hint to append to a message, or "" if no known word is close.

    Example:
        >>> nearest("densty", ["density", "devices"])
        " (did you mean 'density'?)"
    """
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=_SIMILARITY)
    if not close:
        return ""
    return f" (did you mean {close[0]!r}?)"


def _shortened(value: object) -> str:
    """Return a value as Python writes it, in one line and not too long."""
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, PurePath):
        value = str(value)
    # Python does not write numbers of more than 4300 digits.
    if isinstance(value, int) and value.bit_length() > _LONGEST_NUMBER:
        return f"a number of {round(value.bit_length() * math.log10(2))} digits"
    try:
        text = " ".join(repr(value).split())
    # The value may be of any class, or a list of very large numbers.
    except Exception:
        return f"<{type(value).__name__}>"
    if len(text) <= _LONGEST_VALUE:
        return text
    return text[: _LONGEST_VALUE - 1] + "…"
