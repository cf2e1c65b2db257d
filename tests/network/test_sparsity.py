"""Warnings of networks with hardly a link: against the sum over all rounds, and their cost."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.network import (
    Callback,
    Churn,
    ContactTrace,
    ErdosRenyi,
    Graph,
    Links,
    Network,
    Ring,
    Sequence,
    save,
)
from gossamer.network.sparsity import count_links, few_links


@dataclass(frozen=True)
class Listening(Network):
    """A network that lists the rounds it is asked for."""

    network: Network
    asked: list[int] = field(default_factory=list)

    @property
    def devices(self) -> int:  # type: ignore[override]
        return self.network.devices

    def links(self, t: int) -> Links:
        self.asked.append(t)
        return self.network.links(t)


def all_links(network: Network, rounds: int) -> int:
    total = 0
    for t in range(rounds):
        total += len(network.links(t))
    return total


@given(
    m=st.integers(1, 12),
    p=st.floats(0, 0.2),
    rounds=st.integers(1, 30),
    seed=st.integers(0, 10**6),
    fixed=st.booleans(),
)
@settings(deadline=None, max_examples=100)
def test_warns_if_all_rounds_together_cannot_connect_the_devices(
    m: int, p: float, rounds: int, seed: int, fixed: bool
) -> None:
    network: Network = ErdosRenyi(m, p, seed=seed, every=0 if fixed else 1)
    links = all_links(network, rounds)
    warning = few_links(network, rounds)
    assert (warning is not None) == (links < m - 1)
    if warning is not None:
        assert "1 link " in warning or f"{links:,} links" in warning or links == 0
        assert ("no two of the" in warning) == (links == 0)


@given(rounds=st.integers(1, 40), beyond=st.sampled_from(["repeat", "empty"]))
@settings(deadline=None, max_examples=30)
def test_a_file_of_links_is_counted_without_reading_its_rounds(
    rounds: int, beyond: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("links") / "links.parquet"
    save(ErdosRenyi(8, 0.1, seed=3) & Churn(0.2, 0.5), path, 7)
    network = Sequence(path, beyond)
    assert network.known_links(rounds) == all_links(network, rounds)


def test_counting_stops_at_enough_links() -> None:
    ring = Listening(Ring(1000))
    assert few_links(ring, 10**6) is None
    assert len(ring.asked) == 1


def test_a_long_run_is_sampled_over_its_whole_length() -> None:
    empty = Listening(Graph(10, ()))
    warning = few_links(empty, 10**6)
    assert warning is not None
    assert "in 2,000 of the 1,000,000 rounds" in warning
    assert len(empty.asked) == len(set(empty.asked)) == 2000
    for decile in range(10):
        assert any(t // 10**5 == decile for t in empty.asked)

    rare = Callback(5000, lambda t: [(0, 1)] * (t % 2))
    count = count_links(rare, 10**6, enough=4999)
    assert count.looked_at == 400
    assert 0.8 * 500_000 < count.estimate < 1.2 * 500_000
    assert few_links(rare, 10**6) is None
    rarely = few_links(rare, 8000)
    assert rarely is not None
    assert "about 3,960 links" in rarely


def test_a_large_network_is_asked_for_two_rounds() -> None:
    large = Listening(Graph(1_000_000, ((0, 1),)))
    assert few_links(large, 1000) is not None
    assert len(large.asked) == 2


def test_a_single_device_and_no_rounds_are_no_mistake() -> None:
    assert few_links(Graph(1, ()), 100) is None
    assert few_links(Graph(9, ()), 0) is None


@given(
    lines=st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(0, 5), st.integers(6, 9)),
        min_size=1,
        max_size=12,
    ),
    rounds=st.integers(0, 60),
    skip_empty=st.booleans(),
    beyond=st.sampled_from(["repeat", "empty"]),
)
@settings(deadline=None, max_examples=60)
def test_a_log_is_counted_without_looking_at_its_rounds(
    lines: list[tuple[int, int, int, int]],
    rounds: int,
    skip_empty: bool,
    beyond: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("log") / "log.csv"
    text = "begin,end,a,b\n"
    for begin, length, a, b in lines:
        text += f"{begin},{begin + length},{a},{b}\n"
    path.write_text(text)
    trace = ContactTrace(path, skip_empty=skip_empty, beyond=beyond)
    assert trace.known_links(rounds) == all_links(trace, rounds)
