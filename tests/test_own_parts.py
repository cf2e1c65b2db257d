"""Methods, networks and schedules of a user that return the wrong thing: a sentence says what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gossamer as gs
from gossamer.algorithms import Algorithm
from gossamer.errors import InputError
from gossamer.network import Network


class _Own(Algorithm):
    """A method whose round is given."""

    def __init__(self, round_of: Callable[..., Any]) -> None:
        self.round_of = round_of

    def round(self, state: Any, grad: Any, mix: Any, t: int) -> Any:
        return self.round_of(state, grad, mix)

    def halfway(self, state: Any, grad: Any, mix: Any, t: int) -> torch.Tensor:
        w: torch.Tensor = state["w"]
        return w


class _NoLinks(Network):
    """A network whose links are a number."""

    devices = 4

    def links(self, t: int) -> Any:
        return 3


class _NoDevices(Network):
    """A network without the number of its devices."""

    def links(self, t: int) -> gs.Links:
        return gs.Links.of(4, [(0, 1)])


def run(algorithm: gs.Algorithm | None = None, network: gs.Network | None = None) -> gs.Run:
    return gs.run(gs.Study(algorithm or gs.DPSGD(), network or gs.Ring(4), rounds=2))


@pytest.mark.parametrize(
    ("round_of", "sentence"),
    [
        (lambda state, grad, mix: None, "_Own.round(…) = None is not accepted: give a dictionary"),
        (lambda state, grad, mix: {"v": state["w"]}, "give the whole state, with 'w'"),
        (lambda state, grad, mix: {"w": state["w"][:2]}, "give 'w' with shape [4, 650]"),
        (lambda state, grad, mix: {"w": state["w"].double()}, "of torch.float32, as before"),
        (lambda state, grad, mix: {"w": mix(state["w"].numpy())}, "mix(x): x = "),
        (lambda state, grad, mix: {"w": mix(state["w"][:1])}, "one row for each of 4 devices"),
        (lambda state, grad, mix: {"w": grad(None)}, "grad(w): w = None is not accepted"),
    ],
)
def test_a_round_that_returns_no_state(round_of: Callable[..., Any], sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        run(_Own(round_of))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (_NoLinks(), "_NoLinks.links(0) = 3 is not accepted: give gs.Links.of(devices, pairs)"),
        (_NoDevices(), "_NoDevices.devices = None is not accepted: give a whole number"),
    ],
)
def test_a_network_that_returns_no_links(network: gs.Network, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        run(network=network)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("value", ["a", None, torch.tensor([0.1, 0.2]), np.eye(4)])
def test_a_schedule_that_returns_no_number(value: Any) -> None:
    with pytest.raises(InputError, match="one number per device"):
        run(gs.DPSGD(eta=lambda t: value))


def test_what_no_network_can_be_combined_with() -> None:
    churn: Any = gs.Churn(0.1, 0.5)
    ring: Any = gs.Ring(4)
    with pytest.raises(InputError, match=r"give a fault, such as gs\.Churn\(leave="):
        _ = ring & gs.Ring(4)
    with pytest.raises(InputError, match="give the network first"):
        _ = churn & ring


@pytest.mark.parametrize(
    ("network", "wrapper"),
    [(lambda t: [(0, 1)], "gs.Callback(devices=…"), ([(0, 1), (1, 2)], "gs.Graph(devices=…")],
)
def test_what_stands_for_a_network_names_its_wrapper(network: Any, wrapper: str) -> None:
    with pytest.raises(InputError) as refused:
        gs.Study(network=network)
    assert wrapper in str(refused.value)


@pytest.mark.parametrize(
    "x", [torch.empty(6, 3, device="meta"), torch.eye(6, 3).to_sparse()], ids=["meta", "sparse"]
)
def test_tensors_without_values_of_their_own(x: torch.Tensor) -> None:
    y = torch.zeros(6, dtype=torch.int64)
    with pytest.raises(InputError, match="give a dense tensor"):
        gs.from_arrays(x, y, torch.eye(6, 3), y)


def test_results_are_asked_for_what_they_do_not_have() -> None:
    (method,) = gs.compare([gs.Study(rounds=1, network=gs.Ring(10))])
    with pytest.raises(InputError, match="did you mean 'accuracy'"):
        method.value("acuracy")
    with pytest.raises(InputError, match="target = 'x >= 1' is not accepted"):
        method.rounds_to("x >= 1")
    with pytest.raises(InputError, match="digits = -1 is not accepted"):
        method.value("accuracy").format(-1)
    with pytest.raises(InputError, match="folder = 3 is not accepted"):
        gs.Run.read(3)
    with pytest.raises(InputError, match="from 1 to 100000"):
        gs.compare([gs.Study(rounds=1)], seeds=10**9)


def test_the_conformance_suite_takes_methods_only() -> None:
    from gossamer import testing

    with pytest.raises(InputError, match="algorithm = 3 is not accepted: give an object such as"):
        testing.check(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("network", [gs.Random(4, 0.5), gs.Mobility(4, radius=0.5)])
def test_the_number_of_a_round(network: gs.Network) -> None:
    expected = network.links(1).pairs.tolist()
    assert network.links(np.int64(1)).pairs.tolist() == expected
    assert network.links(torch.tensor(1)).pairs.tolist() == expected
    wrong: list[Any] = [1.5, "a", None, 10**30, torch.tensor(1.5), np.arange(2)]
    for t in wrong:
        with pytest.raises(InputError, match="round = "):
            network.links(t)


@pytest.mark.parametrize("pairs", [None, 3])
def test_a_callback_that_returns_no_pairs(pairs: Any) -> None:
    with pytest.raises(InputError, match=r"pairs = .* give pairs"):
        run(network=gs.Callback(4, lambda t: pairs))
