"""Which methods `tune` searches: all that are registered and fit the study."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from support.planted import STUDY
from torch import Tensor

import gossamer as gs
from gossamer._core import registry
from gossamer.algorithms.base import Algorithm, Gradient, Mix, State
from gossamer.algorithms.registry import RATE, method
from gossamer.errors import InputError
from gossamer.study.space import searched
from gossamer.study.tune import choose, fit_methods
from gossamer.testing import NETWORKS

CENTRAL = {"all-reduce", "fedavg", "diloco"}
STATIC = {"d2", "extra", "nids"}
ALL = {each.name for each in searched()}


def test_every_method_with_a_rate_is_searched() -> None:
    assert gs.METHODS.keys() - ALL == {"adom"}
    for each in gs.METHODS.values():
        assert each.central == (each.name in CENTRAL)


def test_changing_links_leave_out_what_needs_static_ones() -> None:
    fit = fit_methods(STUDY)
    assert fit.baseline.name == "d-psgd"
    assert set(fit.methods) == ALL - CENTRAL - STATIC
    assert fit.left_out.keys() == CENTRAL | STATIC
    assert fit.left_out["nids"] == "needs static symmetric links"
    assert fit.left_out["diloco"] == "needs the mean of all devices; --methods can name it"


def test_static_links_leave_out_only_what_is_central() -> None:
    fit = fit_methods(replace(STUDY, network=gs.Ring(10)))
    assert set(fit.methods) == ALL - CENTRAL - {"d2"}
    assert fit.left_out["d2"].startswith("needs static symmetric links, eigenvalues")


def test_links_between_all_devices_fit_every_method() -> None:
    assert set(fit_methods(replace(STUDY, network=gs.Full(10))).methods) == ALL


def test_one_way_links_are_tuned_with_the_methods_that_take_them() -> None:
    network = NETWORKS["one-way"]
    fit = fit_methods(replace(STUDY, network=network, split=gs.Iid()))
    assert fit.methods == ["push-sum", "gossip-learning"]
    assert fit.left_out["d-psgd"] == "needs symmetric links"


def test_a_method_that_is_named_need_not_be_decentralised() -> None:
    fit = fit_methods(STUDY, choose(["diloco", "nids"]))
    assert fit.methods == ["d-psgd", "diloco"]
    assert list(fit.left_out) == ["nids"]


def test_methods_of_which_none_fits_are_an_error() -> None:
    with pytest.raises(InputError, match=r"methods = 'nids,d2' .*needs static symmetric links"):
        fit_methods(STUDY, choose(["nids", "d2"]))


def test_a_study_that_cannot_be_run_is_an_error() -> None:
    one_way = gs.Callback(10, lambda t: [(0, 1)], True)
    with pytest.raises(InputError, match="batch"):
        fit_methods(replace(STUDY, network=one_way, batch=-1))
    with pytest.raises(InputError, match="split"):
        fit_methods(replace(STUDY, network=gs.Random(4000, 0.1)))


def test_methods_are_chosen_by_name() -> None:
    assert [each.name for each in choose(["wpm", " swarm-sgd", "wpm"])] == ["wpm", "swarm-sgd"]
    with pytest.raises(InputError, match="did you mean 'wpm'"):
        choose(["wpn"])


@pytest.fixture
def own_method() -> Iterator[None]:
    """Register a method as a file of its own would, and take it away again."""
    methods = dict(gs.METHODS)
    kinds = dict(registry.PARTS["algorithm"])

    @method("own-method", label="Own", paper="A test, 2026")
    @dataclass(frozen=True)
    class OwnMethod(Algorithm):
        eta: float = 0.05

        def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
            return {"w": self.halfway(state, grad, mix, t) - self.eta * grad(state["w"])}

        def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
            return mix(state["w"])

    yield
    gs.METHODS.clear()
    gs.METHODS.update(methods)
    registry.PARTS["algorithm"].clear()
    registry.PARTS["algorithm"].update(kinds)


@pytest.mark.usefixtures("own_method")
def test_a_new_method_is_searched_without_further_ado() -> None:
    assert "own-method" in fit_methods(STUDY).methods
    assert gs.METHODS["own-method"].tune == {"eta": RATE}
    assert [each.name for each in choose(["own-method"])] == ["own-method"]
