"""Which methods run on devices, and what they exchange."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from gossamer.algorithms import Algorithm, Neighbours
from gossamer.algorithms.asynchronous import Asynchronous
from gossamer.errors import InputError
from gossamer.mirror import MirrorMap
from gossamer.network import Full, Links, Network, NetworkWeights
from gossamer.tasks import Stream


def check_runs_on_devices(algorithm: Algorithm) -> None:
    """Refuse a method that needs more than a device and its neighbours can know.

    Args:
        algorithm: The method.

    Raises:
        InputError: If it does, with the reason.

    Example:
        >>> from gossamer.algorithms import SwarmSGD
        >>> check_runs_on_devices(SwarmSGD(pairs="matching"))
    """
    try:
        algorithm.weights.link_weight()
        if algorithm.connected_rounds:
            accepted = "a method that does not need all devices connected in every round"
            raise InputError("algorithm", algorithm.label, accepted)
        algorithm.check(_UnknownLinks())
    except InputError as error:
        accepted = error.accepted
        if error.field == "network":
            accepted = f"a method for links as they come and go; this one is for {accepted}"
        raise InputError("algorithm", algorithm.label, accepted) from None


def check_runs_in_meetings(algorithm: Algorithm, network: Network, rounds: int) -> None:
    """Refuse a method that meetings of two devices, without common rounds, cannot serve.

    Args:
        algorithm: The method; `check_runs_on_devices` has accepted it.
        network: The network of the study.
        rounds: Number of rounds.

    Raises:
        InputError: If it needs common rounds, with the reason.

    Example:
        >>> from gossamer.algorithms import WPM
        >>> check_runs_in_meetings(WPM(3), Full(4), rounds=100)
    """
    accepted = ""
    if isinstance(algorithm, Asynchronous):
        accepted = (
            'a method with rounds; this one computes while messages travel: use pace = "slots",'
            " or the events engine"
        )
    elif any(algorithm.mirror_at(t) != algorithm.mirror_at(0) for t in range(1, rounds)):
        accepted = (
            'a power p that is the same in all rounds; with pace = "contacts" two devices that meet'
            " are in different rounds"
        )
    elif _sends_changes(algorithm):
        accepted = (
            "a method that sends whole vectors: a compressed change means nothing to a neighbour"
            " that has missed earlier ones"
        )
    if accepted:
        raise InputError("algorithm", algorithm.label, accepted)
    if network.schedule is not None:
        accepted = 'links without a schedule: with pace = "contacts" there are no common rounds'
        raise InputError("network", type(network).__name__, accepted)


def check_has_no_stream(stream: Stream | None) -> None:
    """Refuse simulated arrivals of samples.

    Args:
        stream: The stream of a study.

    Raises:
        InputError: If there is one.

    Example:
        >>> check_has_no_stream(None)
    """
    if stream is not None:
        accepted = "no stream: on devices all samples of the split are there at the start"
        raise InputError("stream", stream, accepted)


def exchange_shapes(
    algorithm: Algorithm, w0: Tensor, proposals: bool = True
) -> tuple[tuple[int, ...], ...]:
    """Return the shape of the vector in each exchange of a round.

    Args:
        algorithm: The method.
        w0: The initial model [1, parameters].
        proposals: False if devices find partners otherwise than by an exchange.

    Example:
        >>> from gossamer.algorithms import Tracking
        >>> exchange_shapes(Tracking(), torch.zeros(1, 5))
        ((5,), (5,))
    """
    mix = _ShapeRecorder()
    if algorithm.weights.paired and proposals:
        mix.shapes.append((1,))  # the proposal
    algorithm.next_state(algorithm.first_state(w0), _ZeroGradient(), mix, 0)
    return tuple(mix.shapes)


def network_on_devices(network: Network, devices: int) -> Network:
    """Return the network that devices know: its schedule, or all links, since any two may meet.

    Args:
        network: The network of the study.
        devices: Number of devices of the fleet.

    Example:
        >>> from gossamer.network import OnePeerExponential, Ring
        >>> network_on_devices(Ring(4), 4), network_on_devices(OnePeerExponential(4), 4)
        (Full(devices=4), OnePeerExponential(devices=4, directed=False))
    """
    return network.schedule or Full(devices)


def scheduled_neighbours(network: Network, device: int, t: int) -> dict[int, float] | None:
    """Return the neighbours that a schedule has for a device, with the weights of the links.

    Args:
        network: What devices know: see `network_on_devices`.
        device: Number of the device.
        t: The round.

    Returns:
        Weights by neighbour; None if the network is no schedule.

    Example:
        >>> from gossamer.network import OnePeerExponential
        >>> scheduled_neighbours(OnePeerExponential(4), device=1, t=1)
        {3: 0.5}
    """
    if network.schedule is None:
        return None
    weights = NetworkWeights()(network.links(t))
    found: dict[int, float] = {}
    for own, other in ((weights.a, weights.b), (weights.b, weights.a)):
        here = own == device
        found.update(zip(other[here].tolist(), weights.value[here].tolist(), strict=True))
    return found


def _sends_changes(algorithm: Algorithm) -> bool:
    """Return True if a method compresses what it sends."""
    mix = _ShapeRecorder()
    with torch.no_grad():
        algorithm.next_state(algorithm.first_state(torch.zeros(1, 4)), _ZeroGradient(), mix, 0)
    return mix.compressed


@dataclass(frozen=True)
class _UnknownLinks(Network):
    """The links of real devices, which change and are not known beforehand."""

    devices: int = 1 << 32

    def links(self, t: int) -> Links:
        raise NotImplementedError


@dataclass
class _ShapeRecorder:
    """`algorithms.Mix` of an inactive device without neighbours: it records what is mixed."""

    shapes: list[tuple[int, ...]] = field(default_factory=list)
    compressed: bool = False

    @property
    def devices(self) -> Tensor:
        return torch.tensor([0])

    @property
    def active(self) -> Tensor | None:
        return torch.tensor([False])

    def __call__(self, x: Tensor, accumulate: torch.dtype | None = None) -> Tensor:
        return self._record(x).clone()

    def mean(self, w: Tensor, mirror: MirrorMap) -> Tensor:
        return self._record(w).clone()

    def neighbours(self, x: Tensor) -> Neighbours:
        itself = torch.zeros(1, dtype=torch.int64)
        return Neighbours(itself, itself, torch.ones(1, dtype=x.dtype), self._record(x).clone())

    def with_message_size(self, message: int, first: int) -> _ShapeRecorder:
        self.compressed = True
        return self

    def all_reduce(self, x: Tensor, star: bool = False) -> Tensor | None:
        return None

    def _record(self, x: Tensor) -> Tensor:
        self.shapes.append(tuple(x.shape[1:]))
        return x


class _ZeroGradient:
    """`algorithms.Gradient` of a constant loss."""

    def __call__(self, w: Tensor, step: int = 0, rows: Tensor | None = None) -> Tensor:
        return torch.zeros_like(w)

    def loss(self, w: Tensor, step: int = 0) -> Tensor:
        return torch.zeros_like(w[:, 0])

    def conjugate(self, z: Tensor) -> Tensor:
        return torch.zeros_like(z)
