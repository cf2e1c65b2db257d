"""Guards and broken devices: every rule against a plain loop over devices and coordinates, and what
they are good for.
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

# -- against plain loops ---------------------------------------------------------------------------

Received = dict[int, Any]  # vectors by sender, the own one included


def accepted(
    rule: MixRule, i: int, inbox: Received, a: dict[int, float]
) -> list[list[tuple[float, float]]]:
    """What device i mixes, coordinate by coordinate: weights and values."""
    own, senders = inbox[i], sorted(inbox)
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
    return [
        [(weights[j][c], float(values[j][c])) for j in senders if weights[j][c]]
        for c in range(len(own))
    ]


rules = st.one_of(
    st.builds(gs.Clip, st.floats(0.1, 5)),
    st.builds(gs.Checked, st.floats(0.5, 3)),
    st.builds(gs.TrimmedMean, st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.34, 0.49])),
    st.just(gs.Median()),
)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[StackedMix, torch.Tensor]:
    """The links of a round with their weights, and what the devices have."""
    m, n = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    pairs = [(i, j) for i in range(m) for j in range(i + 1, m)]
    links = gs.Links.of(m, draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else [])
    weights = draw(st.sampled_from([gs.Metropolis(), gs.RandomPeer(), gs.Laplacian()]))(links, 0, 1)
    number = st.integers(-300, 300).map(lambda x: x / 100)
    x = draw(st.lists(st.lists(number, min_size=n, max_size=n), min_size=m, max_size=m))
    return StackedMix(weights, torch.arange(m), 8, Traffic()), torch.tensor(x, dtype=torch.float64)


class Only(gs.Algorithm):
    """A method that a rule can be put around, to get at its mix."""

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
        inbox = {j: x[j].numpy() for j in range(len(x)) if j == i or a[i, j]}
        if devices and i != 0 and 0 in inbox:
            inbox[0] = {"large": 4.0, "opposite": -4.0, "nan": math.nan}[sends] * inbox[0]
        for c, parts in enumerate(accepted(rule, i, inbox, dict(enumerate(a[i])))):
            dual = sum(weight * power(np.array(value), p) for weight, value in parts)
            size = sum(abs(weight) * abs(value) ** p for weight, value in parts)
            if math.isnan(dual):  # more of the values are broken than the rule can leave out
                assert math.isnan(found[i, c])
            else:  # in the dual: with mixed signs the root is ill-conditioned
                assert abs(power(found[i, c], p) - dual) <= 1e-13 * p * size


@settings(deadline=None, max_examples=100)
@given(rounds(), rules)
def test_a_guard_only_uses_what_came(given: tuple[StackedMix, torch.Tensor], rule: MixRule) -> None:
    """Every coordinate lies within the neighbourhood's own; nothing is counted as sent besides."""
    mix, x = given
    if (mix.weights.own < 0).any():
        return
    found, a = gs.Guarded(Only(), rule).through(mix, 0)(x), torch.from_numpy(mix.weights.dense())
    assert mix.traffic.messages == mix.weights.messages
    for i in range(len(x)):
        near = x[[j for j in range(len(x)) if j == i or a[i, j]]]
        slack = 1e-12
        assert bool(
            (found[i] >= near.amin(0) - slack).all() and (found[i] <= near.amax(0) + slack).all()
        )


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x = torch.randn(30, 700, dtype=torch.float64)
    mix = StackedMix(gs.metropolis(gs.Random(30, 0.3).links(0)), torch.arange(30), 8, Traffic())
    kinds = (gs.Clip(20.0), gs.Checked(1.0), gs.TrimmedMean(0.2), gs.Median())
    whole = [
        gs.Guarded(Only(), rule).through(mix, 0).mean(x, gs.mirror.power_map(3)) for rule in kinds
    ]
    monkeypatch.setattr("gossamer.algorithms.guards._BLOCK_ELEMENTS", 1500)
    for rule, expected in zip(kinds, whole, strict=True):
        assert torch.equal(
            gs.Guarded(Only(), rule).through(mix, 0).mean(x, gs.mirror.power_map(3)), expected
        )
        assert not torch.allclose(
            expected, mix.mean(x, gs.mirror.power_map(3))
        )  # every rule had something to do


