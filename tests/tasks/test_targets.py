"""Data whose samples and targets have any shape and type: loaded, checked, split and refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gossamer as gs
from gossamer.tasks.split_rules import SplitRule
from gossamer.tasks.task import Task

SAMPLES = 12

# Targets, what they are, and the type that they are kept in.
TARGETS: dict[str, tuple[Any, str, torch.dtype]] = {
    "labels": (np.arange(SAMPLES) % 3, "labels", torch.int64),
    "bool labels": (np.arange(SAMPLES) % 2 == 0, "labels", torch.int64),
    "tokens": (np.arange(SAMPLES * 4).reshape(SAMPLES, 4) % 5, "tokens", torch.int64),
    "ignored tokens": (np.full((SAMPLES, 4), -100), "tokens", torch.int64),
    "masks": (np.zeros((SAMPLES, 4, 4), dtype=np.uint8), "tokens", torch.int64),
    "bools": (np.eye(SAMPLES, 3) > 0, "multi-label", torch.bool),
    "zeros and ones": (np.eye(SAMPLES, 3), "multi-label", torch.bool),
    "values": (np.linspace(0, 1, SAMPLES), "values", torch.float32),
    "several values": (np.linspace(0, 1, 2 * SAMPLES).reshape(-1, 2), "values", torch.float32),
    "one or zero": (np.arange(SAMPLES) % 2 * 1.0, "values", torch.float32),
}


def loaded(y: Any, tmp_path: Path, suffix: str) -> gs.Data:
    """Return data with tokens as samples, from memory or from a file."""
    x = np.arange(SAMPLES * 6, dtype=np.int32).reshape(SAMPLES, 6)
    arrays = {"x": x, "y": np.asarray(y), "x_test": x[:7], "y_test": np.asarray(y)[:7]}
    path = tmp_path / f"mine{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    elif suffix == ".safetensors":
        from safetensors.numpy import save_file

        save_file(arrays, path)
    else:
        return gs.from_arrays(**arrays, name="mine")
    return gs.Arrays(path).load()


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("suffix", ["", ".npz", ".safetensors"])
def test_types_and_shapes_say_what_is_learned(kind: str, suffix: str, tmp_path: Path) -> None:
    y, targets, dtype = TARGETS[kind]
    data = loaded(y, tmp_path, suffix)
    assert (data.targets, data.y.dtype, tuple(data.y.shape)) == (targets, dtype, y.shape)
    assert (data.classes is not None) == (targets == "labels")
    assert data.x.dtype == data.x_test.dtype == torch.int64
    np.testing.assert_allclose(data.y.numpy(), y, rtol=1e-6)
    assert repr(data) == repr(loaded(y, tmp_path, suffix))
    other = np.roll(y, 1, 0) if y.std() else np.ones_like(y)
    assert repr(data) != repr(loaded(other, tmp_path, suffix))
    validation = gs.Validation(FromMemory(data), share=0.25).load()
    assert (validation.samples, len(validation.y_test)) == (9, 3)
    assert (validation.targets, validation.y.dtype) == (targets, dtype)


class FromMemory:
    """A source of data that are there already."""

    def __init__(self, data: gs.Data) -> None:
        self.data = data

    def load(self) -> gs.Data:
        return self.data


def test_a_dataset_of_tokens_stays_whole_numbers() -> None:
    pairs = []
    for i in range(4):
        pairs.append((torch.tensor([i, i + 1, i + 2]), torch.tensor([i + 1, i + 2, -100])))
    data = gs.from_dataset(pairs, pairs)
    assert (data.x.dtype, data.y.dtype, data.targets) == (torch.int64, torch.int64, "tokens")


def test_samples_of_two_types_become_floats() -> None:
    data = gs.from_arrays([[1, 2], [3, 4]], [0, 1], [[0.5, 1.0]], [1])
    assert data.x.dtype == data.x_test.dtype == torch.float32


RULES: dict[str, SplitRule] = {
    "iid": gs.Iid(),
    "uneven": gs.Uneven(0.5),
    "drawn": gs.Drawn(3),
    "one-label": gs.OneLabel(),
    "labels": gs.Labels(1),
    "dirichlet": gs.Dirichlet(1.0),
}


@pytest.mark.parametrize("kind", ["tokens", "masks", "bools", "several values"])
@pytest.mark.parametrize("rule", RULES)
def test_splits_by_label_need_labels(kind: str, rule: str, tmp_path: Path) -> None:
    data = loaded(TARGETS[kind][0], tmp_path, "")
    study = gs.Study(network=gs.Ring(3), data=data, split=RULES[rule], model=gs.Mlp())
    if rule in ("iid", "uneven", "drawn"):
        assert study.plan().task.devices == 3
        return
    sentence = f"split.kind = '{rule}' is not accepted: give iid, uneven, drawn or lists"
    with pytest.raises(gs.InputError, match=sentence):
        study.plan()


@pytest.mark.parametrize("kind", TARGETS)
def test_a_worker_gets_targets_that_losses_can_use(kind: str, tmp_path: Path) -> None:
    """Classes are int64, all others of the type of the run; so are tokens of an embedding."""
    data = loaded(TARGETS[kind][0], tmp_path, "")
    split = gs.Iid().make(data.y.numpy(), 2, seed=0)
    outputs = 5 if data.targets == "tokens" else data.classes or data.y[0].numel()
    seen: list[tuple[torch.dtype, torch.dtype]] = []

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(SAMPLES * 6, outputs)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.table(x).sum(1)

    def loss(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append((outputs.dtype, y.dtype))
        return outputs.sum(1)

    task = Task(data, split, gs.Module(Net, loss), batch=2)
    worker = task.worker(np.arange(2), 0, torch.float64, torch.device("cpu"))
    worker.gradient(worker.start().expand(2, -1).contiguous(), 0)
    expected = torch.int64 if data.y.dtype == torch.int64 else torch.float64
    assert seen[-1] == (torch.float64, expected)
    only = task.only(np.array([1]))
    assert (only.data.y.dtype, only.data.targets) == (data.y.dtype, data.targets)


@pytest.mark.parametrize(
    ("labels", "named"), [([0, 1, 3], "2:"), ([0, 9], "1, 2, 3, 4, 5, …:"), ([1], "0:")]
)
def test_labels_that_skip_a_number_give_a_warning(labels: list[int], named: str) -> None:
    x = np.zeros((len(labels), 2))
    with pytest.warns(gs.DataWarning, match=f"no sample of arrays has the label {named}"):
        gs.from_arrays(x, labels, x, labels)
    everything = list(range(10))
    with pytest.warns(gs.DataWarning, match="no training sample of arrays has the label"):
        gs.from_arrays(x, labels, np.zeros((10, 2)), everything)  # the test samples have the others
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gs.from_arrays(np.zeros((10, 2)), everything, x, labels)


def test_floats_that_look_like_labels_give_a_warning() -> None:
    x = np.zeros((60, 2))
    y = np.arange(60) % 3.0
    with pytest.warns(gs.DataWarning, match=r"all are whole numbers \(0, 1, 2\): .*astype\(int\)"):
        gs.from_arrays(x, y, x, y)
    for values in (y % 2, y + 0.5, np.arange(60.0)):
        gs.from_arrays(x, values, x, values)  # outcomes of yes or no, and measurements


def test_words_are_refused_with_what_numbers_them() -> None:
    x = np.zeros((2, 2))
    with pytest.raises(gs.InputError, match=r"y = 'text such as cat' .*numpy\.unique"):
        gs.from_arrays(x, ["cat", "dog"], x, [0, 1])


EMBEDDING = gs.Module(lambda: nn.Embedding(72, 3))


@pytest.mark.parametrize(
    ("y", "model", "sentence"),
    [
        (np.full((SAMPLES, 6), 3), EMBEDDING, r"y = 3 .*classes from 0 to 2.*ignores -100"),
        (np.full((SAMPLES, 5), 1), EMBEDDING, r"\[batch, classes, 5\] or \[batch, 5, classes\]"),
        (np.eye(SAMPLES, 4), EMBEDDING, r"as many outputs as a target has values.*\[batch, 4\]"),
        (np.full((SAMPLES, 6), -1), EMBEDDING, "y = -1 .*-100 where a position does not count"),
        (np.full((SAMPLES, 1), 1), EMBEDDING, r"y = \[12, 1\].*labels as an array \[samples\]"),
        (np.full((SAMPLES, 6), 1), gs.Mlp(), "a class for each position"),
        (np.arange(SAMPLES) % 3, gs.Module(lambda: nn.Linear(6, 3)), "whole numbers"),
    ],
)
def test_targets_that_do_not_fit_are_refused_in_one_sentence(
    y: Any, model: gs.Module | gs.Mlp, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(gs.InputError, match=sentence) as refusal:
        model.learner(loaded(y, tmp_path, ""))
    assert "\n" not in str(refusal.value)


def test_another_index_can_be_ignored(tmp_path: Path) -> None:
    y = np.full((SAMPLES, 6), 1)
    y[:, 0] = 255
    data = loaded(y, tmp_path, "")
    learner = gs.Module(nn.Embedding(72, 3), gs.CrossEntropy(ignore_index=255)).learner(data)
    w = learner.init(0)[None]
    scores = learner.scores(w, data.x_test, data.y_test, {})
    assert scores.loss.isfinite().all()
