"""Tests of guards and broken devices.

Every rule is compared with a plain loop over devices and coordinates. Further tests measure the
damage of one broken device with and without a guard.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reference import power

import gossamer as gs
from gossamer.algorithms import Algorithm, Clip, GainControl, Mix, MixRule, Neighbours, State
from gossamer.algorithms.guards import _trimmed
from gossamer.engines.mixing import StackedMix, Traffic
from gossamer.errors import Diverged, InputError
from gossamer.network.weights import PushSum, WeightRule
from gossamer.testing import check

# -- comparison with plain loops -------------------------------------------------------------------

Received = dict[int, Any]  # vectors by sender, including the device's own


def accepted(
    rule: MixRule, i: int, inbox: Received, a: dict[int, float]
) -> list[list[tuple[float, float]]]:
    """Return the weights and values that device i mixes, per coordinate."""
    own = inbox[i]
    senders = sorted(inbox)
    weights = {j: [a[j]] * len(own) for j in senders}
    values = {j: np.array(inbox[j], dtype=float) for j in senders}
    match rule:
        case gs.Clip():
            for j in senders:
                far = math.sqrt(sum((x - y) ** 2 for x, y in zip(inbox[j], own, strict=True)))
                if not math.isfinite(far):
                    values[j] = own
                elif far > rule.radius:
                    values[j] = own + (inbox[j] - own) * (rule.radius / far)
        case gs.Checked():
            mine = np.linalg.norm(own)
            for j in senders:
                if (
                    not np.isfinite(inbox[j]).all()
                    or np.linalg.norm(inbox[j]) > rule.largest * mine
                ):
                    values[j] = own
        case gs.TrimmedMean() | gs.Median():
            k = len(senders)
            cut = int(rule.share * k + 1e-9) if isinstance(rule, gs.TrimmedMean) else (k - 1) // 2
            for c in range(len(own)):
                ordered = sorted(
                    senders, key=lambda j, c=c: (math.isnan(values[j][c]), values[j][c])
                )
                for place, j in enumerate(ordered):
                    weights[j][c] = 1 / (k - 2 * cut) if cut <= place < k - cut else 0.0
    found = []
    for c in range(len(own)):
        found.append([(weights[j][c], float(values[j][c])) for j in senders if weights[j][c]])
    return found


rules = st.one_of(
    st.builds(gs.Clip, st.floats(0.1, 5)),
    st.builds(gs.Checked, st.floats(0.5, 3)),
    st.builds(gs.TrimmedMean, st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.34, 0.49])),
    st.just(gs.Median()),
)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[StackedMix, torch.Tensor]:
    """Draw the weighted links of a round and one vector per device."""
    m = draw(st.integers(1, 7))
    n = draw(st.integers(1, 4))
    pairs = []
    for i in range(m):
        for j in range(i + 1, m):
            pairs.append((i, j))
    links = gs.Links.of(m, draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else [])
    weights = draw(st.sampled_from([gs.Metropolis(), gs.RandomPeer(), gs.Laplacian()]))(links, 0, 1)
    number = st.integers(-300, 300).map(lambda x: x / 100)
    x = draw(st.lists(st.lists(number, min_size=n, max_size=n), min_size=m, max_size=m))
    return StackedMix(weights, torch.arange(m), 8, Traffic()), torch.tensor(x, dtype=torch.float64)


class Only(gs.Algorithm):
    """A minimal method to wrap in a rule; its round only mixes."""

    def round(self, state: State, grad: Any, mix: Mix, t: int) -> State:
        return {"w": mix(state["w"])}

    def halfway(self, state: State, grad: Any, mix: Mix, t: int) -> torch.Tensor:
        return mix(state["w"])


@settings(deadline=None, max_examples=300)
@given(
    rounds(),
    rules,
    st.sampled_from([1.0, 2.5, 3.0, 15.0]),
    st.sampled_from(["large", "opposite", "nan", None]),
)
def test_rules_equal_a_loop_over_devices(
    given: tuple[StackedMix, torch.Tensor], rule: MixRule, p: float, sends: Any
) -> None:
    """Every rule matches a loop over devices and coordinates, with and without a broken device."""
    mix, x = given
    devices = () if sends is None else (0,)
    broken = gs.Broken(Only(), devices, sends or "large", 4.0)
    found = (
        gs.Guarded(Only(), rule)
        .through(broken.through(mix, 0), 0)
        .mean(x, gs.mirror.power_map(p))
        .numpy()
    )
    a = mix.weights.dense()
    for i in range(len(x)):
        inbox = {}
        for j in range(len(x)):
            if j == i or a[i, j]:
                inbox[j] = x[j].numpy()
        if devices and i != 0 and 0 in inbox:
            inbox[0] = {"large": 4.0, "opposite": -4.0, "nan": math.nan}[sends] * inbox[0]
        for c, parts in enumerate(accepted(rule, i, inbox, dict(enumerate(a[i])))):
            dual = sum(weight * power(np.array(value), p) for weight, value in parts)
            size = sum(abs(weight) * abs(value) ** p for weight, value in parts)
            if math.isnan(dual):  # more values are NaN than the rule trims
                assert math.isnan(found[i, c])
            else:  # compared in the dual, since the root is ill-conditioned for mixed signs
                assert abs(power(found[i, c], p) - dual) <= 1e-13 * p * size


@settings(deadline=None, max_examples=100)
@given(rounds(), rules)
def test_guard_stays_within_received_values(
    given: tuple[StackedMix, torch.Tensor], rule: MixRule
) -> None:
    """Every coordinate lies within the range of the neighbourhood; a guard sends no messages."""
    mix, x = given
    if (mix.weights.own < 0).any():
        return
    found = gs.Guarded(Only(), rule).through(mix, 0)(x)
    a = torch.from_numpy(mix.weights.dense())
    assert mix.traffic.messages == mix.weights.messages
    for i in range(len(x)):
        near = x[[j for j in range(len(x)) if j == i or a[i, j]]]
        slack = 1e-12
        assert bool(
            (found[i] >= near.amin(0) - slack).all() and (found[i] <= near.amax(0) + slack).all()
        )


def test_result_is_independent_of_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rule gives the same result bit for bit with smaller blocks."""
    torch.manual_seed(0)
    x = torch.randn(30, 700, dtype=torch.float64)
    mix = StackedMix(gs.metropolis(gs.Random(30, 0.3).links(0)), torch.arange(30), 8, Traffic())
    kinds = (gs.Clip(20.0), gs.Checked(1.0), gs.TrimmedMean(0.2), gs.Median())
    whole = []
    for rule in kinds:
        whole.append(gs.Guarded(Only(), rule).through(mix, 0).mean(x, gs.mirror.power_map(3)))
    monkeypatch.setattr("gossamer.algorithms.guards._BLOCK_ELEMENTS", 1500)
    for rule, expected in zip(kinds, whole, strict=True):
        assert torch.equal(
            gs.Guarded(Only(), rule).through(mix, 0).mean(x, gs.mirror.power_map(3)), expected
        )
        # Every rule changes the mean, so the comparison is not trivial.
        assert not torch.allclose(expected, mix.mean(x, gs.mirror.power_map(3)))


