"""Training modules on 16 devices: gossamer against a plain loop over the devices in torch.

    python benchmarks/modules.py [--threads 1 2] [--blocks N]
    python benchmarks/modules.py --quick        three blocks, one thread; writes nothing

The plain loop holds one module and one `torch.optim.SGD` per device, and takes their steps one
after the other, with one torch thread or with all: whichever is faster in a block counts, since
small operations are often slower with two threads. gossamer takes the gradients of all devices and
subtracts them. All alternate in short blocks in one process, so that other load affects all alike.
A ratio is the median over the blocks, with the 10 % and 90 % quantiles.

The results are written to benchmarks/results/modules-PROCESSOR-INSTRUCTIONS.md, and
`python docs/blocks.py docs/your-own/model.md` shows every such file on the page about models.
"""

import own_process  # noqa: F401  # isort: skip

import argparse
import copy
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from result_names import file_name, title
from torch import Tensor, nn
from torch.nn import functional as F

import gossamer as gs
from gossamer.backend import versions

RESULTS = Path(__file__).with_name("results")
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


def measure(threads: int, blocks: int) -> Iterator[str]:
    """Yield the rows of the table for a number of threads.

    Args:
        threads: Number of threads; the plain loop has one or as many, whichever is faster.
        blocks: Number of blocks that a ratio is the median of.
    """
    models: dict[str, tuple[nn.Module, int]] = {
        "transformer, 2 layers, width 32, length 16": (Transformer(32, 16), 16),
        "transformer, 2 layers, width 64, length 64": (Transformer(64, 64), 64),
        "LSTM, width 64, length 64, one device at a time": (Lstm(64), 64),
    }
    for name, (module, length) in models.items():
        data = text(length)
        for batch in (1, 4, 16):
            loop = plain_loop(module, data, batch)
            stack = stacked(module, data, batch)
            taken = []
            for _ in range(blocks):
                best = min(seconds(loop, one) for one in {1, threads})
                taken.append([best, seconds(stack, threads)])
            plain, ours = np.array(taken).T
            low, middle, high = np.quantile(plain / ours, [0.1, 0.5, 0.9])
            yield (
                f"| {name} | {batch} | {threads} | {1e3 * np.median(plain):.0f} "
                f"| {1e3 * np.median(ours):.0f} | {middle:.2f} | {low:.2f}–{high:.2f} |"
            )


def write(lines: list[str], blocks: int) -> None:
    """Write the table as a section of the page about models."""
    made_by = versions()
    processor = made_by["processor"]
    heading = (
        f"#### {title(processor)}\n\ngossamer {made_by['gossamer']}, torch {made_by['torch']}; "
        f"{blocks} blocks.\n\n"
    )
    path = RESULTS / f"{file_name('modules', processor)}.md"
    path.write_text(heading + "\n".join(lines) + "\n")
    print(f"written: {path}")


def main() -> None:
    """Measure all models, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="three blocks, and no files")
    given = parser.parse_args()
    if given.quick:
        given.threads = [1]
        given.blocks = 3
    warnings.simplefilter("ignore", gs.SpeedWarning)
    torch.manual_seed(0)
    lines = [
        "| model | batch | threads | plain loop, ms | gossamer, ms | ratio | 10–90 % |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for threads in given.threads:
        for line in measure(threads, given.blocks):
            print(line, flush=True)
            lines.append(line)
    if not given.quick:
        write(lines, given.blocks)


if __name__ == "__main__":
    main()
