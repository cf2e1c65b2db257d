"""Base class of the networks that are read from files and therefore have a last round."""

from __future__ import annotations

from abc import abstractmethod

from gossamer._core import checks
from gossamer.errors import InputError
from gossamer.network.base import Links, Network
from gossamer.network.parts import Part

BEYOND = ("error", "repeat", "empty")


class Recorded(Network):
    """A network with a given number of rounds.

    Subclasses are dataclasses with these fields.

    Attributes:
        beyond: What follows the last round: "error" raises an error, "repeat" starts again from
            round 0, and "empty" gives rounds without links.
        recorded: Number of rounds in the file.
    """

    beyond: str
    recorded: int

    def __post_init__(self) -> None:
        checks.one_of("beyond", self.beyond, BEYOND)

    @property
    def rounds(self) -> int | None:
        if self.beyond == "error":
            return self.recorded
        return None

    @property
    def period(self) -> int | None:
        if self.beyond == "repeat":
            return self.recorded
        return None

    def links(self, t: int) -> Links:
        if self._is_beyond(t):
            return self._links_beyond()
        return self._recorded_links(t % self.recorded)

    def links_of(self, t: int, part: Part) -> Links:
        if self._is_beyond(t):
            return self._links_beyond().of_part(part)
        return self._recorded_links_of(t % self.recorded, part)

    def _is_beyond(self, t: int) -> bool:
        """Return True if a round comes after the last one, and has no links."""
        if 0 <= t < self.recorded:
            return False
        if t < 0 or self.beyond == "error":
            accepted = (
                f"a round from 0 to {self.recorded - 1}, which is what the file has, "
                'or set beyond to "repeat" or "empty"'
            )
            raise InputError("round", t, accepted)
        return self.beyond == "empty"

    def _links_beyond(self) -> Links:
        """Return the links of a round after the last one, if `beyond` is "empty"."""
        return Links.of(self.devices, [], self.directed)

    def known_links(self, rounds: int) -> int | None:
        if self.beyond != "repeat":
            return self._links_before(min(rounds, self.recorded))
        repeats, rest = divmod(rounds, self.recorded)
        once = self._links_before(self.recorded)
        begun = self._links_before(rest)
        if once is None or begun is None:
            return None
        return repeats * once + begun

    def _links_before(self, t: int) -> int | None:
        """Return the number of links in the file before round t; None if it is not known."""
        return None

    def _recorded_links_of(self, t: int, part: Part) -> Links:
        """Return the links of one process in a round that is in the file."""
        return self._recorded_links(t).of_part(part)

    @abstractmethod
    def _recorded_links(self, t: int) -> Links:
        """Return the links of a round that is in the file."""