def test_trimming_keeps_the_order_of_rows() -> None:
    """Trimmed rows stay sorted by receiver, with weights that sum to 1 per receiver."""
    near = Neighbours(
        torch.tensor([0, 0, 0, 1]),
        torch.tensor([0, 1, 2, 1]),
        torch.ones(4),
        torch.tensor([[3.0], [1], [2], [9]]),
    )
    receiver, _, weight, value = _trimmed(near, 2, lambda k: (k - 1) // 2)
    assert (receiver.tolist(), weight.tolist(), value.tolist()) == ([0, 1], [1, 1], [[2], [9]])


# -- wrapped methods -------------------------------------------------------------------------------


def squares_plan(
    algorithm: Algorithm, network: gs.Network | None = None, rounds: int = 12
) -> gs.Plan:
    network = network or gs.Random(6, 0.5) & gs.LinkFailure(0.2) & gs.Churn(0.1, 0.5)
    problem = gs.LeastSquares(6, dimension=5, samples=8, heterogeneity=0.3)
    task = gs.Task(problem.load(), problem.split(), gs.LinearRegression(), 3)
    return gs.Plan(task, network, algorithm, rounds, seed=1, dtype="float64")


def run(plan: gs.Plan) -> gs.Simulator:
    simulator = gs.Simulator(plan)
    simulator.advance(plan.rounds)
    return simulator


METHODS: list[Algorithm] = [
    gs.DPSGD(0.05),
    gs.DPSGD(0.05, order="adapt-then-combine"),
    gs.SwarmSGD(0.05, local_steps=2, pairs="matching"),
    GainControl(0.05, 1.1, 5),
    gs.WPM(3, 0.02, gs.Constant(), anchor=False),  # stores its state in the dual if not wrapped
    gs.WPM(3, 0.05),
    gs.Composition(eta=0.05, direction=gs.GradientTracking()),
    gs.Composition(
        gs.PowerMap(3), 0.05, direction=gs.QuasiGlobalMomentum(0.8), order="adapt-then-combine"
    ),
    gs.Composition(eta=0.05, weights=gs.RandomPeer(), local_steps=2),
    gs.Composition(eta=0.05, compress=gs.TopK(0.4), pull=0.5),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.label)
@pytest.mark.parametrize(
    "rule", [gs.Clip(1e6), gs.Checked(1e6), None], ids=["clip", "checked", "none broken"]
)
def test_inactive_rule_changes_nothing(method: Algorithm, rule: MixRule | None) -> None:
    """A rule whose bound is never reached gives the models and the traffic of the bare method."""
    wrapped = gs.Broken(method, devices=()) if rule is None else gs.Guarded(method, rule)
    # `Checked` runs without churn: a device that joins an anchored method late has a vector that is
    # too short for any factor, so the check takes effect.
    network = gs.Random(6, 0.5) & gs.LinkFailure(0.2) if isinstance(rule, gs.Checked) else None
    bare = run(squares_plan(method, network))
    other = run(squares_plan(wrapped, network))
    # 1e-9: the order of summation differs, and the power mean amplifies the difference per round.
    assert torch.allclose(other.models(), bare.models(), rtol=1e-9, atol=1e-9)
    assert (other.record().messages, other.record().bytes) == (
        bare.record().messages,
        bare.record().bytes,
    )
    assert (wrapped.ends_with, wrapped.weights, wrapped.mirror_at(3)) == (
        method.ends_with,
        method.weights,
        method.mirror_at(3),
    )
    middle = replace(
        squares_plan(wrapped, network),
        measure=gs.Measure(at="after_mix" if method.ends_with == "step" else "after_step"),
    )
    expected = gs.Simulator(replace(middle, algorithm=method)), gs.Simulator(middle)
    for simulator in expected:
        simulator.advance(2)
    assert expected[0].record().loss == pytest.approx(expected[1].record().loss, rel=1e-9)


RULES: list[MixRule] = [gs.Clip(0.3), gs.Checked(2.0), gs.TrimmedMean(0.34), gs.Median()]


@pytest.fixture(scope="module")
def bare() -> list[str]:
    """Return the networks that WPM accepts without a guard."""
    return check(gs.WPM(3, 0.05))


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_wrapped_method_conforms(rule: MixRule, bare: list[str]) -> None:
    """The conformance suite gives the same result for a wrapped method as for the bare one."""
    guarded = gs.Guarded(gs.WPM(3, 0.05), rule)
    assert check(guarded) == bare
    assert check(gs.Broken(guarded, sends="noise", size=0.1)) == bare


def test_trimming_nothing_equals_the_bare_method() -> None:
    """With equal weights and a trimmed share of 0, D-PSGD is unchanged."""
    bare = run(squares_plan(gs.DPSGD(), gs.RandomRing(6)))
    other = run(squares_plan(gs.Guarded(gs.DPSGD(), gs.TrimmedMean(0)), gs.RandomRing(6)))
    assert torch.allclose(other.models(), bare.models(), rtol=1e-12)


def test_broken_device_scales_the_model_and_not_its_dual() -> None:
    """A broken device sends ten times its model w, not ten times the dual w^[3].

    With a constant rate WPM can store its state in the dual, where the two differ.
    """
    plan = squares_plan(
        gs.Broken(gs.WPM(3, 1e-30, gs.Constant(), anchor=False), sends="large", size=10.0),
        gs.Full(6),
        rounds=1,
    )
    start = gs.Simulator(plan).models()
    after = run(plan).models()
    assert torch.allclose(after[1:], start[1:] * ((10**3 + 5) / 6) ** (1 / 3), rtol=1e-12)


def test_guarded_run_resumes_from_a_snapshot() -> None:
    """A guarded run resumed from a snapshot equals the uninterrupted run bit for bit."""
    plan = squares_plan(
        gs.Broken(
            gs.Guarded(gs.WPM(15, 0.02, gs.Constant(), anchor=False), gs.Clip(0.5)),
            sends="noise",
            size=1.0,
        )
    )
    first = gs.Simulator(plan)
    first.advance(5)
    again = gs.Simulator(plan, first.snapshot())
    again.advance(plan.rounds)
    assert torch.equal(again.models(), run(plan).models())


def test_outer_rule_is_applied_first() -> None:
    """Of two nested rules, the inner one receives the output of the outer one."""
    mix = StackedMix(gs.metropolis(gs.Full(5).links(0)), torch.arange(5), 8, Traffic())
    x = torch.tensor([[1.0], [2], [3], [4], [90]], dtype=torch.float64)
    inner = gs.Guarded(Only(), gs.TrimmedMean(0.2))
    outer = gs.Guarded(inner, gs.Checked(4.5))
    found = outer.algorithm.through(outer.through(mix, 0), 0)(x)  # type: ignore[attr-defined]
    # Device 1 replaces 90 by its own value 2, then trims 1 and 4.
    assert found[1].item() == pytest.approx((2 + 2 + 3) / 3)


# -- invalid arguments -----------------------------------------------------------------------------


class Averaged(Only):
    """A method with weights that calls all_reduce; the error is raised at the call."""

    def round(self, state: State, grad: Any, mix: Mix, t: int) -> State:
        return {"w": mix.all_reduce(state["w"]).expand_as(state["w"])}


def test_guarding_all_reduce_raises() -> None:
    """A guarded method that calls all_reduce raises InputError."""
    with pytest.raises(InputError, match=r"Averaged.*has none to guard"):
        run(squares_plan(gs.Guarded(Averaged(), gs.Clip(1.0))))


def test_broken_device_affects_all_reduce() -> None:
    """One broken device makes the models of All-Reduce over 100 times larger."""
    sound = run(squares_plan(gs.AllReduce(0.05))).models().norm()
    broken = run(squares_plan(gs.Broken(gs.AllReduce(0.05)))).models().norm()
    assert broken > 100 * sound


class Pushed(Only):
    @property
    def weights(self) -> WeightRule:
        return PushSum()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: gs.Guarded(gs.Broken(gs.DPSGD()), gs.Median()), "the guard inside"),
        (lambda: gs.Guarded(Pushed(), gs.Median()), "push-sum sends shares"),
        (lambda: gs.Guarded(gs.AllReduce(0.05), gs.Clip(1.0)), r"All-Reduce.*has none to guard"),
        (lambda: gs.Guarded(gs.FedAvg(0.05), gs.Median()), r"FedAvg.*has none to guard"),
        *(
            (lambda rule=rule: gs.Guarded(gs.GossipLearning(), rule), "one model at a time")
            for rule in RULES
        ),
        (lambda: gs.Clip(0.0), "radius = 0.0 is not accepted: give a number above 0"),
        (lambda: gs.Clip(math.nan), "radius"),
        (lambda: gs.Checked(-1.0), "largest"),
        (
            lambda: gs.TrimmedMean(0.5),
            "share = 0.5 is not accepted: give a number of at least 0 and below 0.5",
        ),
        (lambda: gs.Broken(gs.DPSGD(), (0, 0)), "each once"),
        (lambda: gs.Broken(gs.DPSGD(), (-1,)), "from 0"),
        (
            lambda: gs.Broken(gs.DPSGD(), sends="lies"),  # type: ignore[arg-type]
            "one of 'large', 'opposite', 'noise', 'nan'",
        ),
        (lambda: gs.Broken(gs.DPSGD(), size=math.inf), "size"),
        (lambda: squares_plan(gs.Broken(gs.DPSGD(), (6,))), "devices below 6"),
    ],
)
def test_invalid_arguments_raise(make: Any, sentence: str) -> None:
    """An invalid argument raises InputError with the expected message."""
    with pytest.raises(InputError, match=sentence):
        make()


