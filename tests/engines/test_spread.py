"""Means and extremes that shards reduce are those of all values, bit for bit."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.shards import ThreadedShards

import gossamer as gs
from gossamer._core.spread import Spread, first_nan, first_not_finite, mean
from gossamer.engines import Record, Simulator
from gossamer.results.folder import columns
from gossamer.study.run import _check_losses, _check_metrics

VALUES = st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=40)


@settings(deadline=None)
@given(VALUES, st.integers(1, 5), st.randoms(use_true_random=False))
def test_the_mean_does_not_depend_on_the_groups(
    values: list[float], groups: int, random: object
) -> None:
    array = np.array(values)
    owner = np.array([hash((k, repr(random))) % groups for k in range(len(values))])
    spreads = []
    for group in np.unique(owner):
        devices = np.flatnonzero(owner == group)
        spreads.append(Spread.of(array[devices], devices))
    merged = Spread.merged(spreads)
    whole = Spread.of(array)
    assert merged.mean() == whole.mean() == math.fsum(values) / len(values)
    assert (merged.min(), merged.max(), len(merged)) == (min(values), max(values), len(values))
    assert merged.not_finite is None


def test_values_that_are_not_finite_are_found() -> None:
    even = Spread.of(np.array([1.0, np.inf, np.nan]), np.array([0, 2, 4]))
    odd = Spread.of(np.array([np.inf, 1.0, 1.0]), np.array([1, 3, 5]))
    merged = Spread.merged([even, odd])
    assert (first_not_finite(merged), first_nan(merged)) == (1, 4)
    assert math.isnan(merged.mean())
    assert math.isnan(merged.max())
    assert Spread.merged([odd]).mean() == math.inf
    assert first_nan(np.array([0.0, np.nan])) == 1
    assert first_not_finite(np.ones(3)) is None


def test_the_mean_of_few_values_is_that_of_numpy() -> None:
    few = np.random.default_rng(0).random(1000)
    assert mean(few) == few.mean()
    many = np.random.default_rng(0).random(1001)
    assert mean(many) == math.fsum(many) / 1001


@pytest.mark.parametrize("sample", [0, 20])
def test_a_row_of_many_devices_needs_no_value_per_device(sample: int) -> None:
    study = gs.Study(
        gs.WPM(3, 0.02),
        gs.Ring(1200),
        rounds=2,
        batch=1,
        measure=gs.Measure(test=20, devices=sample),
    )
    plan = study.plan()
    owner = np.arange(1200) % 3
    shards = ThreadedShards(plan, owner)
    shards.advance(2)
    records = shards.call(Simulator.record)
    whole = merged_arrays(records, shards)
    reduced = merged_spreads(records, shards)
    found = columns([reduced], plan.measure.columns)
    assert found == columns([whole], plan.measure.columns)
    assert not any(name.startswith("device_") for name in found)
    assert len(reduced.distance) == 0
    assert (len(reduced.loss) > 0) == (sample > 0)
    _check_losses(reduced)
    _check_metrics(reduced)


def merged_arrays(records: list[Record], shards: ThreadedShards) -> Record:
    """Return the record that has one value per device."""
    arrays = {}
    for name in ("distance", "power_distance"):
        arrays[name] = shards.merged([getattr(record, name) for record in records])
    if records[0].devices is not None:
        return replace(records[0], **arrays)
    arrays["loss"] = shards.merged([record.loss for record in records])
    accuracy = shards.merged([record.metrics["accuracy"] for record in records])
    return replace(records[0], metrics={"accuracy": accuracy}, **arrays)


def merged_spreads(records: list[Record], shards: ThreadedShards) -> Record:
    """Return the record that the driver of a cluster makes."""
    parts = []
    for record, shard in zip(records, shards.shards, strict=True):
        parts.append(record.reduced(shard.devices))
    spreads = {}
    for name in parts[0].spreads:
        spreads[name] = Spread.merged([part.spreads[name] for part in parts])
    return records[0].with_spreads(spreads)
