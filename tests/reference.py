"""The executable specification: every algorithm device by device and message by message, as its paper writes it.

Slow and plain. Nothing here is shared with the simulator but the data, the learner's gradient (asked for one device at a
time), the links, and the named draws by which SwarmSGD's devices pair up. `exact` computes in mpmath instead of float64,
for the powers that float64 cannot hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import torch

from gossamer import draws
from gossamer.algorithms import DPSGD, WPM, AllReduce, Amplified, Constant, Matched, Plain, Power, Ratio, Safe, SwarmSGD
from gossamer.engines import Plan
from gossamer.network import Links

Vector = np.ndarray[Any, Any]  # float64, or mpmath's numbers
Vectors = dict[int, Vector]  # by device
Neighbours = dict[int, list[int]]  # ascending


def power(x: Vector, c: Any) -> Vector:
    """x^[c] = sgn(x)·|x|^c."""
    return np.asarray(np.where(x < 0, -1, 1) * np.abs(x) ** c)


class Reference:
    """Runs a plan, in float64."""

    def __init__(self, plan: Plan, exact: bool = False) -> None:
        self.plan, self.round, self.messages, self.numbers_sent = plan, 0, 0, 0.0
        self.number: Callable[[float], Any] = mpmath.mpf if exact else float
        self.devices = range(plan.task.devices)
        place = torch.device("cpu")
        self.workers = [plan.task.worker(np.array([i]), plan.seed, torch.float64, place) for i in self.devices]
        self.start = self.lift(self.workers[0].start()[0])
        anchored = isinstance(plan.algorithm, WPM) and plan.algorithm.anchor
        # The state of a device: its model, less the shared start where the method is anchored there.
        self.x: Vectors = dict.fromkeys(self.devices, 0 * self.start if anchored else self.start)
        self.added: Vectors = {}  # how large the terms were that WPM's last round added up in the dual: rounding goes by it

    def lift(self, x: torch.Tensor) -> Vector:
        numbers = [self.number(value) for value in x.tolist()]
        return np.array(numbers, dtype=object if self.number is mpmath.mpf else np.float64)

    # What a device can do by itself

    def row(self, x: Vector) -> torch.Tensor:
        return torch.tensor([[float(value) for value in self.model(x)]], dtype=torch.float64)

    def gradient(self, i: int, x: Vector, t: int, step: int = 0) -> Vector:
        alone = torch.tensor([0])  # the only row of a worker of one device
        return self.lift(self.workers[i].gradient(self.row(x), t, step, alone)[0])

    def loss(self, i: int, x: Vector, t: int) -> Any:
        return self.number(self.workers[i].loss(self.row(x), t).item())

    def model(self, x: Vector) -> Vector:
        algorithm = self.plan.algorithm
        return x + self.start if isinstance(algorithm, WPM) and algorithm.anchor else x

    def eta(self, i: int, t: int) -> Any:
        """η_i(t)."""
        eta = self.plan.algorithm.eta  # type: ignore[attr-defined]
        now = eta(t) if callable(eta) else eta
        return self.number(now if isinstance(now, int | float) else now[i])

    # What devices do together

    def exchange(self, x: Vectors, neighbours: Neighbours) -> dict[int, Vectors]:
        """Each device sends its vector to each of its neighbours. What everybody has then, its own included."""
        inbox = {i: {i: x[i]} for i in x}
        for i in x:
            for j in neighbours[i]:
                inbox[j][i] = x[i]
                self.messages += 1
                self.numbers_sent += len(x[i])
        return inbox

    def metropolis(self, inbox: Vectors, i: int, neighbours: Neighbours) -> Vector:
        """Σ_j a_ij·x_j with a_ij = min(1/(|N_i|+1), 1/(|N_j|+1)) and a_ii = what is left of 1."""
        one = self.number(1)
        a = {j: min(one / (len(neighbours[i]) + 1), one / (len(neighbours[j]) + 1)) for j in neighbours[i]}
        a[i] = one - sum(a[j] for j in sorted(a))
        total = 0 * self.start
        for j in sorted(a):
            total = total + a[j] * inbox[j]
        return total

    # Rounds

    def advance(self, until: int) -> None:
        rounds: dict[type, Callable[[Any, int, Links, list[int]], Vectors]] = {
            DPSGD: self.dpsgd,
            WPM: self.wpm,
            SwarmSGD: self.swarm,
            AllReduce: self.all_reduce,
            Amplified: self.amplified,
        }
        algorithm = self.plan.algorithm
        while self.round < until:
            links = self.plan.network.links(self.round)
            here = [i for i in self.devices if links.active is None or links.active[i]]
            self.x |= rounds[type(algorithm)](algorithm, self.round, links, here)  # who is away keeps what it has
            self.round += 1

    def dpsgd(self, algorithm: DPSGD, t: int, links: Links, here: list[int]) -> Vectors:
        """w_i⁺ = Σ_j a_ij·w_j − η·d_i, or Σ_j a_ij·(w_j − η·d_j)."""
        neighbours = neighbours_of(links)
        w = {i: self.x[i] for i in here}
        if algorithm.order == "adapt-then-combine":
            w = {i: w[i] - self.eta(i, t) * self.gradient(i, w[i], t) for i in here}
        inbox = self.exchange(w, neighbours)
        mean = {i: self.metropolis(inbox[i], i, neighbours) for i in here}
        if algorithm.order == "adapt-then-combine":
            return mean
        at = w if algorithm.gradient_at == "local" else mean
        return {i: mean[i] - self.eta(i, t) * self.gradient(i, at[i], t) for i in here}

    def wpm(self, algorithm: WPM, t: int, links: Links, here: list[int]) -> Vectors:
        """w̄_i = (Σ_j a_ij·w_j^[p])^[1/p], then w_i⁺ = (w̄_i^[p] − rate·d_i)^[1/p]; or the other way round."""
        neighbours = neighbours_of(links)
        p = self.number(algorithm.p(t) if callable(algorithm.p) else algorithm.p)  # type: ignore[arg-type]
        x = {i: self.x[i] for i in here}

        def step(i: int, x: Vector, d: Vector) -> tuple[Vector, Vector]:
            return mirror_step(algorithm.step, x, d, self.eta(i, t), p, lambda: self.loss(i, x, t))

        if algorithm.order == "adapt-then-combine":
            stepped = {i: step(i, x[i], self.gradient(i, x[i], t)) for i in here}
            x, terms = ({i: pair[k] for i, pair in stepped.items()} for k in (0, 1))
        else:
            terms = {i: np.abs(power(x[i], p)) for i in here}
        inbox = self.exchange(x, neighbours)
        dual = {i: {j: power(received, p) for j, received in inbox[i].items()} for i in here}
        mean = {i: power(self.metropolis(dual[i], i, neighbours), 1 / p) for i in here}
        self.added = {i: self.metropolis(terms, i, neighbours) for i in here}
        if algorithm.order == "adapt-then-combine":
            return mean
        at = x if algorithm.gradient_at == "local" else mean
        stepped = {i: step(i, mean[i], self.gradient(i, at[i], t)) for i in here}
        self.added = {i: self.added[i] + stepped[i][1] for i in here}
        return {i: stepped[i][0] for i in here}

    def amplified(self, algorithm: Amplified, t: int, links: Links, here: list[int]) -> Vectors:
        """w̄_i = w₀ + gain·(Σ_j a_ij·w_j − w₀) at first, then the plain mean; w_i⁺ = w̄_i − η·d_i."""
        neighbours = neighbours_of(links)
        inbox = self.exchange({i: self.x[i] for i in here}, neighbours)
        mean = {i: self.metropolis(inbox[i], i, neighbours) for i in here}
        if t < algorithm.rounds:
            mean = {i: self.start + self.number(algorithm.gain) * (mean[i] - self.start) for i in here}
        return {i: mean[i] - self.eta(i, t) * self.gradient(i, mean[i], t) for i in here}

    def swarm(self, algorithm: SwarmSGD, t: int, links: Links, here: list[int]) -> Vectors:
        """Pairs step by themselves, then average; nobody else does anything."""
        pair = self.one_pair if algorithm.pairs == "one" else self.matching
        together: Vectors = {}
        for a, b in pair(links, t):
            w = {i: self.x[i] for i in (a, b)}
            for step in range(algorithm.local_steps):
                w = {i: w[i] - self.eta(i, t) * self.gradient(i, w[i], t, step) for i in (a, b)}
            inbox = self.exchange(w, {a: [b], b: [a]})
            together |= {i: (inbox[i][a] + inbox[i][b]) / 2 for i in (a, b)}
        return together

    def one_pair(self, links: Links, t: int) -> list[tuple[int, int]]:
        pairs = sorted(map(tuple, links.pairs.tolist()))
        return [pairs[int(draws.below(len(pairs), self.plan.seed, "weights/one-pair", t))]] if pairs else []

    def matching(self, links: Links, t: int) -> list[tuple[int, int]]:
        """Each device names the link with the lowest draw; a link that both of its ends name is a pair."""
        pairs = [(a, b) for a, b in links.pairs.tolist()]
        drawn = {pair: int(draws.bits(self.plan.seed, "weights/matching", t, *pair)) for pair in pairs}
        named = {
            i: min((pair for pair in pairs if i in pair), key=lambda pair: (drawn[pair], pair)) for pair in pairs for i in pair
        }
        return [(a, b) for a, b in pairs if named[a] == named[b] == (a, b)]

    def all_reduce(self, algorithm: AllReduce, t: int, links: Links, here: list[int]) -> Vectors:
        """w⁺ = the exact average of w_j − η·d_j over all that are here, by a ring: 2·(k − 1) messages each, of 1/k."""
        total = 0 * self.start
        for i in here:
            total = total + self.x[i] - self.eta(i, t) * self.gradient(i, self.x[i], t)
            self.messages += 2 * (len(here) - 1)
            self.numbers_sent += 2 * (len(here) - 1) * len(total) / len(here)
        return {i: total / len(here) for i in here}

    def models(self) -> Vector:
        return np.array([[float(value) for value in self.model(self.x[i])] for i in self.devices])


def mirror_step(rule: Any, w: Vector, d: Vector, eta: Any, p: Any, loss: Callable[[], Any]) -> tuple[Vector, Vector]:
    """(w^[p] − rate·d)^[1/p], with the rate as the rule has it; and how large the terms of its dual were."""
    if isinstance(rule, Plain):
        return w - eta * d, (np.abs(w) + np.abs(eta * d)) ** p
    z = power(w, p)
    match rule:
        case Matched():
            rate = eta * p * np.maximum(np.abs(w), rule.floor) ** (p - 1)
        case Power():
            rate = eta ** (1 + p / 2)
        case Constant():
            rate = eta
        case Ratio("norm"):
            rate = eta * sum(z * z) ** 0.5 / sum(d * d) ** 0.5
        case Ratio("printed"):
            rate = eta * np.abs(z) / abs(loss())
    stepped, terms = power(z - rate * d, 1 / p), np.abs(z) + np.abs(rate * d)
    if not isinstance(rule, Safe):
        return stepped, terms
    keeps = stepped * w > 0
    return np.where(keeps, stepped, w - eta * d), np.where(keeps, terms, (np.abs(w) + np.abs(eta * d)) ** p)


def neighbours_of(links: Links) -> Neighbours:
    pairs = links.pairs.tolist()
    return {i: sorted([b for a, b in pairs if a == i] + [a for a, b in pairs if b == i]) for i in range(links.devices)}