def test_trimming_keeps_the_rows_in_order() -> None:
    near = Neighbours(
        torch.tensor([0, 0, 0, 1]),
        torch.tensor([0, 1, 2, 1]),
        torch.ones(4),
        torch.tensor([[3.0], [1], [2], [9]]),
    )
    receiver, _, weight, value = _trimmed(near, 2, lambda k: (k - 1) // 2)
    assert (receiver.tolist(), weight.tolist(), value.tolist()) == ([0, 1], [1, 1], [[2], [9]])


# -- around whole methods --------------------------------------------------------------------------


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
    gs.WPM(3, 0.02, gs.Constant(), anchor=False),  # which would keep its state in the dual
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
def test_a_rule_that_never_binds_changes_nothing(method: Algorithm, rule: MixRule | None) -> None:
    wrapped = gs.Broken(method, devices=()) if rule is None else gs.Guarded(method, rule)
    # Where all are here: who comes late to an anchored method is behind by more than any factor,
    # and checks bind.
    network = gs.Random(6, 0.5) & gs.LinkFailure(0.2) if isinstance(rule, gs.Checked) else None
    bare, other = run(squares_plan(method, network)), run(squares_plan(wrapped, network))
    # 1e-9: the sums are taken in another order, and a power mean amplifies that from round to round
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


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_what_is_wrapped_conforms_as_before(rule: MixRule) -> None:
    method = gs.WPM(3, 0.05)
    assert (
        check(gs.Guarded(method, rule))
        == check(gs.Broken(gs.Guarded(method, rule), sends="noise", size=0.1))
        == check(method)
    )


def test_nothing_trimmed_of_equal_weights_is_the_bare_method() -> None:
    bare, other = (
        run(squares_plan(method, gs.RandomRing(6)))
        for method in (gs.DPSGD(), gs.Guarded(gs.DPSGD(), gs.TrimmedMean(0)))
    )
    assert torch.allclose(other.models(), bare.models(), rtol=1e-12)


def test_models_are_sent_and_not_their_powers() -> None:
    """A constant rate lets WPM keep its state in the dual, w^[3]; ten times the model is not ten
    times that.
    """
    plan = squares_plan(
        gs.Broken(gs.WPM(3, 1e-30, gs.Constant(), anchor=False), sends="large", size=10.0),
        gs.Full(6),
        rounds=1,
    )
    start, after = gs.Simulator(plan).models(), run(plan).models()
    assert torch.allclose(after[1:], start[1:] * ((10**3 + 5) / 6) ** (1 / 3), rtol=1e-12)


def test_a_run_with_a_guard_goes_on_from_a_snapshot() -> None:
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


def test_rules_stack_from_the_outside_in() -> None:
    """What the outer rule has left is what the inner one sees."""
    mix = StackedMix(gs.metropolis(gs.Full(5).links(0)), torch.arange(5), 8, Traffic())
    x = torch.tensor([[1.0], [2], [3], [4], [90]], dtype=torch.float64)
    inner = gs.Guarded(Only(), gs.TrimmedMean(0.2))
    outer = gs.Guarded(inner, gs.Checked(4.5))
    found = outer.algorithm.through(outer.through(mix, 0), 0)(x)  # type: ignore[attr-defined]
    assert found[1].item() == pytest.approx(
        (2 + 2 + 3) / 3
    )  # 90 is replaced by its own 2; then 1 and 4 go


# -- what is refused -------------------------------------------------------------------------------


class Averaged(Only):
    """Has weights, as any method, and an average of all: that is seen when it is asked for."""

    def round(self, state: State, grad: Any, mix: Mix, t: int) -> State:
        return {"w": mix.all_reduce(state["w"]).expand_as(state["w"])}


def test_an_average_of_all_cannot_be_guarded() -> None:
    with pytest.raises(InputError, match=r"Averaged.*has none to guard"):
        run(squares_plan(gs.Guarded(Averaged(), gs.Clip(1.0))))


def test_a_broken_device_spoils_an_average_of_all_too() -> None:
    sound, broken = (
        run(squares_plan(method)).models().norm()
        for method in (gs.AllReduce(0.05), gs.Broken(gs.AllReduce(0.05)))
    )
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
        (lambda: gs.Broken(gs.DPSGD(), sends="lies"), "one of 'large', 'opposite', 'noise', 'nan'"),  # type: ignore[arg-type]
        (lambda: gs.Broken(gs.DPSGD(), size=math.inf), "size"),
        (lambda: squares_plan(gs.Broken(gs.DPSGD(), (6,))), "devices below 6"),
    ],
)
def test_refusals(make: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        make()


# -- the harm of one broken device, and what a guard restores --------------------------------------

ROUNDS = 60


def digits(algorithm: Algorithm, split: Any = None) -> gs.Simulator:
    study = gs.Study(algorithm, gs.RandomRing(10), split=split or gs.Iid(), rounds=ROUNDS)
    return run(study.plan())


def accuracy(simulator: gs.Simulator) -> float:
    """Of the sound devices: all but the first."""
    return float(simulator.record().accuracy[1:].mean())


def norm(simulator: gs.Simulator) -> float:
    return float(simulator.models()[1:].double().norm(dim=1).mean())


def test_a_large_power_follows_the_largest_value() -> None:
    """One of three sends ten times the model of all: the mean is four times as large, the power
    mean for 15 nine times.
    """
    mix = StackedMix(gs.metropolis(gs.Full(3).links(0)), torch.arange(3), 8, Traffic())
    x, broken = torch.ones(3, 1, dtype=torch.float64), gs.Broken(Only(), sends="large", size=10.0)
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
def test_clipping_restores_what_one_broken_device_destroys(p: int) -> None:
    method = gs.WPM(p, 0.1)
    sound, bare = digits(method), digits(gs.Broken(method, sends="large", size=10.0))
    assert accuracy(sound) > 0.88
    assert accuracy(bare) < 0.7
    for rule in (gs.Clip(0.3), gs.Checked(2.0), gs.Median()):
        guarded = digits(gs.Broken(gs.Guarded(method, rule), sends="large", size=10.0))
        assert accuracy(guarded) > 0.88, rule
        assert norm(guarded) < 2 * norm(sound), rule


def test_the_harm_grows_with_the_power() -> None:
    """Half as large again, every round anew: in 60 rounds the models of p = 15 grow far more than
    those of p = 1.
    """
    sizes = {p: norm(digits(gs.Broken(gs.WPM(p, 0.1), sends="large", size=1.5))) for p in (1, 15)}
    assert sizes[15] > 5 * sizes[1]
    clipped = gs.Broken(gs.Guarded(gs.WPM(15, 0.1), gs.Clip(0.3)), sends="large", size=1.5)
    assert norm(digits(clipped)) < sizes[1]


def test_who_sends_nan_is_named_and_a_check_goes_on() -> None:
    method = gs.WPM(3, 0.1)
    with pytest.raises(Diverged, match='a guard such as "checked"') as diverged:
        digits(gs.Broken(method, devices=(4,), sends="nan"))
    assert (diverged.value.device, diverged.value.round) == (4, 1)
    for rule in (gs.Checked(3.0), gs.Clip(0.3), gs.Median()):
        simulator = digits(gs.Broken(gs.Guarded(method, rule), devices=(4,), sends="nan"))
        assert simulator.models().isfinite().all()
        assert accuracy(simulator) > 0.88, rule


def test_a_device_that_is_left_out_takes_its_label_with_it() -> None:
    """One label a device: nobody else knows the first one's.

    Clipped, it still has a say; checked, it has none.
    """
    method = gs.WPM(3, 0.1)
    clipped, checked = (
        digits(gs.Broken(gs.Guarded(method, rule)), gs.OneLabel())
        for rule in (gs.Clip(1.0), gs.Checked(2.0))
    )
    assert accuracy(clipped) > accuracy(checked) + 0.05
