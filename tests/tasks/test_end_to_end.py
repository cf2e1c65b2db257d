"""Whole runs of what people train: each must reach a loss that it cannot reach by chance."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import gossamer as gs

DEVICES = 4


def run(data: gs.Data, model: gs.Module | gs.Mlp, eta: float, rounds: int) -> gs.Run:
    """Train with AdamW on a ring; every device is scored on all test samples."""
    method = gs.DPSGD(eta=eta, optimizer=gs.AdamW())
    study = gs.Study(method, gs.Ring(DEVICES), data, gs.Iid(), model, rounds=rounds, batch=16)
    return gs.run(study)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


class Transformer(nn.Module):
    """A causal language model: tokens [batch, length] to [batch, length, tokens]."""

    def __init__(self, tokens: int, length: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(tokens, width)
        self.positions = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.05, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(width, tokens)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.table(x) + self.positions
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=hidden.dtype)
        return self.head(self.encoder(hidden, mask=mask, is_causal=True))


def test_a_transformer_learns_what_attention_alone_can_tell() -> None:
    """The target is the first token of the sequence; the first positions do not count."""
    tokens = 5
    x = torch.randint(tokens, (300, 6), generator=generator())
    y = x[:, :1].repeat(1, 6)
    y[:, :2] = -100
    data = gs.from_arrays(x[:240], y[:240], x[240:], y[240:], name="first token")
    assert data.x.dtype == torch.int64
    finished = run(data, gs.Module(lambda: Transformer(tokens, 6, 16)), eta=0.01, rounds=120)
    assert finished.summary["loss"] < 0.2 * math.log(tokens)


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 8)
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.table(x))[0][:, -1])


@pytest.mark.filterwarnings("ignore::gossamer.SpeedWarning")
def test_an_lstm_remembers_the_first_token() -> None:
    x = torch.randint(4, (300, 6), generator=generator())
    y = x[:, 0]
    data = gs.from_arrays(x[:240], y[:240], x[240:], y[240:], name="memory")
    finished = run(data, gs.Module(Lstm), eta=0.02, rounds=100)
    assert finished.summary["loss"] < 0.2 * math.log(4)
    assert finished.summary["accuracy"] > 0.9


def squares(count: int) -> tuple[Tensor, Tensor]:
    """Return noisy images with a dark or a bright square, and masks: background, dark, bright."""
    draws = generator()
    images = 0.3 * torch.randn(count, 1, 8, 8, generator=draws)
    masks = torch.zeros(count, 8, 8, dtype=torch.int64)
    corners = torch.randint(5, (count, 2), generator=draws).tolist()
    for i, (row, column) in enumerate(corners):
        square = (i, slice(row, row + 4), slice(column, column + 4))
        masks[square] = 1 + i % 2
        images[i, 0, row : row + 4, column : column + 4] += 2 * (i % 2) - 1
    return images, masks


def test_a_segmentation_net_finds_the_squares() -> None:
    x, y = squares(160)
    data = gs.from_arrays(x[:120], y[:120], x[120:], y[120:], name="squares")

    def net() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 3, 1),
        )

    finished = run(data, gs.Module(net), eta=0.02, rounds=60)
    assert finished.summary["loss"] < 0.25 * math.log(3)


def test_multi_output_regression() -> None:
    draws = generator()
    x = torch.randn(400, 4, generator=draws)
    y = torch.tanh(x @ torch.randn(4, 3, generator=draws))
    data = gs.from_arrays(x[:320], y[:320], x[320:], y[320:], name="three values")
    before = y[320:].square().sum(1).mean().item() / 2  # the loss of the answer 0
    finished = run(data, gs.Mlp((32,)), eta=0.02, rounds=100)
    assert finished.summary["loss"] < 0.2 * before
    robust = run(data, gs.Mlp((32,), loss=gs.Huber(0.5)), eta=0.02, rounds=100)
    assert robust.summary["loss"] < 0.2 * before


def test_multi_label_classification() -> None:
    draws = generator()
    x = torch.randn(400, 6, generator=draws)
    y = x @ torch.randn(6, 4, generator=draws) > 0
    data = gs.from_arrays(x[:320], y[:320], x[320:], y[320:], name="four labels")
    assert data.targets == "multi-label"
    finished = run(data, gs.Mlp((16,)), eta=0.03, rounds=80)
    assert finished.summary["loss"] < 0.4 * math.log(2)
