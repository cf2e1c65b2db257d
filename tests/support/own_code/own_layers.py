"""A file that own_parts imports."""

from torch import nn


def body(features: int, width: int) -> tuple[nn.Module, nn.Module]:
    return nn.Linear(features, width), nn.Tanh()
