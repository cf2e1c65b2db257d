"""Labels and confusion matrices of devices, beside slow oracles."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import gossamer as gs
from gossamer.report import grouping
from gossamer.report.confusion import MAX_PRODUCTS, confusion, products
from gossamer.report.page_devices import device_facts
from gossamer.results.run import Run


def unpacked(text: str, devices: int, classes: int) -> np.ndarray:
    content = zlib.decompress(base64.b64decode(text))
    return np.frombuffer(content, "<u2").reshape(devices, classes, classes)


def finished(model: object, folder: Path) -> Run:
    study = gs.Study(gs.DPSGD(0.1), gs.Ring(5), model=model, rounds=12)
    gs.run(study, folder)
    return grouping.read(folder)


@pytest.mark.parametrize("model", [gs.Softmax(), gs.Mlp(hidden=(8,))], ids=["softmax", "mlp"])
def test_confusion_matrices_have_the_accuracy_that_was_measured(
    model: object, tmp_path: Path
) -> None:
    run = finished(model, tmp_path / "run")
    plan = run.study.plan()
    found = confusion(plan, run.models, MAX_PRODUCTS)
    assert found is not None
    assert found["devices"] == list(range(5))
    matrices = unpacked(found["counts"], 5, 10)
    truth = np.bincount(plan.task.data.y_test.numpy(), minlength=10)
    assert (matrices.sum(2) == truth).all()
    accuracy = np.trace(matrices, axis1=1, axis2=2) / truth.sum()
    np.testing.assert_allclose(accuracy, run.metrics["device_accuracy"][-1], atol=1e-6)


def test_predictions_are_those_of_a_plain_product(tmp_path: Path) -> None:
    run = finished(gs.Softmax(), tmp_path / "run")
    data = run.study.plan().task.data
    found = confusion(run.study.plan(), run.models, MAX_PRODUCTS)
    assert found is not None
    matrices = unpacked(found["counts"], 5, 10)
    x = data.x_test.reshape(len(data.x_test), -1)
    for device in range(5):
        expected = np.zeros((10, 10), dtype=int)
        scores = x @ run.models["weight"][device].T + run.models["bias"][device]
        for true, predicted in zip(data.y_test.tolist(), scores.argmax(1).tolist(), strict=True):
            expected[true, predicted] += 1
        assert (matrices[device] == expected).all()


def test_labels_are_counted_once_for_a_split_and_bounded_work_is_done(tmp_path: Path) -> None:
    run = finished(gs.Softmax(), tmp_path / "run")
    facts = device_facts([run, run])
    assert len(facts.labels) == 1
    task = run.study.plan().task
    for device, counts in enumerate(facts.labels[0]["counts"]):
        own = task.data.y[torch.from_numpy(task.split.of(device))]
        assert counts == np.bincount(own.numpy(), minlength=10).tolist()
    plan = run.study.plan()
    few = confusion(plan, run.models, products(plan) * 2 // 5)
    assert few is not None
    assert len(few["devices"]) == 2
    assert confusion(plan, run.models, 1000) is None


def test_a_page_does_without_what_is_not_there(tmp_path: Path) -> None:
    run = finished(gs.Softmax(), tmp_path / "run")
    (tmp_path / "run" / "models.safetensors").unlink()
    without_models = grouping.read(tmp_path / "run")
    facts = device_facts([without_models, replace(run, study=None)])
    assert facts.runs[0]["labels"] == 0
    assert facts.runs[0]["confusion"] is None
    assert facts.runs[1] == {"labels": None, "confusion": None}
    numbers = gs.Study(
        gs.DPSGD(0.05), gs.Ring(5), data=gs.LeastSquares(5), model=gs.LinearRegression(), rounds=2
    )
    gs.run(numbers, tmp_path / "numbers")
    assert device_facts([grouping.read(tmp_path / "numbers")]).labels == []
