"""Measuring all devices, or a sample of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.plans import images, plan_of, run
from support.shards import ThreadedShards

import gossamer as gs
from gossamer.engines import Measure, Plan, Simulator, measuring
from gossamer.engines.measuring import distances
from gossamer.errors import InputError
from gossamer.results.folder import columns
from gossamer.results.statistics import sampling_error

DEVICES = 12


def plan(model: Any = None, **measure: Any) -> Plan:
    task = images(model or gs.Softmax(), DEVICES)
    network = gs.Random(DEVICES, 0.3) & gs.Churn(0.2, 0.5)
    settings = Measure(metrics=("accuracy", "macro-f1"), **measure)
    return plan_of(gs.WPM(3, 0.05), network, 6, task=task, measure=settings)


@pytest.mark.parametrize("model", [gs.Softmax(), gs.Cnn((2, 3), norm=True)])
def test_a_sample_has_the_values_of_its_devices(model: Any) -> None:
    of_all = run(plan(model)).record()
    sampled = run(plan(model, devices=5)).record()
    assert sampled.devices is not None
    assert len(sampled.devices) == len(sampled.loss) == 5
    np.testing.assert_allclose(sampled.loss, of_all.loss[sampled.devices], rtol=1e-12)
    for name, values in sampled.metrics.items():
        np.testing.assert_allclose(values, of_all.metrics[name][sampled.devices], rtol=1e-12)
    # Merged models and distances are those of all devices.
    assert sampled.merged == of_all.merged
    assert sampled.merged_power == of_all.merged_power
    assert np.array_equal(sampled.distance, of_all.distance)
    assert np.array_equal(sampled.power_distance, of_all.power_distance)


def test_the_sample_is_drawn_by_the_seed_and_stays() -> None:
    first = plan(devices=5)
    assert first.measured_devices is not None
    assert sorted(set(first.measured_devices)) == first.measured_devices.tolist()
    simulator = Simulator(first)
    for t in range(3):
        simulator.advance(t)
        found = simulator.record().devices
        assert found is not None
        assert np.array_equal(found, first.measured_devices)
    samples = set()
    for seed in range(10):
        sample = replace(first, seed=seed).measured_devices
        assert sample is not None
        samples.add(tuple(sample))
    assert len(samples) > 5


@pytest.mark.parametrize("devices", [0, DEVICES, 1000])
def test_all_devices_are_measured(devices: int) -> None:
    assert plan(devices=devices).measured_devices is None
    assert run(plan(devices=devices)).record().devices is None


def test_shards_measure_their_parts_of_the_sample() -> None:
    one = run(plan(devices=5)).record()
    assert one.devices is not None
    owner = np.zeros(DEVICES, dtype=np.int64)
    owner[one.devices[:3]] = 1
    free = np.setdiff1d(np.arange(DEVICES), one.devices)
    owner[free[0]] = 2  # a shard without a device of the sample
    shards = ThreadedShards(plan(devices=5), owner)
    shards.advance(6)
    records = shards.call(Simulator.record)
    assert len(records[2].loss) == 0
    found: dict[int, float] = {}
    for record in records:
        assert record.devices is not None
        found |= dict(zip(record.devices.tolist(), record.loss.tolist(), strict=True))
    assert sorted(found) == one.devices.tolist()
    np.testing.assert_allclose([found[device] for device in sorted(found)], one.loss, rtol=1e-9)


@pytest.mark.parametrize("devices", [1, -1, 2.5, "many"])
def test_numbers_of_devices_that_are_not_accepted(devices: Any) -> None:
    with pytest.raises(InputError, match="devices = "):
        Measure(devices=devices)


def test_a_row_states_the_error_of_its_means() -> None:
    sampled = plan(devices=5)
    record = run(sampled).record()
    table = columns([record], sampled.measure.columns)
    assert table["accuracy"] == [record.metrics["accuracy"].mean()]
    assert table["accuracy_sampling_error"] == [sampling_error(record.metrics["accuracy"], DEVICES)]
    assert not [name for name in table if name.startswith("device_")]
    full = columns([run(plan()).record()], sampled.measure.columns)
    assert not [name for name in full if name.endswith("_sampling_error")]


def test_the_interval_of_a_sample_holds_the_mean_of_all() -> None:
    generator = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        values = generator.normal(size=60)
        sample = generator.choice(values, 20, replace=False)
        held += abs(sample.mean() - values.mean()) <= sampling_error(sample, 60)
    # 95 % of 2000, ± four standard deviations
    assert abs(held / 2000 - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 2000)


@pytest.mark.parametrize("rows", [1, 4, 5, 9, 33])
def test_distances_in_parts_are_those_of_all_rows(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "_ELEMENTS_AT_ONCE", 1)
    w = torch.randn(rows, 700, generator=torch.Generator().manual_seed(0))
    mean = w.mean(0)
    assert torch.equal(distances(w, mean), (w - mean).norm(dim=1))
