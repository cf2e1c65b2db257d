"""Training modules on 16 devices: gossamer against a plain loop over the devices in torch.

    python benchmarks/modules.py [--threads N] [--blocks N]

The plain loop holds one module and one `torch.optim.SGD` per device, and takes their steps one
after the other, with one torch thread or with all: whichever is faster in a block counts, since
small operations are often slower with two threads. gossamer takes the gradients of all devices and
subtracts them. All alternate in short blocks in one process, so that other load affects all alike.
A ratio is the median over the blocks, with the 10 % and 90 % quantiles.
"""

import own_process  # noqa: F401  # isort: skip

import argparse
import copy
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import gossamer as gs

DEVICES = 16
TOKENS = 96
RATE = 0.01

Step = Callable[[], None]


class Transformer(nn.Module):
    """A causal language model of two layers."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, width)
        self.positions = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, 0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, TOKENS)
        self.mask: Tensor
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.table(x) + self.positions
        return self.head(self.layers(hidden, mask=self.mask, is_causal=True))


class Lstm(nn.Module):
    """A language model of one recurrent layer, which torch cannot run for several devices."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.table(x))[0])


def text(length: int) -> gs.Data:
    """Return random tokens, and the next token of each."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(TOKENS, (400, length + 1), generator=generator)
    return gs.from_arrays(x[:360, :-1], x[:360, 1:], x[360:, :-1], x[360:, 1:])


def plain_loop(module: nn.Module, data: gs.Data, batch: int) -> Step:
    """Return a function that takes one step on every device, one after the other."""
    modules = [copy.deepcopy(module) for _ in range(DEVICES)]
    optimizers = [torch.optim.SGD(own.parameters(), lr=RATE) for own in modules]
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        for own, optimizer in zip(modules, optimizers, strict=True):
            chosen = torch.randint(data.samples, (batch,), generator=generator)
            optimizer.zero_grad()
            outputs = own(data.x[chosen])
            F.cross_entropy(outputs.transpose(1, 2), data.y[chosen]).backward()
            optimizer.step()

    return step


def stacked(module: nn.Module, data: gs.Data, batch: int) -> Step:
    """Return a function that takes one step on every device with gossamer."""
    split = gs.Iid().make(data.y.numpy(), DEVICES, seed=0)
    task = gs.Task(data, split, gs.Module(module), batch)
    worker = task.worker(np.arange(DEVICES), 0, torch.float32, torch.device("cpu"))
    w = worker.start().expand(DEVICES, -1).contiguous()
    t = 0

    def step() -> None:
        nonlocal t
        w.sub_(worker.gradient(w, t), alpha=RATE)
        t += 1

    return step


def seconds(step: Step, threads: int) -> float:
    """Return the duration of a step; the first one after a change of threads does not count."""
    torch.set_num_threads(threads)
    step()
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=15)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", gs.SpeedWarning)
    torch.manual_seed(0)
    models: dict[str, tuple[nn.Module, int]] = {
        "transformer, width 32, length 16": (Transformer(32, 16), 16),
        "transformer, width 64, length 64": (Transformer(64, 64), 64),
        "LSTM, width 64, length 64": (Lstm(64), 64),
    }
    print("| model | batch | plain loop, ms | gossamer, ms | ratio |")
    print("|---|---|---|---|---|")
    for name, (module, length) in models.items():
        data = text(length)
        for batch in (1, 4, 16):
            loop = plain_loop(module, data, batch)
            stack = stacked(module, data, batch)
            taken = []
            for _ in range(arguments.blocks):
                best = min(seconds(loop, 1), seconds(loop, arguments.threads))
                taken.append([best, seconds(stack, arguments.threads)])
            plain, ours = np.array(taken).T
            low, middle, high = np.quantile(plain / ours, [0.1, 0.5, 0.9])
            print(
                f"| {name} | {batch} | {1e3 * np.median(plain):.0f} | {1e3 * np.median(ours):.0f} "
                f"| {middle:.2f} ({low:.2f} to {high:.2f}) |",
                flush=True,
            )


if __name__ == "__main__":
    main()
