"""The pages of docs/methods: one per method; examples, messages and counts agree with the code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gossamer import testing
from gossamer.algorithms import METHODS, Algorithm
from gossamer.engines import Plan, Simulator
from gossamer.errors import GossamerError, InputError
from gossamer.network import Network, Ring
from gossamer.study import Study, spec
from gossamer.tasks import LinearRegression, Task
from gossamer.tasks.synthetic import LeastSquares

FOLDER = Path(__file__).parents[2] / "docs" / "methods"
PAGES = {page.stem: page.read_text() for page in sorted(FOLDER.glob("*.md"))}
# A code block, and the error message that is quoted below it, if any.
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n((?:^> [^\n]*\n)+))?", re.M | re.S)


def unwrapped(quote: str) -> str:
    return " ".join(line.removeprefix("> ") for line in quote.splitlines())


def test_every_method_has_a_page_and_every_page_a_method() -> None:
    assert PAGES.keys() - {"index", "composition", "optimizers", "robustness"} == METHODS.keys()


def test_a_page_has_the_registered_label() -> None:
    for name, entry in METHODS.items():
        assert PAGES[name].startswith(f"# {entry.label}\n"), name


def test_the_index_is_the_registry() -> None:
    rows = []
    for name, entry in METHODS.items():
        rows.append(
            f"| [{name}]({name}.md) | [{entry.file}](../../src/gossamer/algorithms/{entry.file}) "
            f"| {entry.paper} | {entry.needs} | {entry.without_rounds} |"
        )
    head = ["| method | file | paper | needs | without rounds |", "| --- | --- | --- | --- | --- |"]
    wanted = "\n".join([*head, *rows])
    _, _, rest = PAGES["index"].partition("<!-- methods -->\n")
    assert rest.partition("\n<!-- end -->")[0] == wanted, (
        f"the table of docs/methods/index.md should be\n\n{wanted}"
    )


def test_a_page_has_its_formula() -> None:
    """All but that of the composition and the guards are those of a registered method."""
    for name in METHODS:
        assert "```math\n" in PAGES[name], name


# -- code --


def in_python(code: str) -> list[Study]:
    """Run the code and return the studies that it defines."""
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    return namespace.get("studies") or [namespace["study"]]


def in_toml(code: str) -> list[Study]:
    """Run two rounds of every study of a spec and return the studies."""
    studies = spec.studies(spec.parse(code))
    for study in studies:
        Simulator(study.plan()).advance(2)
    return studies


RUN: dict[str, Callable[[str], list[Study]]] = {"python": in_python, "toml": in_toml}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_a_page_runs_or_fails_with_its_message(name: str) -> None:
    """The study in TOML equals the one in Python above it."""
    shown: list[Study] = []
    for language, code, refusal in BLOCK.findall(PAGES[name]):
        if language not in RUN:
            assert language in ("text", "math")
            assert not refusal
        elif refusal:
            with pytest.raises(GossamerError) as refused:
                RUN[language](code)
            assert str(refused.value) == unwrapped(refusal)
        else:
            studies = RUN[language](code)
            assert language == "python" or studies == shown
            shown = studies
    if name in METHODS:
        assert [type(study.algorithm) for study in shown] == [type(METHODS[name].make())]


@pytest.mark.parametrize("name", PAGES)
def test_the_links_of_a_page_exist(name: str) -> None:
    for path, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", PAGES[name]):
        target = FOLDER / path if path else FOLDER / f"{name}.md"
        assert target.is_file(), path
        headings = []
        for heading in re.findall(r"^#+ (.*)$", target.read_text(), re.M):
            headings.append(heading.lower().replace(" ", "-"))
        assert not anchor or anchor in headings, f"{path}#{anchor}"


# -- statements --


@pytest.mark.parametrize("name", METHODS)
def test_a_page_lists_its_file_and_parameters(name: str) -> None:
    entry = METHODS[name]
    assert f"Code: [{entry.file}](../../src/gossamer/algorithms/{entry.file})" in " ".join(
        PAGES[name].split()
    )
    rows = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \| .+ \|$", PAGES[name], re.M))
    made = entry.make()
    wanted = {}
    shared = inspect.signature(Algorithm).parameters
    for knob in inspect.signature(entry.make).parameters.values():
        if knob.name in shared and knob.default == shared[knob.name].default:
            continue  # described once, on the page of optimisers
        default = getattr(made, knob.name) if repr(knob.default) == "<factory>" else knob.default
        wanted[knob.name] = f'"{default}"' if isinstance(default, str) else repr(default)
    assert rows == wanted


@cache
def least_squares(devices: int, dimension: int) -> Task:
    """Return a task that every method supports."""
    problem = LeastSquares(devices, dimension, samples=dimension + 10)
    return Task(problem.load(), problem.split(), LinearRegression(), 0)


def run(algorithm: Algorithm, network: Network, dimension: int, rounds: int) -> Simulator:
    simulator = Simulator(
        Plan(least_squares(network.devices, dimension), network, algorithm, rounds)
    )
    simulator.advance(rounds)
    return simulator


@pytest.mark.parametrize("name", METHODS)
def test_a_page_states_the_stored_vectors_and_sent_bytes(name: str) -> None:
    page = " ".join(PAGES[name].split())
    dimension = 200  # a single extra value is then 0.5 %
    later = run(METHODS[name].make(), Ring(9), dimension, 3)
    earlier = run(METHODS[name].make(), Ring(9), dimension, 2)
    sent = later.record().bytes - earlier.record().bytes
    (said,) = re.findall(r"(\d\.\d\d) × D-PSGD's bytes", page)
    assert float(said) == pytest.approx(sent / (18 * 4 * dimension), abs=0.0051)
    kept = []
    for x in later.snapshot().tensors.values():
        if x.shape == (9, dimension):
            kept.append(x)
    assert re.findall(r"Stores (\w+) vectors? per device", page) == [
        ("one", "two", "three", "four")[len(kept) - 1]
    ]


@pytest.mark.parametrize("name", METHODS)
def test_a_page_quotes_every_refused_network(name: str) -> None:
    """Of the networks of the conformance suite; a page without refusals says so."""
    quoted = " ".join(unwrapped(refusal) for _, _, refusal in BLOCK.findall(PAGES[name]))
    refusals = []
    for network in testing.NETWORKS.values():
        try:
            run(METHODS[name].make(), network, 5, 12)
        except InputError as refusal:
            refusals.append(refusal.accepted)
    assert [accepted for accepted in refusals if accepted not in quoted] == []
    assert ("refuses no network" in " ".join(PAGES[name].split())) == (not refusals)
