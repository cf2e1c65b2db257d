"""Data for choosing on: a share of the training samples takes the place of the test samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import InputError
from gossamer.tasks.data import Data, Source
from gossamer.tasks.own_devices import brings_devices
from gossamer.tasks.splits import own_split


@register("data", "validation")
@dataclass(frozen=True)
class Validation:
    """Data for choosing on: a share of the training samples replaces the test samples.

    They are no longer trained on, and the true test samples are not looked at: a choice that is
    made here can be tested there.

    Args:
        data: The source.
        share: Share of the training samples to test on.
        seed: Seed of the draw.

    Raises:
        InputError: If the share is not between 0 and 1, or the source is synthetic.

    Example:
        >>> from gossamer import Digits
        >>> data = Validation(Digits(), share=0.1).load()
        >>> data.samples, len(data.x_test)
        (1293, 144)
    """

    data: Source
    share: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        checks.number("share", self.share, above=0, below=1)
        if own_split(self.data) is not None:
            raise InputError(
                "data",
                type(self.data).__name__,
                "data that are not synthetic: those have no test samples",
            )

    @property
    def brings_devices(self) -> bool:
        """True if the source says which device holds which samples."""
        return brings_devices(self.data)

    def load(self) -> Data:
        whole = self.data.load()
        count = math.ceil(self.share * whole.samples)
        if count >= whole.samples:
            accepted = f"a share that leaves some of the {whole.samples} samples to train on"
            raise InputError("share", self.share, accepted)
        order = torch.from_numpy(draws.permutation(whole.samples, self.seed, "validation"))
        if whole.owner is not None:
            order = _kept_last(order, whole.owner)
            count = min(count, whole.samples - len(whole.device_names))
        # Sorted, so that a split by rule deals the samples out much as it would the whole data.
        test = order[:count].sort().values
        train = order[count:].sort().values
        owner = None
        if whole.owner is not None:
            owner = whole.owner[train]
        return replace(
            whole,
            x=whole.x[train],
            y=whole.y[train],
            x_test=whole.x[test],
            y_test=whole.y[test],
            owner=owner,
        )


def _kept_last(order: Tensor, owner: Tensor) -> Tensor:
    """Return an order of samples in which the last are one of every device.

    What is trained on is the end of the order, so every device keeps a sample.
    """
    _, first = np.unique(owner[order].numpy(), return_index=True)
    kept = np.zeros(len(order), dtype=bool)
    kept[first] = True
    kept_samples = torch.from_numpy(kept)
    return torch.cat([order[~kept_samples], order[kept_samples]])
