"""One round of every algorithm, as its paper writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch

from gossamer import draws
from gossamer.algorithms import (
    ADOM,
    ADPSGD,
    D2,
    DABMD,
    DPSGD,
    EXTRA,
    KGT,
    NIDS,
    SWIFT,
    AllReduce,
    Composition,
    DiLoCo,
    DivShare,
    FadingGain,
    FadingGainTracking,
    FedAvg,
    GossipLearning,
    GradientTracking,
    LocalSchedule,
    NoLoCo,
    PushSum,
    QuasiGlobalMoments,
    QuasiGlobalMomentum,
    SwarmSGD,
)
from gossamer.engines import Plan
from gossamer.network import PushSum as PushSumWeights
from support.reference.devices import Devices, Inbox, Vectors, each, weighted_sum
from support.reference.steps import ITEM_BYTES, Vector, compress, mirror_step, power
from support.reference.weights import Shares, matching, one_pair, random_peers


class Reference(Devices):
    """Runs a plan, one device and one message at a time."""

    def __init__(self, plan: Plan, exact: bool = False) -> None:
        super().__init__(plan, exact)
        # copies[i][j]: what device i knows of j, for compressed messages; all start alike.
        self.copies: dict[int, Vectors] = each(self.devices, lambda i: dict(self.x))
        # (i, j): j sent to i in the previous round; None before the first round.
        self.received: set[tuple[int, int]] | None = None
        # Magnitude of the terms that the last round of a composition summed up in the dual.
        self.dual_terms: Vectors = {}

    def advance(self, until: int) -> None:
        """Run rounds up to `until`. Devices that are away keep their state."""
        rounds: dict[type, Callable[[Any], Vectors]] = {
            DPSGD: self.dpsgd,
            Composition: self.composition,
            SwarmSGD: self.swarm_sgd,
            ADPSGD: self.ad_psgd,
            DivShare: self.div_share,
            SWIFT: self.swift,
            AllReduce: self.all_reduce,
            PushSum: self.push_sum,
            EXTRA: self.extra,
            D2: self.d2,
            NIDS: self.nids,
            GossipLearning: self.gossip_learning,
            FedAvg: self.fedavg,
            DABMD: self.dabmd,
            ADOM: self.adom,
            DiLoCo: self.diloco,
            NoLoCo: self.noloco,
            KGT: self.k_gt,
            FadingGain: self.fading_gain,
            FadingGainTracking: self.fading_gain_tracking,
        }
        run_round = rounds[type(self.algorithm)]
        while self.round < until:
            self.links = self.plan.network.links(self.round)
            active = self.links.active
            self.active = list(self.devices)
            if active is not None:
                self.active = np.flatnonzero(active).tolist()
            self.x |= run_round(self.algorithm)
            self.round += 1

    def states(self) -> Vectors:
        """Return the states of the active devices."""
        return each(self.active, lambda i: self.x[i])

    # Gossip

    def dpsgd(self, algorithm: DPSGD) -> Vectors:
        """w_i⁺ = Σ_j a_ij·w_j − η·d_i, or Σ_j a_ij·(w_j − η·d_j)."""
        a = self.weights()
        w = self.states()
        if algorithm.order == "adapt-then-combine":
            stepped = each(w, lambda i: w[i] - self.eta(i) * self.gradient(i, w[i]))
            return self.mix(stepped, a)
        mean = self.mix(w, a)
        point = w if algorithm.gradient_at == "local" else mean
        return each(w, lambda i: mean[i] - self.eta(i) * self.gradient(i, point[i]))

    def swarm_sgd(self, algorithm: SwarmSGD) -> Vectors:
        """Pairs take local steps and average. All other devices do nothing."""
        pairs = one_pair if algorithm.pairs == "one" else matching
        averaged: Vectors = {}
        for a, b in pairs(self.links, self.round, self.plan.seed):
            w = each((a, b), lambda i: self.x[i])
            for step in range(algorithm.local_steps):
                w = {i: w[i] - self.eta(i) * self.gradient(i, w[i], step) for i in w}
            self.count(len(w[a]) + len(w[b]), messages=2)
            mean = (w[a] + w[b]) / 2
            averaged |= {a: mean, b: mean}
        return averaged

    def ad_psgd(self, algorithm: ADPSGD) -> Vectors:
        """Pairs average, and all devices step along the gradient at their model before."""
        mean = self.states()
        for a, b in matching(self.links, self.round, self.plan.seed):
            self.count(len(self.x[a]) + len(self.x[b]), messages=2)
            average = (self.x[a] + self.x[b]) / 2
            mean |= {a: average, b: average}
        return each(mean, lambda i: mean[i] - self.eta(i) * self.gradient(i, self.x[i]))

    def div_share(self, algorithm: DivShare) -> Vectors:
        """Each device steps, sends one fragment to all neighbours, and averages by parameter."""
        w = self.states()
        stepped = each(w, lambda i: w[i] - self.eta(i) * self.gradient(i, w[i]))
        length = -(-len(self.start) // algorithm.fragments)
        total = each(stepped, lambda i: stepped[i].copy())
        number = each(stepped, lambda i: np.ones(len(self.start)))
        for a, b in self.links.pairs.tolist():
            for sender, receiver in ((a, b), (b, a)):
                first = (sender + self.round) % algorithm.fragments * length
                part = slice(first, first + length)
                total[receiver][part] += stepped[sender][part]
                number[receiver][part] += 1
                self.count(length + 1)
        return each(stepped, lambda i: total[i] / number[i])

    def swift(self, algorithm: SWIFT) -> Vectors:
        """w_i⁺ = Σ_j a_ij·w_j − η·d_i, after all local steps but one."""
        a = self.weights()
        w = self.states()
        for step in range(algorithm.local_steps - 1):
            w = {i: w[i] - self.eta(i) * self.gradient(i, w[i], step) for i in w}
        mean = self.mix(w, a)
        last = algorithm.local_steps - 1
        return each(w, lambda i: mean[i] - self.eta(i) * self.gradient(i, w[i], last))

    def all_reduce(self, algorithm: AllReduce) -> Vectors:
        """w⁺ = the average of w_j − η·d_j over all k active devices.

        In a ring all-reduce each device sends 2·(k − 1) messages of 1/k of the vector.
        """
        k = len(self.active)
        if k == 0:
            return {}
        total = 0 * self.start
        for i in self.active:
            total = total + self.x[i] - self.eta(i) * self.gradient(i, self.x[i])
            self.count(2 * (k - 1) * len(total) / k, messages=2 * (k - 1))
        return dict.fromkeys(self.active, total / k)

    def gossip_learning(self, algorithm: GossipLearning) -> Vectors:
        """Each device sends (w, age) to one other.

        A receiver merges the models by age, takes a step and grows older, message by message.
        """
        age = self.kept("age", np.zeros(1))
        sent = each(self.active, lambda i: (self.x[i], age[i]))
        now = dict(sent)
        received = dict.fromkeys(self.active, 0)
        peers = random_peers(self.links, self.round, self.plan.seed)
        for i, j in sorted(peers.items()):
            w_i, age_i = sent[i]
            w_j, age_j = now[j]
            self.count(len(w_i) + 1)
            share = age_i / (age_j + age_i) if age_j + age_i > 0 else 0
            merged = (1 - share) * w_j + share * w_i
            stepped = merged - self.eta(j) * self.gradient(j, merged, received[j])
            now[j] = (stepped, np.maximum(age_j, age_i) + 1)
            received[j] += 1
        self.memory["age"] |= {i: age for i, (_, age) in now.items()}
        return {i: w for i, (w, _) in now.items()}

    def fedavg(self, algorithm: FedAvg) -> Vectors:
        """The server sends its model to some devices and keeps the mean of what they return.

        All devices are measured by the server's model.
        """
        if "server" not in self.memory:
            self.memory["server"] = {0: self.start}
        server = self.memory["server"][0]
        drawn = {}
        for i in self.active:
            drawn[i] = int(draws.bits(self.plan.seed, "weights/clients", self.round, i))
        count = max(1, round(algorithm.fraction * len(self.active)))
        clients = sorted(sorted(self.active, key=lambda i: drawn[i])[:count])
        total = 0 * self.start
        for i in clients:
            w = server
            for step in range(algorithm.local_steps):
                w = w - self.eta(i) * self.gradient(i, w, step)
            total = total + w
            self.count(2 * len(w), messages=2)
        if clients:
            server = total / len(clients)
        self.memory["server"] = {0: server}
        return dict.fromkeys(self.active, server)

    def push_sum(self, algorithm: PushSum) -> Vectors:
        """x_i ← Σ_j p_ij·(x_j − η·d_j(z_j)), w_i ← Σ_j p_ij·w_j, z_i = x_i/w_i."""
        x = self.kept("x", self.start)
        weight = self.kept("weight", np.ones(1))
        pushed = {}
        for i in self.active:
            stepped = x[i] - self.eta(i) * self.gradient(i, self.x[i])
            pushed[i] = np.append(stepped, weight[i])
        summed = self.mix(pushed, self.weights(PushSumWeights()))
        self.memory["x"] |= each(self.active, lambda i: summed[i][:-1])
        self.memory["weight"] |= each(self.active, lambda i: summed[i][-1:])
        return each(self.active, lambda i: summed[i][:-1] / summed[i][-1])

    # Exact methods

    def extra(self, algorithm: EXTRA) -> Vectors:
        """x¹ = W·x⁰ − η·d⁰, then (I + W)·x^{k+1} − (I + W)/2·x^k − η·(d^{k+1} − d^k)."""
        eta = algorithm.eta
        x = self.states()
        d = each(x, lambda i: self.gradient(i, x[i]))
        Wx = self.mix(x, self.weights())
        x_old = self.kept("x")
        Wx_old = self.kept("Wx")
        d_old = self.kept("d")
        self.memory |= {"x": x, "Wx": Wx, "d": d}
        if self.round == 0:
            return each(x, lambda i: Wx[i] - eta * d[i])
        return each(
            x, lambda i: x[i] + Wx[i] - (x_old[i] + Wx_old[i]) / 2 - eta * (d[i] - d_old[i])
        )

    def d2(self, algorithm: D2) -> Vectors:
        """x¹ = W·(x⁰ − η·d⁰), then W·(2·x^k − x^{k−1} − η·(d^k − d^{k−1}))."""
        return self.mix(self._extrapolated(algorithm.eta), self.weights())

    def nids(self, algorithm: NIDS) -> Vectors:
        """x¹ = x⁰ − η·d⁰, then (I + W)/2·(2·x^k − x^{k−1} − η·(d^k − d^{k−1}))."""
        y = self._extrapolated(algorithm.eta)
        if self.round == 0:
            return y
        Wy = self.mix(y, self.weights())
        return each(y, lambda i: (y[i] + Wy[i]) / 2)

    def _extrapolated(self, eta: float) -> Vectors:
        """Return 2·x^k − x^{k−1} − η·(d^k − d^{k−1}), at first x⁰ − η·d⁰."""
        x = self.states()
        d = each(x, lambda i: self.gradient(i, x[i]))
        x_old = self.kept("x", self.start)
        d_old = self.kept("d")
        self.memory |= {"x": x, "d": d}
        return each(x, lambda i: 2 * x[i] - x_old[i] - eta * (d[i] - d_old[i]))

    def adom(self, algorithm: ADOM) -> Vectors:
        """As printed in the paper, with W = I − A, whose largest eigenvalue is at most 2."""
        L = algorithm.smoothness
        mu = algorithm.strong_convexity
        chi = algorithm.chi
        alpha = 1 / (2 * L)
        eta = 2 * (mu * L) ** 0.5 / (7 * chi)
        theta = mu / 2
        sigma = 1 / 2
        tau = (mu / L) ** 0.5 / (7 * chi)

        a = self.weights()
        z = self.kept("z")
        z_f = self.kept("z_f")
        m = self.kept("m")
        z_g = each(self.active, lambda i: tau * z[i] + (1 - tau) * z_f[i])
        x = each(self.active, lambda i: self.conjugate(i, z_g[i]))
        n = len(self.start)
        both = each(self.active, lambda i: np.concatenate([m[i] - eta * x[i], x[i]]))
        mean = self.mix(both, a)
        W = each(self.active, lambda i: both[i] - mean[i])
        delta = each(self.active, lambda i: sigma * W[i][:n])
        self.memory["m"] |= each(self.active, lambda i: m[i] - eta * x[i] - delta[i])
        for i in self.active:
            self.memory["z"][i] = z[i] + eta * alpha * (z_g[i] - z[i]) + delta[i]
            self.memory["z_f"][i] = z_g[i] - theta * W[i][n:]
        return x

    def dabmd(self, algorithm: DABMD) -> Vectors:
        """A mirror step along the sum of b_i gradients over the mean of b, then a mean."""
        mean_batches = (1 + algorithm.max_batches) / 2
        y = {}
        for i in self.active:
            drawn = draws.below(
                algorithm.max_batches, algorithm.seed, "dabmd/batches", self.round, i
            )
            batches = 1 + int(drawn)
            g = sum(self.gradient(i, self.x[i], step) for step in range(batches)) / mean_batches
            y[i] = self._step(algorithm.step, i, self.x[i], g, algorithm.p)[0]
        return self.mix(y, self.weights())

    def _step(self, rule: Any, i: int, x: Vector, d: Vector, p: Any) -> tuple[Vector, Vector]:
        """Return device i's step from x along −d, and the magnitude of its terms in the dual."""
        return mirror_step(rule, x, d, self.eta(i), p, lambda: self.loss(i, x))

    # Many local steps between two exchanges

    def _local_path(self, algorithm: Any, i: int, w: Vector) -> Vector:
        """Return device i's model after its local steps from w."""
        for step in range(algorithm.local_steps):
            w = w - self.eta(i) * self.gradient(i, w, step)
        return w

    def diloco(self, algorithm: DiLoCo) -> Vectors:
        """SGD with Nesterov momentum along the mean of (shared model − local model).

        In a ring all-reduce each device sends 2·(k − 1) messages of 1/k of the vector.
        """
        if "shared" not in self.memory:
            self.memory["shared"] = {0: self.start}
            self.memory["outer"] = {0: 0 * self.start}
        shared = self.memory["shared"][0]
        k = len(self.active)
        if k == 0:
            return {}
        outer_gradient = 0 * self.start
        for i in self.active:
            outer_gradient = outer_gradient + (shared - self._local_path(algorithm, i, shared)) / k
            self.count(2 * (k - 1) * len(shared) / k, messages=2 * (k - 1))
        b = algorithm.outer_momentum * self.memory["outer"][0] + outer_gradient
        nesterov = outer_gradient + algorithm.outer_momentum * b
        shared = shared - algorithm.outer_eta * nesterov
        self.memory["shared"][0] = shared
        self.memory["outer"][0] = b
        return dict.fromkeys(self.active, shared)

    def noloco(self, algorithm: NoLoCo) -> Vectors:
        """Equation 2 of the paper; a device without a partner is a group of its own."""
        momentum = self.kept("outer")
        phi = self.states()
        outer_gradients = {}
        for i in phi:
            outer_gradients[i] = phi[i] - self._local_path(algorithm, i, phi[i])
        groups = [[i] for i in phi]
        for i, j in matching(self.links, self.round, self.plan.seed):
            groups.remove([i])
            groups.remove([j])
            groups.append([i, j])
            self.count(2 * (len(phi[i]) + len(outer_gradients[i])), messages=2)
        after = {}
        for group in groups:
            mean_gradient = sum(outer_gradients[i] for i in group) / len(group)
            mean_phi = sum(phi[i] for i in group) / len(group)
            for i in group:
                kept = algorithm.outer_momentum * momentum[i]
                apart = phi[i] - mean_phi
                delta = kept - algorithm.outer_eta * mean_gradient - algorithm.pull * apart
                self.memory["outer"][i] = delta
                after[i] = phi[i] + delta
        return after

    def k_gt(self, algorithm: KGT) -> Vectors:
        """Algorithm 1 of the paper, with corrections that start at 0."""
        a = self.weights()
        c = self.kept("correction")
        x = self.states()
        path = each(x, lambda i: algorithm.local_steps * self.eta(i))
        z = {}
        for i in x:
            x_k = x[i]
            for k in range(algorithm.local_steps):
                x_k = x_k - self.eta(i) * (self.gradient(i, x_k, k) + c[i])
            z[i] = (x[i] - x_k) / path[i]
        z_mean = self.mix(z, a)
        moved = each(x, lambda i: x[i] - algorithm.outer_eta * path[i] * z[i])
        messages = self.messages
        x_mean = self.mix(moved, a)
        self.messages = messages  # both vectors are in one message
        for i in x:
            self.memory["correction"][i] = c[i] - z[i] + z_mean[i]
        return x_mean

    def fading_gain(self, algorithm: FadingGain) -> Vectors:
        """w_i⁺ = x_i' − η·d_i(x_i'), where x' is ahead of the mean of all x' so far."""
        x = self._ahead(algorithm.lead)
        return each(x, lambda i: x[i] - self.eta(i) * self.gradient(i, x[i]))

    def fading_gain_tracking(self, algorithm: FadingGainTracking) -> Vectors:
        """w_i⁺ = x_i' − η·Σ_j a_ij·y_j, where y is what gradient tracking tracks."""
        w = self.states()
        x = self._ahead(algorithm.lead)
        g = each(w, lambda i: self.gradient(i, w[i]))
        y = self._direction(GradientTracking(), g, self.weights())
        return each(x, lambda i: x[i] - self.eta(i) * y[i])

    def _ahead(self, lead: float) -> Vectors:
        """Return x + n/(t + 1)·(x − v) for the mixed models x, and let it enter the mean v."""
        t = self.round
        x = self.mix(self.states(), self.weights())
        v = self.kept("mean", self.start)
        n = self.number(lead)
        ahead = {}
        for i in x:
            ahead[i] = x[i] + n / (t + 1) * (x[i] - v[i])
            self.memory["mean"][i] = ((t + 1) * v[i] + n * ahead[i]) / (t + 1 + n)
        return ahead

    # The composition, of which WPM and many others are presets

    def composition(self, algorithm: Composition) -> Vectors:
        """w̄_i = (Σ_j a_ij·w_j^[p])^[1/p], then w_i⁺ = (w̄_i^[p] − rate·d_i)^[1/p]; or reversed."""
        a = self.weights(algorithm.weights)
        before = self.states()
        p = self._exponents(algorithm, a, before)
        if algorithm.order == "adapt-then-combine":
            stepped = self._local_steps(algorithm, a, p, before, before)
            self.dual_terms = each(a, lambda i: weighted_sum(self.dual_terms, a[i]))
            after = self._power_mean(algorithm, a, p, stepped)
        else:
            terms = each(a, lambda i: np.abs(power(before[i], p[i])))
            middle = self._power_mean(algorithm, a, p, before)
            point = before if algorithm.gradient_at == "local" else middle
            after = self._local_steps(algorithm, a, p, middle, point)
            for i in a:
                self.dual_terms[i] = self.dual_terms[i] + weighted_sum(terms, a[i])
        if isinstance(algorithm.direction, QuasiGlobalMomentum):
            beta = algorithm.direction.beta
            b = self.kept("momentum")
            for i in a:
                moved = (before[i] - after[i]) / (self.eta(i) * algorithm.local_steps)
                self.memory["momentum"][i] = beta * b[i] + (1 - beta) * moved
        if isinstance(algorithm.direction, QuasiGlobalMoments):
            self._remember_path(algorithm.direction, before, after)
        return after

    def _exponents(self, algorithm: Composition, a: Shares, x: Vectors) -> dict[int, Any]:
        """Return the exponent of every device in this round."""
        schedule = getattr(algorithm.mirror, "p", None)
        if isinstance(schedule, LocalSchedule):
            return each(a, lambda i: self.number(round(self._seen(schedule, a, x, i))))
        exponent = algorithm.mirror_at(self.round).power
        assert exponent is not None
        return each(a, lambda i: self.number(exponent))

    def _seen(self, schedule: LocalSchedule, a: Shares, x: Vectors, i: int) -> float:
        """Return the value of a schedule for device i, from its distance to its neighbours."""
        apart = 0.0
        size = 0.0
        for j, share in a[i].items():
            if j != i:
                apart += abs(share) * sum((x[i] - x[j]) ** 2)
                size += abs(share) * (sum(x[i] ** 2) + sum(x[j] ** 2))
        divergence = min(float(apart / size), 1.0) if size else 0.0
        return float(schedule(self.round, torch.tensor(divergence, dtype=torch.float64)))

    def _remember_path(
        self, direction: QuasiGlobalMoments, before: Vectors, after: Vectors
    ) -> None:
        """Let the normalised path of the round enter both moments."""
        first = self.kept("first")
        second = self.kept("second")
        count = self.kept("count", np.zeros(1))
        for i in before:
            path = before[i] - after[i]
            u = path / (sum(path**2) ** 0.5 + 1e-8)
            self.memory["first"][i] = direction.beta1 * first[i] + (1 - direction.beta1) * u
            self.memory["second"][i] = direction.beta2 * second[i] + (1 - direction.beta2) * u**2
            self.memory["count"][i] = count[i] + 1

    def _gain(self, algorithm: Composition, a: Shares, x: Vectors, i: int) -> Any:
        gain: Any = algorithm.gain
        if isinstance(gain, LocalSchedule):
            gain = self._seen(gain, a, x, i)
        elif callable(gain):
            gain = gain(self.round)
        return self.number(gain)

    def _power_mean(
        self, algorithm: Composition, a: Shares, p: dict[int, Any], x: Vectors
    ) -> Vectors:
        """Return gain·(Σ_j a_ij·x_j^[p])^[1/p]; with compression, x moved towards it."""
        inbox = self._send_changes(algorithm, x, a) if algorithm.compress else self.send(x, a)
        means = {}
        for i in a:
            dual = {j: power(received, p[i]) for j, received in inbox[i].items()}
            mean = power(weighted_sum(dual, a[i]), 1 / p[i])
            means[i] = self._gain(algorithm, a, x, i) * mean
        if not algorithm.compress:
            return means
        return each(a, lambda i: x[i] + algorithm.pull * (means[i] - inbox[i][i]))

    def _local_steps(
        self, algorithm: Composition, a: Shares, p: dict[int, Any], x: Vectors, point: Vectors
    ) -> Vectors:
        """Take the local steps from x, with the first gradient at `point`."""
        for step in range(algorithm.local_steps):
            g = {i: self.gradient(i, point[i], step) for i in a}
            d = self._direction(algorithm.direction, g, a)
            stepped = {}
            for i in a:
                stepped[i] = self._step(algorithm.step, i, x[i], d[i], p[i])
            x = {i: after for i, (after, _) in stepped.items()}
            self.dual_terms = {i: terms for i, (_, terms) in stepped.items()}
            point = x
        return x

    def _direction(self, direction: Any, g: Vectors, a: Shares) -> Vectors:
        """Return what each device steps along, from its gradient and what it keeps."""
        match direction:
            case QuasiGlobalMomentum():
                b = self.kept("momentum")
                return each(g, lambda i: g[i] + direction.beta * b[i])
            case QuasiGlobalMoments():
                return each(g, lambda i: self._quasi_global_adam(direction, i, g[i]))
            case GradientTracking():
                y = self.kept("tracked")
                g_old = self.kept("gradient")
                self.memory["tracked"] |= self.mix(each(g, lambda i: y[i] + g[i] - g_old[i]), a)
                self.memory["gradient"] |= g
                return self.kept("tracked")
        return g

    def _quasi_global_adam(self, direction: QuasiGlobalMoments, i: int, g: Vector) -> Vector:
        """Return Adam's direction with the moments of the shared path in place of Adam's own."""
        k = self.kept("count", np.zeros(1))[i] + 1
        m = direction.beta1 * self.kept("first")[i] + direction.gradient_weight * g
        v = direction.beta2 * self.kept("second")[i] + (1 - direction.beta2) * g**2
        m_corrected = m / (1 - direction.beta1**k)
        v_corrected = v / (1 - direction.beta2**k)
        return cast(Vector, m_corrected / (v_corrected**0.5 + direction.eps))

    def _send_changes(self, algorithm: Composition, x: Vectors, a: Shares) -> Inbox:
        """Send compressed changes (CHOCO-SGD).

        Each device sends the compressed difference between its vector and the copy that its
        neighbours have; a neighbour that it did not send to in the previous round gets the whole
        copy. Every device keeps its own copies of the others, and mixes these.
        """
        for i in x:
            known = self.copies[i][i]
            change, size = compress(algorithm.compress, x[i] - known, i, self.round)
            self.copies[i][i] = known + change
            for j in a:
                if j == i or i not in a[j]:
                    continue
                if self.received is None or (j, i) in self.received:
                    self.copies[j][i] = self.copies[j][i] + change
                    self.count(size / ITEM_BYTES)
                else:
                    self.copies[j][i] = self.copies[i][i]
                    self.count(len(change))
        self.received = {(i, j) for i in a for j in a[i]}
        found = {}
        for i in a:
            found[i] = {j: self.copies[i][j] for j in a[i]}
        return found
