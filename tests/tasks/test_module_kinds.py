"""Modules as people have them: compiled, with several outputs, slow to stack, too large."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import gossamer as gs
from gossamer._core import memory
from gossamer.tasks import modules
from gossamer.tasks.modules import ModuleLearner

KEYS = torch.arange(3)


def small_data() -> gs.Data:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 5, generator=generator)
    y = torch.arange(12) % 3
    return gs.from_arrays(x, y, x, y)


def gradient(module: nn.Module, data: gs.Data) -> Tensor:
    """Return the gradients of three devices that share the module's parameters, in float64."""
    learner = gs.Module(module).learner(data)
    w = learner.init(0).double().expand(3, -1).contiguous()
    x = data.x
    if x.is_floating_point():
        x = x.double()
    out = torch.empty_like(w)
    batches = x.view(3, 4, *x.shape[1:])
    learner.gradient(w, batches, data.y.view(3, 4, *data.y.shape[1:]), {}, KEYS, out)
    return out


class Outputs(nn.Module):
    """A linear layer whose outputs are packed in some way."""

    def __init__(self, pack: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)
        self.pack = pack

    def forward(self, x: Tensor) -> Any:
        return self.pack(self.layer(x))


@pytest.mark.parametrize(
    "pack",
    [
        lambda x: (x, x.mean()),
        lambda x: [(x, None), 3],
        lambda x: {"loss": None, "logits": x},
        lambda x: SimpleNamespace(hidden=None, logits=x),
    ],
)
def test_the_logits_or_the_first_of_several_outputs(pack: Callable[[Tensor], Any]) -> None:
    packed = Outputs(pack)
    plain = Outputs(lambda x: x)
    plain.load_state_dict(packed.state_dict())
    assert torch.equal(gradient(packed, small_data()), gradient(plain, small_data()))


def compiled(module: nn.Module) -> Any:
    return torch.compile(module, backend="eager")  # others need a compiler


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile imports torch.jit
def test_compiled_modules_run_uncompiled() -> None:
    """Their parameters have the names that they have without torch.compile."""
    plain = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    plain[0].requires_grad_(False)
    expected = gradient(plain, small_data())
    names = [name for name, p in plain.named_parameters() if p.requires_grad]
    inner = nn.Sequential(compiled(plain[0]), plain[1], compiled(plain[2]))
    for module in (compiled(plain), inner):
        learner = gs.Module(module).learner(small_data())
        assert list(learner.shapes) == names
        assert torch.equal(gradient(module, small_data()), expected)
    made = gs.Module(lambda: compiled(nn.Linear(5, 3))).learner(small_data())
    assert list(made.shapes) == ["weight", "bias"]
    assert (made.init(0) != made.init(1)).all()


class Cell(nn.Module):
    """A cell that is called step by step: torch can stack it, unlike the layer."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for step in range(x.shape[1]):
            state = self.cell(x[:, step, None], state)
        hidden = state[0] if isinstance(state, tuple) else state
        return self.head(hidden)


class Layer(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x[:, :, None])[0][:, -1])


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_layers_and_cells_agree(kind: str) -> None:
    """Both are trained; which of them runs one device at a time is said in one sentence."""
    torch.manual_seed(0)
    layer = getattr(nn, kind)(1, 4, batch_first=True)
    cell = getattr(nn, f"{kind}Cell")(1, 4)
    with torch.no_grad():
        for p, other in zip(cell.parameters(), layer.parameters(), strict=True):
            p.copy_(other)
    of_cell = Cell(cell)
    of_layer = Layer(layer)
    of_layer.head.load_state_dict(of_cell.head.state_dict())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = gradient(of_layer, small_data()), gradient(of_cell, small_data())
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-12)
    sentences = {str(warning.message) for warning in caught}
    assert any(text.startswith("Layer trains one device at a time") for text in sentences)
    assert all("\n" not in text and "performance drop" not in text for text in sentences)


class Sorts(nn.Module):
    """An operation without a batching rule, for which torch would warn in every process."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + torch.zeros_like(x[:, :3]).scatter_(1, x[:, :3].long() * 0, 1.0)


def test_torchs_warning_of_a_missing_rule_becomes_one_sentence() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = gradient(Sorts(), small_data())
    (warning,) = caught
    assert warning.category is gs.SpeedWarning
    assert str(warning.message) == (
        "Sorts trains one device at a time, which takes longer if there are many: "
        "torch has no batching rule for aten::scatter_.value"
    )
    assert found.isfinite().all()


class Attention(nn.Module):
    """A small transformer for tokens, whose attention has a causal mask."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(7, width)
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 7)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.table(x)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=hidden.dtype)
        return self.head(self.encoder(hidden, mask=mask, is_causal=True))


@pytest.mark.parametrize("stacked", [True, False])
def test_attention_runs_stacked_if_it_is_small(
    stacked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither torch nor gossamer warns, and the gradient is that of a plain loop."""
    torch.manual_seed(0)
    x = torch.randint(7, (12, 10))
    y = x.roll(-1, 1)
    y[:, -1] = -100
    data = gs.from_arrays(x, y, x, y)
    module = Attention(8)
    if not stacked:
        monkeypatch.setattr(modules, "_WIDE", 10)
    learner = gs.Module(module).learner(data)
    assert isinstance(learner, ModuleLearner)
    assert (learner.at_once > 1) is stacked
    found = gradient(module, data)
    plain = module.double()
    for device in range(3):
        own = slice(4 * device, 4 * device + 4)
        loss = F.cross_entropy(plain(x[own]).transpose(1, 2), y[own])
        slopes = torch.autograd.grad(loss, list(plain.parameters()))
        expected = torch.cat([g.reshape(-1) for g in slopes])
        torch.testing.assert_close(found[device], expected, rtol=1e-8, atol=1e-11)
    w = learner.init(0).double().expand(2, -1).contiguous()
    scores = learner.scores(w, data.x_test, data.y_test, {})
    expected = F.cross_entropy(plain(x).transpose(1, 2), y).expand(2)
    torch.testing.assert_close(scores.loss, expected.detach(), rtol=1e-8, atol=1e-11)


def test_models_larger_than_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 10_000)
    data = small_data()
    split = gs.Iid().make(data.y.numpy(), 3, 0)
    task = gs.Task(data, split, gs.Mlp((100,)))
    sentence = r"model = '903 parameters on 3 devices'.*take 0.0 GiB, and 0.0 GiB are available"
    with pytest.raises(gs.InputError, match=sentence):
        task.worker(np.arange(3), 0, torch.float32, torch.device("cpu"))
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    task.worker(np.arange(3), 0, torch.float32, torch.device("cpu"))
