"""Base of exact methods for links that never change: EXTRA, NIDS and D²."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gossamer.algorithms.base import Algorithm, check_static
from gossamer.algorithms.schedules import check_constant_eta
from gossamer.network.base import Network


@dataclass(frozen=True)
class StaticLinksMethod(Algorithm):
    """A method with a constant rate that subtracts gradients of two rounds.

    Args:
        eta: The learning rate, a constant.
    """

    eta: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_constant_eta(self.eta, self.label)

    @property
    def needs_gradients(self) -> bool:
        return True

    @property
    def without_rounds(self) -> Literal["no", "in pairs", "in the background"]:
        return "no"

    def check(self, network: Network) -> None:
        super().check(network)
        check_static(self, network)
