from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import DataError, InputError
from gossamer.tasks.split_files import Lists
from gossamer.tasks.split_rules import (
    ByClass,
    Dirichlet,
    Drawn,
    Iid,
    Labels,
    OneLabel,
    SplitRule,
    Uneven,
)
from gossamer.tasks.splits import Split, batch, from_lists, whole

SEEDS = st.integers(0, 2**31)


def assert_partition(split: Split, samples: int, devices: int) -> None:
    assert split.devices == devices
    assert split.sizes.min() >= 1
    assert sorted(split.index.tolist()) == list(range(samples))
    assert split.offsets[0] == 0
    assert split.offsets[-1] == samples
    assert split.index.dtype == split.offsets.dtype == np.int64


def same(a: Split, b: Split) -> bool:
    return np.array_equal(a.index, b.index) and np.array_equal(a.offsets, b.offsets)


@st.composite
def labelled(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Draw labels, not all of which need occur, and at most as many devices as samples."""
    y = draw(st.lists(st.integers(0, 6), min_size=1, max_size=80))
    return np.array(y), draw(st.integers(1, len(y)))


@settings(max_examples=60)
@given(labelled(), SEEDS)
def test_iid_deals_out_every_sample_in_parts_that_differ_by_at_most_one(case, seed):
    y, devices = case
    split = Iid().make(y, devices, seed)
    assert_partition(split, len(y), devices)
    assert split.sizes.max() - split.sizes.min() <= 1


@settings(max_examples=60)
@given(labelled(), SEEDS, st.floats(0, 30))
def test_uneven_deals_out_every_sample(case, seed, sigma):
    y, devices = case
    assert_partition(Uneven(sigma).make(y, devices, seed), len(y), devices)


@settings(max_examples=60)
@given(labelled(), SEEDS, st.floats(-9, 9).map(lambda e: 10.0**e))
def test_dirichlet_deals_out_every_sample(case, seed, alpha):
    y, devices = case
    assert_partition(Dirichlet(alpha).make(y, devices, seed), len(y), devices)


@settings(max_examples=80)
@given(labelled(), SEEDS)
def test_one_label_per_device_in_turn_and_evenly(case, seed):
    y, devices = case
    labels, counts = np.unique(y, return_counts=True)
    if devices < len(labels):
        with pytest.raises(InputError, match=r"devices = .* at least .* labels"):
            OneLabel().make(y, devices, seed)
        return
    split = OneLabel().make(y, devices, seed)
    assert_partition(split, len(y), devices)
    held = [set(y[split.of(i)].tolist()) for i in range(devices)]
    for one in held:
        assert len(one) == 1
    # The naive way: in turn, skipping labels that have as many devices as samples.
    left = dict(zip(labels.tolist(), counts.tolist(), strict=True))
    expected: list[Any] = []
    while len(expected) < devices:
        for label in left:
            if left[label]:
                left[label] -= 1
                expected.append({label})
    assert held == expected[:devices]
    for label in labels.tolist():
        sizes = []
        for i in range(devices):
            if held[i] == {label}:
                sizes.append(split.sizes[i])
        assert max(sizes) - min(sizes) <= 1


def test_one_label_of_ten_on_ten_devices_is_the_papers_split():
    y = np.arange(1000) % 10
    split = OneLabel().make(y, 10, seed=0)
    for i in range(10):
        assert set(y[split.of(i)].tolist()) == {i}
    assert split.sizes.tolist() == [100] * 10


@settings(max_examples=80)
@given(labelled(), SEEDS, st.integers(1, 7))
def test_labels_gives_k_labels_to_each_and_every_sample_to_one(case, seed, k):
    y, devices = case
    labels, counts = np.unique(y, return_counts=True)
    possible = k <= len(labels) <= devices * k <= np.minimum(counts, devices).sum()
    if not possible:
        with pytest.raises(InputError):
            Labels(k).make(y, devices, seed)
        return
    split = Labels(k).make(y, devices, seed)
    assert_partition(split, len(y), devices)
    for i in range(devices):
        assert len(set(y[split.of(i)].tolist())) == k


def test_labels_holds_every_label_on_nearly_as_many_devices_and_varies_the_pairs():
    y = np.arange(2000) % 10
    split = Labels(2).make(y, 25, seed=0)
    held = [frozenset(y[split.of(i)].tolist()) for i in range(25)]
    assert Counter(chain(*held)) == dict.fromkeys(range(10), 5)
    assert len(set(held)) > 10


def test_dirichlet_has_the_moments_of_its_distribution():
    # A label's share on one device has mean 1/m and variance (1/m)(1 - 1/m)/(m·α + 1).
    y = np.zeros(4_000, dtype=np.int64)
    m = 10
    for alpha in (0.1, 1.0, 10.0):
        shares = np.array([Dirichlet(alpha).make(y, m, seed).sizes / len(y) for seed in range(300)])
        expected = (1 / m) * (1 - 1 / m) / (m * alpha + 1)
        # 3,000 (dependent) shares: the relative error of the variance is about 5 %; three times
        # that.
        assert np.var(shares) == pytest.approx(expected, rel=0.15)


def test_dirichlet_near_zero_puts_a_label_on_one_device_and_large_is_even():
    y = np.repeat(np.arange(3), 1000)
    tiny = Dirichlet(1e-9).make(y, 5, seed=1)
    holders = []
    for label in range(3):
        for i in range(5):
            holders.append((np.isin(np.flatnonzero(y == label), tiny.of(i))).mean())
    assert sorted(holders)[-3:] == pytest.approx(
        [1, 1, 1], abs=0.01
    )  # except for what empty devices took
    assert Dirichlet(1e9).make(y, 5, seed=1).sizes == pytest.approx([600] * 5, abs=3)
    few = Dirichlet(1e9).make(
        np.arange(6000) % 10, 1000, seed=1
    )  # 0.6 samples of each label per device
    assert few.sizes.min() >= 3
    assert few.sizes.max() <= 9


def test_uneven_sizes_follow_sigma():
    y = np.zeros(100_000)
    assert set(Uneven(0.0).make(y, 100, 0).sizes.tolist()) == {1000}
    log = np.log(Uneven(1.0).make(y, 1000, 0).sizes)
    assert np.std(log) == pytest.approx(1.0, rel=0.1)  # standard error 1/√2000 = 2 %, and rounding


RULES: list[SplitRule] = [Iid(), OneLabel(), Labels(2), Dirichlet(0.3), Uneven(), Drawn(7)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_a_split_is_pure_in_its_seed_and_differs_with_it(rule):
    y = np.arange(500) % 5
    np.random.seed(0)  # noqa: NPY002  the global generator must not matter
    one = rule.make(y, 20, seed=3)
    np.random.seed(1)  # noqa: NPY002
    assert same(one, rule.make(y, 20, seed=3))
    assert not same(one, rule.make(y, 20, seed=4))


@pytest.mark.parametrize("rule", RULES[:-1], ids=lambda rule: type(rule).__name__)
def test_more_devices_than_samples_is_refused_with_an_alternative(rule):
    with pytest.raises(
        InputError, match=r'devices = 11 .* at most 10, the number of samples, or split = "drawn"'
    ):
        rule.make(np.arange(10) % 2, 11, seed=0)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_no_devices_is_refused(rule):
    with pytest.raises(InputError, match="devices = 0"):
        rule.make(np.arange(10) % 2, 0, seed=0)


@pytest.mark.parametrize(
    "rule", [OneLabel(), Labels(2), Dirichlet()], ids=lambda rule: type(rule).__name__
)
def test_regression_targets_have_no_labels_to_split_by(rule):
    with pytest.raises(InputError, match="iid, uneven, drawn or lists"):
        rule.make(np.linspace(0, 1, 50, dtype=np.float32), 5, seed=0)


@pytest.mark.parametrize("rule", [Iid(), Uneven(), Drawn(3)], ids=lambda rule: type(rule).__name__)
def test_regression_targets_split_without_labels(rule):
    assert rule.make(np.linspace(0, 1, 50, dtype=np.float32), 5, seed=0).devices == 5


def test_drawn_with_a_hundred_thousand_devices():
    split = Drawn(32).make(np.arange(1437) % 10, 100_000, seed=0)
    assert split.devices == 100_000
    assert set(split.sizes.tolist()) == {32}
    counts = np.bincount(split.index, minlength=1437)
    expected = 3_200_000 / 1437  # 2,227 each; five standard deviations
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)
    assert np.array_equal(
        split.of(99_999), Drawn(32).make(np.arange(1437), 100_000, seed=0).of(99_999)
    )


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Labels(0), "k"),
        (lambda: Dirichlet(0.0), "alpha"),
        (lambda: Dirichlet(float("nan")), "alpha"),
        (lambda: Dirichlet(float("inf")), "alpha"),
        (lambda: Uneven(-1.0), "sigma"),
        (lambda: Uneven(float("nan")), "sigma"),
        (lambda: Drawn(0), "samples"),
        (lambda: Drawn(1 << 20).make(np.zeros(4), 1 << 20, 0), "samples"),
        (lambda: Labels(3).make(np.arange(10) % 2, 5, 0), "k"),
        (lambda: Labels(2).make(np.arange(10), 3, 0), "k"),
        (lambda: from_lists([]), "lists"),
        (lambda: from_lists([[0], []]), "lists"),
        (lambda: from_lists([[0], [0.5]]), "lists"),
        (lambda: from_lists([[0], [-1]]), "lists"),
        (lambda: from_lists([[0], [4]], samples=4), "lists"),
        (lambda: from_lists([[0, [1]]]), "lists"),  # type: ignore[list-item]
    ],
)
def test_bad_values_are_refused_by_name(make, field):
    with pytest.raises(InputError) as refusal:
        make()
    assert refusal.value.field == field


def test_lists_come_back_from_json_and_npz(tmp_path: Path):
    lists = [[3, 1], [0], [2, 3, 3]]
    (tmp_path / "a.json").write_text(json.dumps(lists))
    split = from_lists(lists)
    np.savez(tmp_path / "a.npz", index=split.index, offsets=split.offsets)
    for file in ("a.json", "a.npz"):
        read = Lists(tmp_path / file).make(np.zeros(4), 3, seed=0)
        assert [read.of(i).tolist() for i in range(3)] == lists


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[0, 1], [2]", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"a": 1}', "list of lists"),
        ("[[0, 1], 2]", "list of lists"),
        ("[[0, 1], []]", "device 1"),
        ("[[0, 1], [9]]", "from 0 to 3"),
        ("[[0, 1], [-1]]", "from 0 to 3"),
        ('[[0, 1], ["a"]]', "whole numbers"),
        ("[[0, 1], [true]]", "whole numbers"),
        ("[[0, 1], [99999999999999999999]]", "whole numbers"),
        ("[[0, 1], [2], [3]]", "3 devices, not 2"),
    ],
)
def test_broken_lists_are_refused_with_the_file_named(tmp_path: Path, text: str, said: str):
    path = tmp_path / "lists.json"
    path.write_text(text)
    with pytest.raises(DataError, match=said) as refusal:
        Lists(path).make(np.zeros(4), 2, seed=0)
    assert "lists.json" in str(refusal.value)


@pytest.mark.parametrize(
    "offsets", [[0, 2], [0, 3, 3], [1, 3], [0, 5, 3], [3], [[0, 3]], [0.0, 3.0], []]
)
def test_broken_offsets_are_refused(tmp_path: Path, offsets: list[int]):
    np.savez(tmp_path / "lists.npz", index=np.arange(3), offsets=np.array(offsets))
    with pytest.raises(DataError, match=r"lists\.npz: (index and )?offsets must"):
        Lists(tmp_path / "lists.npz").make(np.zeros(4), 1, seed=0)


def test_a_missing_file_of_lists_is_refused(tmp_path: Path):
    for name in ("none.json", "none.npz"):
        with pytest.raises(DataError, match=name):
            Lists(tmp_path / name).make(np.zeros(4), 1, seed=0)


@settings(max_examples=40)
@given(labelled(), SEEDS, st.integers(0, 10**6), st.integers(0, 5), st.integers(1, 40))
def test_batches_are_of_own_samples_and_independent_of_the_other_devices(case, seed, t, step, size):
    y, devices = case
    split = Uneven().make(y, devices, seed)
    everyone = batch(split, seed, t, step, size, np.arange(devices))
    assert everyone.shape == (devices, size)
    for device in range(devices):
        assert set(everyone[device].tolist()) <= set(split.of(device).tolist())
        assert np.array_equal(
            batch(split, seed, t, step, size, np.array([device]))[0], everyone[device]
        )


def test_batches_differ_by_round_step_device_and_seed():
    split = Drawn(1000).make(np.zeros(100_000), 3, seed=0)
    base = batch(split, 0, 0, 0, 50, np.arange(3))
    for other in (batch(split, 1, 0, 0, 50, np.arange(3)), batch(split, 0, 1, 0, 50, np.arange(3))):
        assert (base != other).mean() > 0.9
    assert (base != batch(split, 0, 0, 1, 50, np.arange(3))).mean() > 0.9
    assert (base[0] != base[1]).mean() > 0.9


def test_batches_are_uniform():
    split = from_lists([[5, 6, 7], [0, 1, 2, 3, 4]])
    drawn = np.stack([batch(split, 0, t, 0, 100, np.arange(2)) for t in range(200)], axis=1)
    for device, held in enumerate((3, 5)):
        counts = np.bincount(drawn[device].ravel(), minlength=8)[split.of(device)]
        chi2 = ((counts - 20_000 / held) ** 2 / (20_000 / held)).sum()
        assert chi2 < 25  # 2 and 4 degrees of freedom: beyond 25 has probability below 1e-4


@st.composite
def in_classes(draw: st.DrawFn) -> tuple[np.ndarray, tuple[str, ...]]:
    """Draw labels of which there are plenty, and the classes of some devices."""
    y = draw(st.lists(st.integers(0, 6), min_size=1, max_size=20))
    classes = draw(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=12))
    return np.repeat(np.array(y), 12), tuple(classes)


@settings(max_examples=60)
@given(in_classes(), SEEDS)
def test_by_class_gives_the_labels_in_turn_to_the_sorted_classes(case, seed):
    y, classes = case
    split = ByClass().make_for(y, len(classes), seed, {"ward": classes})
    assert_partition(split, len(y), len(classes))
    labels = sorted(set(y.tolist()))
    names = sorted(set(classes))
    owners: dict[int, set[str]] = {label: set() for label in labels}
    for turn in range(max(len(labels), len(names))):
        owners[labels[turn % len(labels)]].add(names[turn % len(names)])
    sizes: dict[int, list[int]] = {label: [] for label in labels}
    for device, name in enumerate(classes):
        held = Counter(y[split.of(device)].tolist())
        assert set(held) == {label for label in labels if name in owners[label]}
        for label, count in held.items():
            sizes[label].append(count)
    for counts in sizes.values():  # all that hold a label share it evenly
        assert max(counts) - min(counts) <= 1


def test_by_class_is_a_function_of_the_seed_and_keeps_the_labels():
    y = np.arange(300) % 3
    groups = {"class": ("x", "y") * 5, "ward": ("1", "2", "3", "4", "5") * 2}
    one = ByClass("ward").make_for(y, 10, 3, groups)
    other = ByClass("ward").make_for(y, 10, 4, groups)
    assert same(one, ByClass("ward").make_for(y, 10, 3, groups))
    assert not same(one, other)
    for device in range(10):
        assert set(y[one.of(device)]) == set(y[other.of(device)]) == {int(device % 5 % 3)}


@pytest.mark.parametrize(
    ("rule", "groups", "part"),
    [
        (ByClass(), {}, "kind = 'by-class' is not accepted: give another split"),
        (ByClass(), {"class": ("a", "b"), "ward": ("c", "c")}, "one of 'class', 'ward'"),
        (ByClass("role"), {"class": ("a", "b")}, "column = 'role' is not accepted: give one of"),
    ],
)
def test_by_class_needs_a_column(rule, groups, part):
    with pytest.raises(InputError, match=part):
        rule.make_for(np.arange(10) % 2, 2, 0, groups)


def test_by_class_leaves_no_device_without_samples():
    y = np.array([0, 0, 0, 0, 1])
    with pytest.raises(InputError, match="the labels of class 'b' have fewer samples"):
        ByClass().make_for(y, 4, 0, {"ward": ("a", "b", "b", "b")})
    with pytest.raises(InputError, match="a target is not one label"):
        ByClass().make_for(np.linspace(0, 1, 9), 2, 0, {"ward": ("a", "b")})


@given(st.integers(1, 6), st.integers(1, 4), st.data())
def test_whole_batches_are_the_samples_of_each_device(devices, size, data):
    split = Drawn(size).make(np.arange(9), devices, seed=0)
    some = np.array(data.draw(st.lists(st.integers(0, devices - 1), min_size=1, unique=True)))
    expected = [split.of(device).tolist() for device in some]
    assert whole(split, some).tolist() == expected


def test_whole_batches_of_all_devices_take_no_memory():
    split = Drawn(3).make(np.arange(9), 5, seed=0)
    assert np.shares_memory(whole(split, np.arange(5)), split.index)