# -- effect of one broken device, with and without a guard -----------------------------------------

ROUNDS = 60


def digits(algorithm: Algorithm, split: Any = None) -> gs.Simulator:
    study = gs.Study(algorithm, gs.RandomRing(10), split=split or gs.Iid(), rounds=ROUNDS)
    return run(study.plan())


def accuracy(simulator: gs.Simulator) -> float:
    """Return the mean accuracy of all devices except the first."""
    return float(simulator.record().metrics["accuracy"][1:].mean())


def norm(simulator: gs.Simulator) -> float:
    """Return the mean norm of the models of all devices except the first."""
    return float(simulator.models()[1:].double().norm(dim=1).mean())


def test_large_p_approaches_the_largest_value() -> None:
    """One of three equal devices sends ten times its model.

    The mean is 4 times the model; the power mean at p = 15 is more than 9 times the model.
    """
    mix = StackedMix(gs.metropolis(gs.Full(3).links(0)), torch.arange(3), 8, Traffic())
    x = torch.ones(3, 1, dtype=torch.float64)
    broken = gs.Broken(Only(), sends="large", size=10.0)
    for p, expected in ((1, 4.0), (15, ((10.0**15 + 2) / 3) ** (1 / 15))):
        assert broken.through(mix, 0).mean(x, gs.mirror.power_map(p))[
            :, 0
        ].tolist() == pytest.approx([1.0, expected, expected])
    assert expected > 9
    guarded = gs.Guarded(Only(), Clip(0.1)).through(broken.through(mix, 0), 0)
    assert guarded.mean(x, gs.mirror.power_map(15))[1].item() == pytest.approx(
        ((1.1**15 + 2) / 3) ** (1 / 15)
    )


