"""Random graphs with a structure: small worlds, communities, and epidemic pushes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.network import limits
from gossamer.network.base import BoolArray, IntArray, Links
from gossamer.network.generators.pairs import is_first, pair_code, pair_count, pair_of
from gossamer.network.generators.random_graphs import Redrawn, chosen, chosen_of
from gossamer.network.parts import Part, links_of_ends, own_range, to_all

_REWIRE_STEPS = 100  # draws of a new end for a link before it keeps the old one


@register("network", "small-world")
@dataclass(frozen=True)
class SmallWorld(Redrawn):
    """A ring lattice in which some links are rewired to random devices (Watts and Strogatz).

    Device i is linked to the degree/2 devices on either side of it. Then each link keeps its first
    end and moves its second end with probability `rewire` to a random device. New links are never
    loops, repeats, or links of the lattice; a link that finds no free place stays.

    D. J. Watts, S. H. Strogatz. "Collective dynamics of 'small-world' networks." Nature 393, 1998.

    Args:
        devices: Number of devices.
        degree: Mean number of neighbours, even.
        rewire: Probability that a link is rewired.
        seed: Seed of the graphs.
        every: Number of rounds that a graph stays; 0 for one graph throughout.

    Example:
        >>> SmallWorld(10, degree=4, rewire=0.0).links(0).degrees.tolist()
        [4, 4, 4, 4, 4, 4, 4, 4, 4, 4]
    """

    devices: int
    degree: int
    rewire: float
    seed: int = 0
    every: int = 1

    @property
    def structured(self) -> bool:
        return True  # the lattice

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("degree", self.degree, 0, self.devices - 1)
        if self.degree % 2:
            accepted = "an even number: a device is linked to as many on either side"
            raise InputError("degree", self.degree, accepted)
        checks.probability("rewire", self.rewire)
        limits.check_links("degree", self.degree, self.devices * self.degree / 2)

    def _draw(self, draw: int) -> Links:
        m = self.devices
        number = np.arange(m * (self.degree // 2))
        moves = self._moves(draw, number)
        code = np.concatenate([self._lattice(number[~moves]), self._moved(draw, number[moves])])
        code = np.sort(code)
        return Links(m, code // m, code % m)

    def _draw_of(self, draw: int, part: Part) -> Links:
        # Links that move are drawn by all processes: two of them may want the same place.
        m = self.devices
        number = own_range(m * (self.degree // 2), part)
        moves = self._moves(draw, number)
        code = self._lattice(number[~moves])
        moved = self._moved(draw, to_all(number[moves], part))
        code = np.concatenate([code, moved[own_range(len(moved), part)]])
        return links_of_ends(m, code // m, code % m, part)

    def _moves(self, draw: int, number: IntArray) -> BoolArray:
        """Return which links of the lattice move their second end."""
        first, step = self._ends(number)
        moves: BoolArray = (
            draws.uniform(self.seed, "links/small-world", draw, first, step) < self.rewire
        )
        return moves

    def _ends(self, number: IntArray) -> tuple[IntArray, IntArray]:
        """Return the first device of links of the lattice, and how far the second one is."""
        first, step = np.divmod(number, max(1, self.degree // 2))
        return first, step + 1

    def _lattice(self, number: IntArray) -> IntArray:
        """Return links of the lattice."""
        first, step = self._ends(number)
        return pair_code(first, (first + step) % self.devices, self.devices)

    def _moved(self, draw: int, number: IntArray) -> IntArray:
        """Return what the links become that move their second end, in their order."""
        m = self.devices
        half = self.degree // 2
        code = self._lattice(number)
        moving = np.arange(len(number))
        added = np.empty(0, dtype=np.int64)
        for attempt in range(_REWIRE_STEPS):
            if not len(moving):
                break
            first, step = self._ends(number[moving])
            link = first * half + step
            purpose = "links/small-world/end"
            # To the new end, which is any device but the first end.
            distance = 1 + draws.below(m - 1, self.seed, purpose, draw, attempt, link)
            new = pair_code(first, (first + distance) % m, m)
            in_lattice = np.minimum(distance, m - distance) <= half
            free = ~in_lattice & ~np.isin(new, added) & is_first(new)
            code[moving[free]] = new[free]
            added = np.concatenate([added, new[free]])
            moving = moving[~free]
        return code


@register("network", "stochastic-blocks")
@dataclass(frozen=True)
class StochasticBlocks(Redrawn):
    """The stochastic block model: communities with many links within and few between them.

    Devices with consecutive numbers form blocks whose sizes differ by at most one. Each pair is
    linked independently, with probability `within` in the same block and `between` otherwise. The
    property `groups` has the block of each device.

    P. W. Holland, K. B. Laskey, S. Leinhardt. "Stochastic blockmodels: first steps." Social
    Networks 5, 1983.

    Args:
        devices: Number of devices.
        blocks: Number of blocks.
        within: Probability of a link in a block.
        between: Probability of a link between two blocks.
        seed: Seed of the links.
        every: Number of rounds that links stay; 0 for the same links throughout.

    Example:
        >>> StochasticBlocks(4, blocks=2, within=1.0, between=0.0).links(0).pairs.tolist()
        [[0, 1], [2, 3]]
    """

    devices: int
    blocks: int
    within: float
    between: float
    seed: int = 0
    every: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("blocks", self.blocks, 1, self.devices)
        checks.probability("within", self.within)
        checks.probability("between", self.between)
        inside = self.blocks * pair_count(self._largest)
        limits.check_links("within", self.within, self.within * inside)
        limits.check_links("between", self.between, self.between * pair_count(self.devices))

    @property
    def structured(self) -> bool:
        return True  # the blocks

    @cached_property
    def groups(self) -> Mapping[str, tuple[str, ...]]:  # type: ignore[override]
        return {"block": tuple(self._block.astype(str).tolist())}

    @property
    def _largest(self) -> int:
        """Size of the largest block."""
        return -(-self.devices // self.blocks)

    @property
    def _starts(self) -> IntArray:
        """First device of each block, and the number of devices."""
        return np.arange(self.blocks + 1) * self.devices // self.blocks

    @property
    def _block(self) -> IntArray:
        """Block of each device."""
        return np.repeat(np.arange(self.blocks), np.diff(self._starts))

    def _draw(self, draw: int) -> Links:
        a, b = self._inside(draw)
        c, d = self._across(draw)
        code = np.sort(np.concatenate([a * self.devices + b, c * self.devices + d]))
        return Links(self.devices, code // self.devices, code % self.devices)

    def _draw_of(self, draw: int, part: Part) -> Links:
        a, b = self._inside(draw, part)
        c, d = self._across(draw, part)
        return links_of_ends(self.devices, np.append(a, c), np.append(b, d), part)

    def _chosen(
        self, pairs: int, probability: float, purpose: str, draw: int, part: Part | None
    ) -> IntArray:
        purpose = f"links/stochastic-blocks/{purpose}"
        if part is None:
            return chosen(pairs, probability, self.seed, purpose, draw)
        return chosen_of(pairs, probability, self.seed, purpose, draw, part)

    def _inside(self, draw: int, part: Part | None = None) -> tuple[IntArray, IntArray]:
        """Draw the links in blocks, as if all were as large as the largest one."""
        pairs = pair_count(self._largest)
        number = self._chosen(self.blocks * pairs, self.within, "within", draw, part)
        block = number // max(pairs, 1)
        a, b = pair_of(number % max(pairs, 1), self._largest)
        first = self._starts[block]
        exists = first + b < self._starts[block + 1]
        return (first + a)[exists], (first + b)[exists]

    def _across(self, draw: int, part: Part | None = None) -> tuple[IntArray, IntArray]:
        """Draw links between all devices, and keep those between blocks."""
        pairs = pair_count(self.devices)
        a, b = pair_of(self._chosen(pairs, self.between, "between", draw, part), self.devices)
        block = self._block
        across = block[a] != block[b]
        return a[across], b[across]


@register("network", "epidemic")
@dataclass(frozen=True)
class Epidemic(Redrawn):
    """Each device sends to the same number of random others, over one-way links.

    The links of Epidemic Learning (EL-Local): `degree` is its s. The number of devices that a
    device receives from is random.

    M. de Vos, S. Farhadkhani, R. Guerraoui, A.-M. Kermarrec, R. Pires, R. Sharma. "Epidemic
    learning: boosting decentralized learning with randomized communication." NeurIPS 2023.

    Args:
        devices: Number of devices.
        degree: Number of devices that each device sends to.
        seed: Seed of the links.
        every: Number of rounds that links stay; 0 for the same links throughout.

    Example:
        >>> Epidemic(5, degree=2).links(0).degrees.tolist()
        [2, 2, 2, 2, 2]
    """

    directed = True

    devices: int
    degree: int
    seed: int = 0
    every: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("degree", self.degree, 0, self.devices - 1)
        limits.check_links("degree", self.degree, self.devices * self.degree)

    def _draw(self, draw: int) -> Links:
        return Links(self.devices, *self._sent_by(draw, np.arange(self.devices)), directed=True)

    def _draw_of(self, draw: int, part: Part) -> Links:
        sender, receiver = self._sent_by(draw, part.devices)
        return links_of_ends(self.devices, sender, receiver, part, directed=True)

    def _sent_by(self, draw: int, senders: IntArray) -> tuple[IntArray, IntArray]:
        """Return the links from some devices, sorted."""
        others = self.devices - 1
        if 2 * self.degree <= others:
            sender, place = self._targets(draw, self.degree, senders)
        else:  # drawing the devices that nothing is sent to is cheaper
            sent = np.ones((len(senders), others), dtype=bool)
            left_out, place = self._targets(draw, others - self.degree, senders)
            sent[np.searchsorted(senders, left_out), place] = False
            row, place = np.nonzero(sent)
            sender = senders[row]
        return sender, place + (place >= sender)

    def _targets(self, draw: int, count: int, senders: IntArray) -> tuple[IntArray, IntArray]:
        """Return `count` different places of each sender in the list of the others, sorted.

        Places are drawn with repeats, and repeats are drawn again.
        """
        others = max(self.devices - 1, 1)
        sender = np.repeat(senders, count)
        slot = np.tile(np.arange(count), len(senders))
        code = np.full(len(sender), -1)
        missing = np.arange(len(sender))
        attempt = 0
        while len(missing):
            place = draws.below(
                others, self.seed, "links/epidemic", draw, attempt, sender[missing], slot[missing]
            )
            code[missing] = sender[missing] * others + place
            missing = np.flatnonzero(~_first_drawn(code, missing))
            attempt += 1
        code = np.sort(code)
        return code // others, code % others


def _first_drawn(code: IntArray, new: IntArray) -> np.ndarray:
    """Return a mask of the first occurrence of each code, where new ones come after all others."""
    is_new = np.zeros(len(code), dtype=bool)
    is_new[new] = True
    order = np.argsort(is_new, kind="stable")
    mask = np.empty(len(code), dtype=bool)
    mask[order] = is_first(code[order])
    return mask
