"""Every public class and function, called with numbers of NumPy and torch, wrong types and ranges.

A call returns, or raises an error of gossamer whose sentence can be printed; nothing else. What a
class accepts is then used: two rounds of a small study. `GOSSAMER_FUZZ=full` makes all calls
(20,000, about two minutes); without it every parameter gets a few of the values.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from support import api_probes
from torch import nn

import gossamer as gs
from gossamer.errors import GossamerError, InputError

_FULL = os.environ.get("GOSSAMER_FUZZ") == "full"
# Values of each parameter: a few in turn, or all.
_STRIDE = 1 if _FULL else 31
# Every so many accepted objects are used.
_USED = 1 if _FULL else 7
# These load packages that take half a minute, or train for as long as their arguments say.
_LEFT_OUT = {"HuggingFace", "MLflow", "TensorBoard", "Transformers", "WandB", "compare", "run"}
_LONGEST = 700  # characters of a sentence


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _assert_sentence(error: GossamerError) -> None:
    text = str(error)
    assert text
    assert "\n" not in text
    assert len(text) <= _LONGEST


@pytest.mark.parametrize("name", [n for n in api_probes.targets() if n not in _LEFT_OUT])
def test_a_call_returns_or_raises_a_sentence(name: str) -> None:
    labels = list(api_probes.VALUES)
    accepted = 0
    for place, parameter in enumerate(api_probes.parameters(name)):
        begin = (len(name) + 7 * place) % _STRIDE
        for label in labels[begin::_STRIDE]:
            try:
                made = api_probes.call(name, parameter, api_probes.VALUES[label]())
            except GossamerError as error:
                _assert_sentence(error)
                continue
            except Exception as error:
                raise AssertionError(f"{name}({parameter}={label}): {error!r}") from error
            accepted += 1
            if accepted % _USED == 0:
                _use(made, f"{name}({parameter}={label})")


def _use(made: Any, call: str) -> None:
    studies = api_probes.uses(made)
    while True:
        try:
            study = next(studies, None)
            if study is None:
                return
            gs.run(study)
        except GossamerError as error:
            _assert_sentence(error)
        except Exception as error:
            raise AssertionError(f"{call} is accepted, and fails later: {error!r}") from error


NUMBERS = [np.float32(0.5), np.float64(0.5), torch.tensor(0.5), np.array(0.5)]


@pytest.mark.parametrize("eta", NUMBERS, ids=repr)
def test_numbers_of_numpy_and_torch_are_numbers(eta: Any) -> None:
    """A run with them equals a run with Python's own number, and so do its spec and label."""
    expected = gs.run(gs.Study(gs.DPSGD(eta=0.5), rounds=2))
    study = gs.Study(gs.DPSGD(eta=eta), rounds=np.int64(2), batch=torch.tensor(32), seed=np.int8(0))
    assert study.algorithm == gs.DPSGD(eta=0.5)
    found = gs.run(study)
    assert found.spec == expected.spec
    assert torch.equal(found.models["weight"], expected.models["weight"])


def test_small_integers_of_numpy_do_not_overflow() -> None:
    assert len(gs.Full(np.int16(300)).links(0).a) == 300 * 299 // 2
    assert gs.Ring(3.0) == gs.Ring(3)


def test_what_stands_for_a_part_is_that_part() -> None:
    module = nn.Linear(5, 3)
    x = np.eye(3)
    study = gs.Study(
        algorithm=gs.DPSGD,
        network=networkx.cycle_graph(4),
        data=(x, np.arange(3), x, np.arange(3)),
        split="iid",
        model=module,
        rounds=3.0,
    )
    assert study.algorithm == gs.DPSGD()
    assert study.network.links(0).a.tolist() == gs.Ring(4).links(0).a.tolist()
    assert study.data.samples == 3
    assert study.split == gs.Iid()
    assert study.model == gs.Module(module)
    assert (study.rounds, type(study.rounds)) == (3, int)


REFUSED = [
    (
        {"network": gs.Ring},
        "network = Ring is not accepted: give an object, as in gs.Ring(devices=…)",
    ),
    ({"data": (np.eye(3), np.arange(3))}, "give gs.from_arrays(x, y, x_test, y_test), or a tuple"),
    (
        {"data": np.eye(3)},
        "data = 'an array of shape [3, 3]' is not accepted: give gs.from_arrays(",
    ),
    ({"model": lambda: nn.Linear(5, 3)}, "give gs.Module(function)"),
    ({"model": 3}, "give an object such as gs.Softmax()"),
    ({"rounds": 2.5}, "rounds = 2.5 is not accepted: give a whole number"),
    ({"rounds": True}, "rounds = True is not accepted: give a whole number"),
    ({"rounds": 10**5000}, "rounds = a number of 5000 digits is not accepted"),
    (
        {"algorithm": gs.Ring(3)},
        "algorithm = Ring(devices=3) is not accepted: give an object such as",
    ),
    ({"measure": 20}, "measure = 20 is not accepted: give an object of the class Measure"),
]


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED)
def test_a_wrong_part_is_refused_in_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        gs.Study(**arguments)
    assert sentence in str(refused.value)
