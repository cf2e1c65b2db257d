"""Histograms of weights with fixed bins."""

from __future__ import annotations

import numpy as np
import torch

from gossamer._core import weight_bins


def test_counts_are_those_of_numpy() -> None:
    w = torch.randn(7, 1001, dtype=torch.float64) * 0.3
    expected, _ = np.histogram(w.numpy(), weight_bins.edges())
    # float32 may put a value at an edge into the bin beside it.
    assert np.abs(weight_bins.histogram(w) - expected).sum() <= 4
    assert weight_bins.histogram(w).sum() == w.numel()


def test_parts_add_up() -> None:
    w = torch.randn(8, 100)
    parts = weight_bins.histogram(w[:3]) + weight_bins.histogram(w[3:])
    assert (parts == weight_bins.histogram(w)).all()


def test_what_has_no_bin_of_its_own() -> None:
    counts = weight_bins.histogram(torch.tensor([0.0, -0.0, 1e-9, -1e9, 1e9, torch.inf]))
    middle = weight_bins.BINS // 2
    assert (counts[middle], counts[0], counts[-1], counts.sum()) == (3, 1, 2, 6)
    assert len(weight_bins.edges()) == weight_bins.BINS + 1


def test_of_many_weights_every_process_takes_the_same_devices() -> None:
    devices = np.arange(1000)
    rows = weight_bins.sampled(devices, 1000, 5000)
    assert rows.tolist() == list(range(0, 1000, 20))
    own = [weight_bins.sampled(part, 1000, 5000) for part in np.split(devices, 4)]
    taken = np.concatenate([part[k] for part, k in zip(np.split(devices, 4), own, strict=True)])
    assert taken.tolist() == rows.tolist()
    assert len(weight_bins.sampled(devices[:10], 10, 650)) == 10
    assert weight_bins.sampled(devices[:10], 10, 10**9).tolist() == [0]
