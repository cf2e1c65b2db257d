"""What networks read from files share: they have so many rounds, and `beyond` says what comes after them."""

from __future__ import annotations

from abc import abstractmethod

from gossamer._core import checks
from gossamer.errors import InputError
from gossamer.network.base import Links, Network

BEYOND = ("error", "repeat", "empty")


class Recorded(Network):
    """A network with `recorded` rounds. Beyond them: an error, again from the start, or rounds without links."""

    beyond: str
    recorded: int

    def __post_init__(self) -> None:
        checks.one_of("beyond", self.beyond, BEYOND)

    @property
    def rounds(self) -> int | None:
        return self.recorded if self.beyond == "error" else None

    @property
    def period(self) -> int | None:
        return self.recorded if self.beyond == "repeat" else None

    def links(self, t: int) -> Links:
        if 0 <= t < self.recorded:
            return self._recorded_links(t)
        if t < 0 or self.beyond == "error":
            accepted = f"a round from 0 to {self.recorded - 1}, which is what the file has, or set beyond to"
            raise InputError("round", t, accepted + ' "repeat" or "empty"')
        return (
            self._recorded_links(t % self.recorded)
            if self.beyond == "repeat"
            else Links.of(self.devices, [], self.directed)
        )

    @abstractmethod
    def _recorded_links(self, t: int) -> Links:
        """The links of a round that the file has."""
