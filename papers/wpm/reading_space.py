"""The space of readings: what the paper leaves open, as axes with values.

A `Reading` is one value on every axis that changes the runs. What is measured, where, and which
value counts as "converged" changes no run: those are the criteria of `reading_runs`.

The order "adapt, then combine" is no axis. With the gradient at the aggregate it gives the same
models as "combine, then adapt", where "after the mix" and "after the step" follow each other, up to
the links of the first round.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

import gossamer as gs
from gossamer import draws
from gossamer.mirror import MirrorMap
from gossamer.tasks.image_sets import scaled_bytes
from gossamer.tasks.splits import Split
from papers.search import Axis
from papers.wpm.paper import Density, random_ring

# η is "fixed at 0.01"; 0.001 is 0.01^(1 + 1/2), the printed formula at p = 1; 1.28 is 0.01 for a
# loss that is summed over the 128 samples of a batch; 0.1 would be a misprint.
RATES = (0.001, 0.01, 0.1, 1.28)
# Half widths of the uniform start, or standard deviations of a normal one.
STARTS = ("zero", "uniform 1/28", "uniform 0.087", "normal 0.01", "normal 1")
XAVIER = math.sqrt(6 / (784 + 10))  # 0.087
DENSITIES = (0.1, 0.2, 0.3, 0.5, 1.0)


def static_ring(devices: int, seed: int) -> gs.Network:
    """Return a ring that never changes."""
    return gs.Ring(devices)


NETWORKS: dict[str, Callable[[int, int], gs.Network]] = {
    "random ring": random_ring,
    "static ring": static_ring,
    **{f"density {share:g}": Density(share) for share in DENSITIES},
}
# Mean and standard deviation of (pixel/255 − mean)/std; None for those of the data set.
PIXELS: dict[str, tuple[float, float] | None] = {
    "normalised": None,
    "0 to 1": (0.0, 1.0),
    "-1 to 1": (0.5, 0.5),
    "0 to 255": (0.0, 1 / 255),
}


@dataclass(frozen=True)
class Magnitude:
    """rate = η·s^(p−1) with one magnitude s of w̄ per device: "a learning rate scaling factor".

    Attributes:
        of: How the magnitude is computed: "mean" or "largest" of |w̄|, or "norms", for which
            s^(p−1) = ‖w̄^[p]‖/‖w̄‖.
    """

    of: str
    powers_only: ClassVar[bool] = True
    linear_at_identity: ClassVar[bool] = True
    uniform: ClassVar[bool] = False

    def rate(self, eta: float | Tensor, p: float) -> float | Tensor:
        """Raise an error: the rate depends on the models."""
        raise NotImplementedError

    def __call__(
        self,
        w: Tensor,
        d: Tensor,
        eta: float | Tensor,
        mirror: MirrorMap,
        loss: Callable[[], Tensor],
    ) -> Tensor:
        """Return (w̄^[p] − rate·d)^[1/p], computed relative to s."""
        if mirror.power == 1:
            return w - eta * d
        s = self._magnitude(w, mirror).clamp_min(torch.finfo(w.dtype).tiny)
        z = mirror.to_dual((w / s).double())
        return s * mirror.to_primal(z - eta * d / s, w.dtype)

    def _magnitude(self, w: Tensor, mirror: MirrorMap) -> Tensor:
        size = w.abs()
        if self.of == "mean":
            return size.mean(1, keepdim=True)
        largest = size.amax(1, keepdim=True)
        if self.of == "largest":
            return largest
        assert mirror.power is not None
        relative = (size / largest.clamp_min(torch.finfo(w.dtype).tiny)).double()
        ratio = mirror.to_dual(relative).norm(dim=1) / relative.norm(dim=1)
        return largest * (ratio ** (1 / (mirror.power - 1)))[:, None].to(w.dtype)


@dataclass(frozen=True)
class Rule:
    """A step rule as a function of a reading.

    Attributes:
        make: A function of η, the magnitude and p that returns the rate and the step rule. (The
            rules of gossamer that match the rate multiply it by p themselves.)
        has_magnitude: True if it depends on the axis `magnitude`.
        has_factor: True if η may be multiplied by p, as in the derivative of w^p.
    """

    make: Callable[[float, float, float], tuple[float, gs.StepRule]]
    has_magnitude: bool = False
    has_factor: bool = False


RULES: dict[str, Rule] = {
    "η": Rule(lambda eta, s, p: (eta, gs.Constant())),
    "η^(1+p/2)": Rule(lambda eta, s, p: (eta, gs.Power())),
    "η₀^(1+p/2) = η at p = 1": Rule(lambda eta, s, p: (eta ** (2 / 3), gs.Power())),
    "η·s^(p-1), s given": Rule(
        lambda eta, s, p: (eta * s ** (p - 1), gs.Constant()), has_magnitude=True, has_factor=True
    ),
    "η·s^(p-1), s = mean |w|": Rule(lambda eta, s, p: (eta, Magnitude("mean")), has_factor=True),
    "η·s^(p-1), s = max |w|": Rule(lambda eta, s, p: (eta, Magnitude("largest")), has_factor=True),
    "η·‖w^p‖/‖w‖": Rule(lambda eta, s, p: (eta, Magnitude("norms")), has_factor=True),
    "η·max(|w|, s)^(p-1)": Rule(
        lambda eta, s, p: (eta / p, gs.Matched(s)), has_magnitude=True, has_factor=True
    ),
    "the same, safe sign": Rule(
        lambda eta, s, p: (eta / p, gs.Safe(s)), has_magnitude=True, has_factor=True
    ),
    "η·‖w^p‖/‖d‖": Rule(lambda eta, s, p: (eta, gs.Ratio("norm"))),
    "η·|w^p|/|f|": Rule(lambda eta, s, p: (eta, gs.Ratio("printed"))),
    "plain step": Rule(lambda eta, s, p: (eta, gs.Plain())),
}

# The values of every axis, and the index of the one that the reproduction uses.
AXES = (
    Axis("rule", tuple(RULES), 7),
    Axis("magnitude", (1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3), 3),
    Axis("factor_p", (False, True), 1),
    Axis("eta", RATES, 1),
    Axis("gradient_at", ("local", "aggregate"), 1),
    Axis("start", STARTS, 1),
    Axis("own_start", (False, True), 0),
    Axis("pixels", tuple(PIXELS), 0),
    Axis("outputs", ("softmax", "sigmoid, softmax", "softmax twice"), 0),
    Axis("network", tuple(NETWORKS), 0),
    Axis("one_label", ("exact", "sorted"), 0),
)
# The words of a value in a table, where the value alone does not say what it is.
_WORDS = {
    "magnitude": "s = {}",
    "factor_p": "rate times p: {}",
    "eta": "η = {}",
    "gradient_at": "gradient at {}",
    "start": "start {}",
    "own_start": "own start: {}",
    "pixels": "pixels {}",
    "one_label": "{} by label",
}


@dataclass(frozen=True)
class Reading:
    """One value on every axis; the defaults are the choices of assumptions.md.

    Attributes:
        rule: The step rule.
        magnitude: Its constant s, or its floor.
        factor_p: True if η is multiplied by p.
        eta: The learning rate at p = 1.
        gradient_at: Where the gradient is taken.
        start: The distribution of the initial weights.
        own_start: True if every device draws its own.
        pixels: The scaling of the pixels.
        outputs: What stands between the linear outputs and the cross-entropy.
        network: The links.
        one_label: How the images are divided in the non-IID split: by exact labels, or sorted by
            label and cut into equal parts.
    """

    rule: str = AXES[0].values[AXES[0].start]
    magnitude: float = 0.01
    factor_p: bool = True
    eta: float = 0.01
    gradient_at: Literal["local", "aggregate"] = "aggregate"
    start: str = "uniform 1/28"
    own_start: bool = False
    pixels: str = "normalised"
    outputs: str = "softmax"
    network: str = "random ring"
    one_label: str = "exact"

    def canonical(self) -> Reading:
        """Return the same reading with the default on axes that have no effect on it."""
        rule = RULES[self.rule]
        reading = self
        if not rule.has_magnitude:
            reading = replace(reading, magnitude=0.01)
        if not rule.has_factor:
            reading = replace(reading, factor_p=True)
        if self.start == "zero":
            reading = replace(reading, own_start=False)
        return reading

    @property
    def label(self) -> str:
        """What differs from our choices, in words."""
        words = []
        for axis in AXES:
            value = getattr(self, axis.name)
            if value != getattr(Reading(), axis.name):
                words.append(_WORDS.get(axis.name, "{}").format(value))
        return "; ".join(words)

    def algorithm(self, p: float) -> gs.WPM:
        """Return the method for an exponent.

        At p = 1 equal methods are equal objects, whatever the rule, so that they are run once.
        """
        rule = RULES[self.rule]
        eta = self.eta
        if rule.has_factor and self.factor_p:
            eta *= p
        eta, step = rule.make(eta, self.magnitude, p)
        if p == 1 and step.linear_at_identity:
            if isinstance(step, gs.Power):
                eta = float(f"{eta**1.5:.12g}")
            step = gs.Constant()
        return gs.WPM(p, eta, step, gradient_at=self.gradient_at, anchor=False)


def neighbours(reading: Reading) -> Iterator[Reading]:
    """Yield the readings that differ from a reading on one axis."""
    for axis in AXES:
        for value in axis.values:
            other = replace(reading, **{axis.name: value}).canonical()
            if other != reading:
                yield other


def drawn(seed: int, number: int) -> Reading:
    """Return a reading drawn at random, each axis for itself.

    Args:
        seed: The seed of the search.
        number: Which draw.
    """
    chosen = {}
    for k, axis in enumerate(AXES):
        chosen[axis.name] = axis.values[int(draws.below(len(axis.values), seed, "axis", number, k))]
    return Reading(**chosen).canonical()


def size() -> int:
    """Return the number of different readings."""
    values = {axis.name: axis.values for axis in AXES}
    steps = itertools.product(values["rule"], values["magnitude"], values["factor_p"])
    starts = itertools.product(values["start"], values["own_start"])
    count = len({Reading(*step).canonical() for step in steps})
    count *= len({Reading(start=start, own_start=own).canonical() for start, own in starts})
    grouped = {"rule", "magnitude", "factor_p", "start", "own_start"}
    return count * math.prod(len(axis.values) for axis in AXES if axis.name not in grouped)


def rescaled(data: gs.Data, pixels: str, mean: float, std: float) -> gs.Data:
    """Return images with another scaling of the pixels.

    Args:
        data: Images that are normalised.
        pixels: A key of PIXELS.
        mean: The mean with which they are normalised.
        std: The standard deviation.
    """
    scaling = PIXELS[pixels]
    if scaling is None:
        return data

    def scaled(x: Tensor) -> Tensor:
        return scaled_bytes(((x * std + mean) * 255).round().byte().numpy(), *scaling)

    return replace(data, x=scaled(data.x), x_test=scaled(data.x_test))


def sorted_parts(y: Tensor, devices: int) -> Split:
    """Return the samples sorted by label and cut into equal parts, one per device.

    Args:
        y: The labels.
        devices: Number of devices.
    """
    order = torch.argsort(y, stable=True).numpy()
    return Split(order, torch.arange(devices + 1).numpy() * len(y) // devices)


def start_rows(reading: Reading, seed: int, devices: int, parameters: int) -> Tensor:
    """Return the initial models [devices, parameters].

    Args:
        reading: The reading.
        seed: The seed of the run.
        devices: Number of devices.
        parameters: Number of weights of a model.
    """
    kind, _, scale = reading.start.partition(" ")
    if kind == "zero":
        return torch.zeros(devices, parameters)
    device = torch.arange(devices)[:, None].numpy()
    if not reading.own_start:
        device = device * 0
    weight = torch.arange(parameters).numpy()
    if kind == "normal":
        return float(scale) * torch.from_numpy(draws.normal(seed, "start", device, weight)).float()
    width = 1 / 28 if scale == "1/28" else XAVIER
    uniform = torch.from_numpy(draws.uniform(seed, "start", device, weight)).float()
    return width * (2 * uniform - 1)


def activation(outputs: str) -> nn.Module | None:
    """Return what a reading applies to the linear outputs; None for nothing.

    Args:
        outputs: A value of the axis `outputs`.
    """
    if outputs == "softmax":
        return None
    if outputs == "softmax twice":
        return nn.Softmax(dim=1)
    return nn.Sigmoid()
