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
from gossamer.algorithms import (
    ADOM,
    D2,
    DABMD,
    DPSGD,
    EXTRA,
    NIDS,
    AllReduce,
    Composition,
    Constant,
    FedAvg,
    GossipLearning,
    GradientTracking,
    HeavyBall,
    Matched,
    Plain,
    Power,
    Preset,
    PushSum,
    Quantised,
    QuasiGlobalMomentum,
    RandomK,
    Ratio,
    Safe,
    SwarmSGD,
    TopK,
)
from gossamer.engines import Plan
from gossamer.network import (
    BestConstant,
    Laplacian,
    Links,
    Matching,
    Metropolis,
    OnePair,
    RandomPeer,
)
from gossamer.network import PushSum as PushSumWeights

Vector = np.ndarray[Any, Any]  # float64, or mpmath's numbers
Vectors = dict[int, Vector]  # by device
Neighbours = dict[int, list[int]]  # ascending
Shares = dict[
    int, dict[int, Any]
]  # a_ij: what device i takes of each j that it hears, itself included


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
        self.workers = [
            plan.task.worker(np.array([i]), plan.seed, torch.float64, place) for i in self.devices
        ]
        self.start = self.lift(self.workers[0].start()[0])
        self.algorithm = plan.algorithm
        while isinstance(self.algorithm, Preset):
            self.algorithm = self.algorithm.expand()
        anchored = isinstance(self.algorithm, Composition) and self.algorithm.anchor
        # The state of a device: its model, less the shared start where the method is anchored there.
        self.x: Vectors = dict.fromkeys(self.devices, 0 * self.start if anchored else self.start)
        self.memory: dict[str, Vectors] = {}  # what a method keeps of each device, by name
        self.copies: dict[int, Vectors] = {
            i: dict(self.x) for i in self.devices
        }  # what i knows of each j; all start alike
        self.heard: set[tuple[int, int]] | None = (
            None  # (i, j): j sent to i in the round before (None: nothing yet)
        )
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
        if isinstance(self.algorithm, Composition) and self.algorithm.anchor:
            return x + self.start
        return x

    def eta(self, i: int, t: int) -> Any:
        """η_i(t)."""
        eta = self.algorithm.eta  # type: ignore[attr-defined]
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
        a = {
            j: min(one / (len(neighbours[i]) + 1), one / (len(neighbours[j]) + 1))
            for j in neighbours[i]
        }
        a[i] = one - sum(a[j] for j in sorted(a))
        total = 0 * self.start
        for j in sorted(a):
            total = total + a[j] * inbox[j]
        return total

    def send(self, x: Vectors, a: Shares) -> dict[int, Vectors]:
        """Each device sends its vector to all that take a share of it."""
        for i in a:
            for j in a[i]:
                if j != i:
                    self.messages += 1
                    self.numbers_sent += len(x[j])
        return {i: {j: x[j] for j in a[i]} for i in a}

    def weighted(self, inbox: Vectors, a: dict[int, Any]) -> Vector:
        """Σ_j a_ij·x_j."""
        total = 0 * next(iter(inbox.values()))
        for j in sorted(a):
            total = total + a[j] * inbox[j]
        return total

    def shares(self, rule: Any, links: Links, t: int, here: list[int]) -> Shares:
        """The weights a_ij by each rule, from what its paper says."""
        one, near = self.number(1), neighbours_of(links)
        match rule:
            case Metropolis():
                a = {
                    i: {j: min(one / (len(near[i]) + 1), one / (len(near[j]) + 1)) for j in near[i]}
                    for i in here
                }
            case Laplacian() | BestConstant():
                degree = np.diag([len(near[i]) for i in self.devices])
                matrix = degree - np.array(
                    [[j in near[i] for j in self.devices] for i in self.devices]
                )
                spectrum = [value for value in np.linalg.eigvalsh(matrix) if value > 1e-9]
                alpha = getattr(rule, "alpha", 0) or one / (1 + degree.max())
                if isinstance(rule, BestConstant) and spectrum:
                    alpha = 2 / (min(spectrum) + max(spectrum))
                a = {i: dict.fromkeys(near[i], alpha) for i in here}
            case OnePair() | Matching():
                pairs = (
                    self.one_pair(links, t)
                    if isinstance(rule, OnePair)
                    else self.matching(links, t)
                )
                a = {i: {sum(pair) - i: one / 2 for pair in pairs if i in pair} for i in here}
            case RandomPeer():
                sends_to = self.random_peers(links, t)
                senders = {i: [j for j in here if sends_to.get(j) == i] for i in here}
                a = {i: dict.fromkeys(senders[i], one / (1 + len(senders[i]))) for i in here}
            case PushSumWeights():
                out = receivers_of(links)
                return {
                    i: {j: one / (1 + len(out[j])) for j in here if j == i or i in out[j]}
                    for i in here
                }
        for i in here:
            a[i][i] = one - sum(a[i][j] for j in sorted(a[i]))
        return a

    def random_peers(self, links: Links, t: int) -> dict[int, int]:
        """The one that each device sends to."""
        out = receivers_of(links)
        return {
            i: out[i][int(draws.below(len(out[i]), self.plan.seed, "weights/random-peer", t, i))]
            for i in out
            if out[i]
        }

    def kept(self, name: str, here: list[int], start: Vector | None = None) -> Vectors:
        """What the devices keep under a name, at first `start` or zeros; a copy."""
        self.memory.setdefault(
            name, dict.fromkeys(self.devices, 0 * self.start if start is None else start)
        )
        return {i: self.memory[name][i] for i in here}

    # Rounds

    def advance(self, until: int) -> None:
        rounds: dict[type, Callable[[Any, int, Links, list[int]], Vectors]] = {
            DPSGD: self.dpsgd,
            Composition: self.composition,
            SwarmSGD: self.swarm,
            AllReduce: self.all_reduce,
            PushSum: self.push_sum,
            EXTRA: self.extra,
            D2: self.d2,
            NIDS: self.nids,
            GossipLearning: self.gossip_learning,
            FedAvg: self.fedavg,
            DABMD: self.dabmd,
            ADOM: self.adom,
        }
        algorithm = self.algorithm
        while self.round < until:
            links = self.plan.network.links(self.round)
            here = [i for i in self.devices if links.active is None or links.active[i]]
            self.x |= rounds[type(algorithm)](
                algorithm, self.round, links, here
            )  # who is away keeps what it has
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

    def composition(self, algorithm: Composition, t: int, links: Links, here: list[int]) -> Vectors:
        """w̄_i = (Σ_j a_ij·w_j^[p])^[1/p], then w_i⁺ = (w̄_i^[p] − rate·d_i)^[1/p]; or the other way round."""
        a = self.shares(algorithm.weights, links, t, here)
        exponent = algorithm.mirror_at(t).power
        assert exponent is not None
        p = self.number(exponent)
        gain = self.number(algorithm.gain(t) if callable(algorithm.gain) else algorithm.gain)  # type: ignore[arg-type]
        before = x = {i: self.x[i] for i in here}

        def mean(x: Vectors) -> Vectors:
            inbox = (
                self.send(x, a)
                if algorithm.compress is None
                else self.send_changes(algorithm, x, a, t)
            )
            dual = {i: {j: power(received, p) for j, received in inbox[i].items()} for i in here}
            means = {i: gain * power(self.weighted(dual[i], a[i]), 1 / p) for i in here}
            if algorithm.compress is None:
                return means
            return {i: x[i] + algorithm.pull * (means[i] - inbox[i][i]) for i in here}

        def step(x: Vectors, at: Vectors) -> Vectors:
            for s in range(algorithm.local_steps):
                d = self.directed(
                    algorithm.direction, {i: self.gradient(i, at[i], t, s) for i in here}, a
                )
                stepped = {
                    i: mirror_step(
                        algorithm.step,
                        x[i],
                        d[i],
                        self.eta(i, t),
                        p,
                        lambda i=i, x=x: self.loss(i, x[i], t),
                    )
                    for i in here
                }
                self.added = {i: terms for i, (_, terms) in stepped.items()}
                x = at = {i: after for i, (after, _) in stepped.items()}
            return x

        if algorithm.order == "adapt-then-combine":
            x = step(x, x)
            self.added = {i: self.weighted(self.added, a[i]) for i in here}
            after = mean(x)
        else:
            terms = {i: np.abs(power(x[i], p)) for i in here}
            middle = mean(x)
            after = step(middle, x if algorithm.gradient_at == "local" else middle)
            self.added = {i: self.added[i] + self.weighted(terms, a[i]) for i in here}
        if isinstance(algorithm.direction, QuasiGlobalMomentum):
            b, beta = self.kept("momentum", here), algorithm.direction.beta
            way = {
                i: (before[i] - after[i]) / (self.eta(i, t) * algorithm.local_steps) for i in here
            }
            self.memory["momentum"] |= {i: beta * b[i] + (1 - beta) * way[i] for i in here}
        return after

    def directed(self, direction: Any, g: Vectors, a: Shares) -> Vectors:
        """What each device steps along, from its gradient and what it keeps."""
        match direction:
            case HeavyBall():
                m = self.kept("momentum", list(g))
                self.memory["momentum"] |= {i: direction.beta * m[i] + g[i] for i in g}
                return self.kept("momentum", list(g))
            case QuasiGlobalMomentum():
                b = self.kept("momentum", list(g))
                return {i: g[i] + direction.beta * b[i] for i in g}
            case GradientTracking():
                y, old = self.kept("tracked", list(g)), self.kept("gradient", list(g))
                inbox = self.send({i: y[i] + g[i] - old[i] for i in g}, a)
                self.memory["tracked"] |= {i: self.weighted(inbox[i], a[i]) for i in g}
                self.memory["gradient"] |= g
                return self.kept("tracked", list(g))
        return g

    def send_changes(
        self, algorithm: Composition, x: Vectors, a: Shares, t: int
    ) -> dict[int, Vectors]:
        """CHOCO: each device sends the compressed change of what it is known by; all of that to whom it did not send before.

        Everybody keeps copies of the others by itself, and mixes what it has.
        """
        for i in x:
            known = self.copies[i][i]
            change, size = compressed(algorithm.compress, x[i] - known, i, t)
            self.copies[i][i] = known + change
            for j in (j for j in a if i in a[j] and j != i):
                self.messages += 1
                if self.heard is None or (j, i) in self.heard:
                    self.copies[j][i] = self.copies[j][i] + change
                    self.numbers_sent += size / 8
                else:
                    self.copies[j][i] = self.copies[i][i]
                    self.numbers_sent += len(change)
        self.heard = {(i, j) for i in a for j in a[i]}
        return {i: {j: self.copies[i][j] for j in a[i]} for i in a}

    def push_sum(self, algorithm: PushSum, t: int, links: Links, here: list[int]) -> Vectors:
        """x_i ← Σ_j p_ij·(x_j − η·d_j(z_j)), w_i ← Σ_j p_ij·w_j, z_i = x_i/w_i."""
        a = self.shares(PushSumWeights(), links, t, here)
        x, weight = self.kept("x", here, self.start), self.kept("weight", here, np.ones(1))
        pushed = {
            i: np.append(x[i] - self.eta(i, t) * self.gradient(i, self.x[i], t), weight[i])
            for i in here
        }
        inbox = self.send(pushed, a)
        summed = {i: self.weighted(inbox[i], a[i]) for i in here}
        self.memory["x"] |= {i: summed[i][:-1] for i in here}
        self.memory["weight"] |= {i: summed[i][-1:] for i in here}
        return {i: summed[i][:-1] / summed[i][-1] for i in here}

    def extra(self, algorithm: EXTRA, t: int, links: Links, here: list[int]) -> Vectors:
        """x¹ = W·x⁰ − η·d⁰, then (I + W)·x^{k+1} − (I + W)/2·x^k − η·(d^{k+1} − d^k)."""
        a, x = self.shares(Metropolis(), links, t, here), {i: self.x[i] for i in here}
        inbox, d = self.send(x, a), {i: self.gradient(i, x[i], t) for i in here}
        Wx, eta = {i: self.weighted(inbox[i], a[i]) for i in here}, algorithm.eta
        x_old, Wx_old, d_old = (self.kept(name, here) for name in ("x", "Wx", "d"))
        self.memory |= {"x": x, "Wx": Wx, "d": d}
        if t == 0:
            return {i: Wx[i] - eta * d[i] for i in here}
        return {
            i: x[i] + Wx[i] - (x_old[i] + Wx_old[i]) / 2 - eta * (d[i] - d_old[i]) for i in here
        }

    def d2(self, algorithm: D2, t: int, links: Links, here: list[int]) -> Vectors:
        """x¹ = W·(x⁰ − η·d⁰), then W·(2·x^k − x^{k−1} − η·(d^k − d^{k−1}))."""
        a, ahead = self.shares(Metropolis(), links, t, here), self.ahead(algorithm.eta, t, here)
        inbox = self.send(ahead, a)
        return {i: self.weighted(inbox[i], a[i]) for i in here}

    def nids(self, algorithm: NIDS, t: int, links: Links, here: list[int]) -> Vectors:
        """x¹ = x⁰ − η·d⁰, then (I + W)/2·(2·x^k − x^{k−1} − η·(d^k − d^{k−1}))."""
        a, ahead = self.shares(Metropolis(), links, t, here), self.ahead(algorithm.eta, t, here)
        if t == 0:
            return ahead
        inbox = self.send(ahead, a)
        return {i: (ahead[i] + self.weighted(inbox[i], a[i])) / 2 for i in here}

    def ahead(self, eta: float, t: int, here: list[int]) -> Vectors:
        """2·x^k − x^{k−1} − η·(d^k − d^{k−1}), at first x⁰ − η·d⁰."""
        x, d = {i: self.x[i] for i in here}, {i: self.gradient(i, self.x[i], t) for i in here}
        x_old, d_old = self.kept("x", here, self.start), self.kept("d", here)
        self.memory |= {"x": x, "d": d}
        return {i: 2 * x[i] - x_old[i] - eta * (d[i] - d_old[i]) for i in here}

    def gossip_learning(
        self, algorithm: GossipLearning, t: int, links: Links, here: list[int]
    ) -> Vectors:
        """Each sends (w, age) to one other; a receiver merges by age, steps, and grows older, model after model."""
        sent = {i: (self.x[i], age) for i, age in self.kept("age", here, np.zeros(1)).items()}
        now, received = dict(sent), dict.fromkeys(here, 0)
        for i, j in sorted(self.random_peers(links, t).items()):
            (w_r, t_r), (w, age) = sent[i], now[j]
            self.messages += 1
            self.numbers_sent += len(w_r) + 1
            share = t_r / (age + t_r) if age + t_r > 0 else 0
            w = (1 - share) * w + share * w_r
            w = w - self.eta(j, t) * self.gradient(j, w, t, received[j])
            now[j], received[j] = (w, np.maximum(age, t_r) + 1), received[j] + 1
        self.memory["age"] |= {i: age for i, (_, age) in now.items()}
        return {i: w for i, (w, _) in now.items()}

    def fedavg(self, algorithm: FedAvg, t: int, links: Links, here: list[int]) -> Vectors:
        """The server sends its model to some, they step by themselves, it keeps their mean; everybody is measured by it."""
        drawn = sorted(here, key=lambda i: int(draws.bits(self.plan.seed, "weights/clients", t, i)))
        clients = sorted(drawn[: max(1, round(algorithm.fraction * len(here)))])
        server, total = self.memory.get("server", {0: self.start})[0], 0 * self.start
        for i in clients:
            w = server
            for step in range(algorithm.local_steps):
                w = w - self.eta(i, t) * self.gradient(i, w, t, step)
            total = total + w
            self.messages += 2
            self.numbers_sent += 2 * len(w)
        self.memory["server"] = {0: total / len(clients) if clients else server}
        return dict.fromkeys(here, self.memory["server"][0])

    def dabmd(self, algorithm: DABMD, t: int, links: Links, here: list[int]) -> Vectors:
        """b_i mini-batches, a mirror step along their sum over the mean of b, then the mean of the models."""
        a, y = self.shares(Metropolis(), links, t, here), {}
        for i in here:
            b = 1 + int(draws.below(algorithm.max_batches, algorithm.seed, "dabmd/batches", t, i))
            g = sum(self.gradient(i, self.x[i], t, s) for s in range(b)) / (
                (1 + algorithm.max_batches) / 2
            )
            y[i], _ = mirror_step(
                algorithm.step,
                self.x[i],
                g,
                self.eta(i, t),
                algorithm.p,
                lambda i=i: self.loss(i, self.x[i], t),
            )
        inbox = self.send(y, a)
        return {i: self.weighted(inbox[i], a[i]) for i in here}

    def adom(self, algorithm: ADOM, t: int, links: Links, here: list[int]) -> Vectors:
        """As printed in its paper, with W = I − A, whose largest eigenvalue is at most 2."""
        a, L, mu, chi = (
            self.shares(Metropolis(), links, t, here),
            algorithm.smoothness,
            algorithm.strong_convexity,
            algorithm.chi,
        )
        alpha, eta, theta, sigma = 1 / (2 * L), 2 * (mu * L) ** 0.5 / (7 * chi), mu / 2, 1 / 2
        tau = (mu / L) ** 0.5 / (7 * chi)
        z, z_f, m = (self.kept(name, here) for name in ("z", "z_f", "m"))
        z_g = {i: tau * z[i] + (1 - tau) * z_f[i] for i in here}
        x = {i: self.conjugate(i, z_g[i]) for i in here}
        inbox = self.send({i: np.concatenate([m[i] - eta * x[i], x[i]]) for i in here}, a)
        W = {i: inbox[i][i] - self.weighted(inbox[i], a[i]) for i in here}
        delta = {i: sigma * W[i][: len(x[i])] for i in here}
        self.memory["m"] |= {i: m[i] - eta * x[i] - delta[i] for i in here}
        self.memory["z"] |= {i: z[i] + eta * alpha * (z_g[i] - z[i]) + delta[i] for i in here}
        self.memory["z_f"] |= {i: z_g[i] - theta * W[i][len(x[i]) :] for i in here}
        return x

    def conjugate(self, i: int, z: Vector) -> Vector:
        """Where device i's gradient is z: it is affine, H·x + c, so that H and c can be asked for."""
        c = self.gradient(i, 0 * z, 0)
        H = np.stack([self.gradient(i, e, 0) - c for e in np.eye(len(z))], 1)
        return np.linalg.solve(H, z - c)

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
        return (
            [pairs[int(draws.below(len(pairs), self.plan.seed, "weights/one-pair", t))]]
            if pairs
            else []
        )

    def matching(self, links: Links, t: int) -> list[tuple[int, int]]:
        """Each device names the link with the lowest draw; a link that both of its ends name is a pair."""
        pairs = [(a, b) for a, b in links.pairs.tolist()]
        drawn = {
            pair: int(draws.bits(self.plan.seed, "weights/matching", t, *pair)) for pair in pairs
        }
        named = {
            i: min((pair for pair in pairs if i in pair), key=lambda pair: (drawn[pair], pair))
            for pair in pairs
            for i in pair
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


def mirror_step(
    rule: Any, w: Vector, d: Vector, eta: Any, p: Any, loss: Callable[[], Any]
) -> tuple[Vector, Vector]:
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
    return np.where(keeps, stepped, w - eta * d), np.where(
        keeps, terms, (np.abs(w) + np.abs(eta * d)) ** p
    )


def compressed(rule: Any, x: Vector, i: int, t: int) -> tuple[Vector, int]:
    """What is sent of x by device i in round t, and in how many bytes, of numbers that take eight."""
    match rule:
        case TopK():
            k = max(1, round(rule.share * len(x)))
            kept = sorted(range(len(x)), key=lambda place: -abs(x[place]))[:k]
            return np.array([x[c] if c in kept else 0.0 for c in range(len(x))]), k * (8 + 4)
        case RandomK():
            k = max(1, round(rule.share * len(x)))
            drawn = [
                int(draws.bits(rule.seed, "compression/random", t, i, c)) for c in range(len(x))
            ]
            kept = sorted(range(len(x)), key=lambda place: -drawn[place])[:k]
            return np.array([x[c] if c in kept else 0.0 for c in range(len(x))]), k * 8
        case Quantised():
            levels, size = 2 ** (rule.bits - 1) - 1, max(abs(x))
            luck = [
                float(draws.uniform(rule.seed, "compression/quantised", t, i, c))
                for c in range(len(x))
            ]
            tau = min(len(x) / levels**2, len(x) ** 0.5 / levels)
            level = [
                np.floor(abs(v) / size * levels + u) if size else 0.0
                for v, u in zip(x, luck, strict=True)
            ]
            return np.sign(x) * np.array(level) * size / levels / (1 + tau), -(
                -len(x) * rule.bits // 8
            ) + 8
    raise NotImplementedError(rule)


def receivers_of(links: Links) -> Neighbours:
    """Whom each device can send to."""
    if not links.directed:
        return neighbours_of(links)
    return {i: sorted(b for a, b in links.pairs.tolist() if a == i) for i in range(links.devices)}


def neighbours_of(links: Links) -> Neighbours:
    pairs = links.pairs.tolist()
    return {
        i: sorted([b for a, b in pairs if a == i] + [a for a, b in pairs if b == i])
        for i in range(links.devices)
    }