@pytest.mark.parametrize("p", [1, 15])
def test_guards_restore_accuracy(p: int) -> None:
    """One broken device reduces the accuracy below 0.7; every guard restores it above 0.88."""
    method = gs.WPM(p, 0.1)
    sound = digits(method)
    bare = digits(gs.Broken(method, sends="large", size=10.0))
    assert accuracy(sound) > 0.88
    assert accuracy(bare) < 0.7
    for rule in (gs.Clip(0.3), gs.Checked(2.0), gs.Median()):
        guarded = digits(gs.Broken(gs.Guarded(method, rule), sends="large", size=10.0))
        assert accuracy(guarded) > 0.88, rule
        assert norm(guarded) < 2 * norm(sound), rule


def test_effect_of_a_broken_device_grows_with_p() -> None:
    """One device sends 1.5 times its model per round, for 60 rounds.

    The models at p = 15 grow over 5 times larger than at p = 1.
    """
    sizes = {}
    for p in (1, 15):
        sizes[p] = norm(digits(gs.Broken(gs.WPM(p, 0.1), sends="large", size=1.5)))
    assert sizes[15] > 5 * sizes[1]
    clipped = gs.Broken(gs.Guarded(gs.WPM(15, 0.1), gs.Clip(0.3)), sends="large", size=1.5)
    assert norm(digits(clipped)) < sizes[1]


def test_nan_raises_without_a_guard() -> None:
    """`Diverged` names the device that sends NaN and the round; guarded runs reach 0.88."""
    method = gs.WPM(3, 0.1)
    with pytest.raises(Diverged, match='a guard such as "checked"') as diverged:
        digits(gs.Broken(method, devices=(4,), sends="nan"))
    assert (diverged.value.device, diverged.value.round) == (4, 1)
    for rule in (gs.Checked(3.0), gs.Clip(0.3), gs.Median()):
        simulator = digits(gs.Broken(gs.Guarded(method, rule), devices=(4,), sends="nan"))
        assert simulator.models().isfinite().all()
        assert accuracy(simulator) > 0.88, rule


def test_rejected_device_loses_its_label() -> None:
    """With one label per device, `Clip` reaches a higher accuracy than `Checked`.

    Only the broken device has its label: `Clip` limits its model, `Checked` rejects it.
    """
    method = gs.WPM(3, 0.1)
    clipped = digits(gs.Broken(gs.Guarded(method, gs.Clip(1.0))), gs.OneLabel())
    checked = digits(gs.Broken(gs.Guarded(method, gs.Checked(2.0))), gs.OneLabel())
    assert accuracy(clipped) > accuracy(checked) + 0.05
