"""Train a language model on the source code of Python's standard library, one package per device.

Every device holds the text of one package: tables of character codes, HTML entities, documentation,
network protocols. A small transformer predicts the next character. The table shows the bits per
character that the models need for text that no device has seen, and the bytes that were sent.

    python examples/language_model.py                                     # the whole comparison
    python examples/language_model.py --devices 4 --steps 40 --tune 0     # in a minute

Nothing is downloaded: the standard library is part of every Python.
"""

import argparse
import math
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

import gossamer as gs

PACKAGES = [
    "asyncio",
    "collections",
    "concurrent",
    "ctypes",
    "email",
    "encodings",
    "html",
    "http",
    "importlib",
    "json",
    "logging",
    "multiprocessing",
    "pydoc_data",
    "unittest",
    "urllib",
    "xml",
]
CHARACTERS = 128  # ASCII; every other character becomes "?"
LENGTH = 64  # characters that the model sees at once
MAX_TEXT = 200_000  # characters per package: no device has much more than the others
BATCH = 8  # windows per step and device
TEST_WINDOWS = 12  # of unseen text, per package


# -- the text


def read_package(name: str) -> NDArray[np.int64]:
    """Return the text of a package of the standard library as character codes."""
    folder = Path(sysconfig.get_path("stdlib")) / name
    text = ""
    for file in sorted(folder.rglob("*.py")):
        text += file.read_text(encoding="utf-8", errors="replace")
    codes = text[:MAX_TEXT].encode("ascii", errors="replace")
    return np.frombuffer(codes, dtype=np.uint8).astype(np.int64)


def windows(text: NDArray[np.int64], stride: int) -> NDArray[np.int64]:
    """Return windows of LENGTH + 1 characters: the inputs, and one character later the targets."""
    starts = np.arange(0, len(text) - LENGTH - 1, stride)
    return text[starts[:, None] + np.arange(LENGTH + 1)]


@dataclass(frozen=True)
class Text:
    """The windows of all packages, and the numbers of those that each device holds."""

    data: gs.Data
    split: list[NDArray[np.int64]]


def load_text(packages: Sequence[str], part: str) -> Text:
    """Return the text of some packages.

    The last fifth of every package is not trained on. Its first half is for choosing learning
    rates ("tune"), its second half for the results ("test").
    """
    trained = []
    unseen = []
    for name in packages:
        text = read_package(name)
        tenth = len(text) // 10
        trained.append(windows(text[: 8 * tenth], stride=LENGTH // 2))
        held_out = text[9 * tenth :]
        if part == "tune":
            held_out = text[8 * tenth : 9 * tenth]
        found = windows(held_out, stride=LENGTH)
        unseen.append(found[np.linspace(0, len(found) - 1, TEST_WINDOWS).astype(int)])
    train = np.concatenate(trained)
    test = np.concatenate(unseen)
    data = gs.from_arrays(train[:, :-1], train[:, 1:], test[:, :-1], test[:, 1:], name="stdlib")
    ends = np.cumsum([len(part) for part in trained])
    return Text(data, np.split(np.arange(len(train)), ends[:-1]))


# -- the model


class Block(nn.Module):
    """Causal self-attention and a perceptron, each with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        joint = self.queries_keys_values(self.norm_1(x))
        q, k, v = joint.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.perceptron(self.norm_2(x))


class Transformer(nn.Module):
    """A language model of characters with 121 thousand parameters."""

    def __init__(self, width: int = 64, heads: int = 4, blocks: int = 2) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, width)
        self.positions = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(blocks)])
        self.norm = nn.LayerNorm(width)
        self.outputs = nn.Linear(width, CHARACTERS)

    def forward(self, x: Tensor) -> Tensor:
        return self.outputs(self.norm(self.blocks(self.characters(x) + self.positions)))


def bits(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the bits per character that the model needs: [sum, number of characters]."""
    nats = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="sum")
    return torch.stack([nats / math.log(2), torch.tensor(float(targets.numel()))])


# -- the comparison


@dataclass(frozen=True)
class Entry:
    """A method of the comparison, and the learning rate at which its search begins."""

    name: str
    algorithm: gs.Algorithm
    rate: float
    local_steps: int = 1
    alone: bool = False  # one device that holds all text


def entries(local_steps: int) -> list[Entry]:
    """Return the methods of the comparison."""
    noloco = gs.NoLoCo(local_steps=local_steps)
    diloco = gs.DiLoCo(local_steps=local_steps)
    return [
        Entry("all text on one device", gs.DAdam(), 0.003, alone=True),
        Entry("D-PSGD", gs.DPSGD(), 0.3),
        Entry("D-Adam", gs.DAdam(), 0.003),
        Entry("quasi-global Adam", gs.QuasiGlobalAdam(), 0.003),
        Entry("NoLoCo", noloco, 0.003, local_steps),
        Entry("DiLoCo", diloco, 0.003, local_steps),
    ]


def study_of(entry: Entry, rate: float, steps: int, text: Text) -> gs.Study:
    """Return the study of a method: every device takes the same number of steps."""
    devices = len(text.split)
    split = gs.from_lists(text.split)
    batch = BATCH
    if entry.alone:  # as many windows per step as all devices together
        split = gs.from_lists([np.concatenate(text.split)])
        batch *= devices
        devices = 1
    return gs.Study(
        algorithm=replace(entry.algorithm, eta=rate),
        network=gs.Random(devices, density=0.2),
        data=text.data,
        split=split,
        model=gs.Module(Transformer),
        batch=batch,
        rounds=steps // entry.local_steps,
        measure=gs.Measure(
            every=0, at="after_mix", metrics=(gs.FunctionMetric(bits, "bits", "lower"),)
        ),
    )


def tuning_bits(study: gs.Study) -> float:
    """Return the bits per character of the merged model; infinity if the run diverges."""
    try:
        bits: float = gs.run(study).summary["bits_merged"]
    except gs.Diverged:
        return math.inf
    return bits


def best_rate(entry: Entry, steps: int, text: Text) -> float:
    """Return the learning rate whose merged model needs the fewest bits on the tuning text.

    The rates are a factor of three apart. The search goes on until the best is not at an edge.
    """
    found: dict[float, float] = {}
    candidates = [entry.rate / 3, entry.rate, entry.rate * 3]
    while candidates:
        for rate in candidates:
            found[rate] = tuning_bits(study_of(entry, rate, steps, text))
        best = min(found, key=found.__getitem__)
        candidates = []
        if best == min(found):
            candidates.append(best / 3)
        if best == max(found):
            candidates.append(best * 3)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=len(PACKAGES), help="packages to use")
    parser.add_argument("--steps", type=int, default=400, help="steps per device")
    parser.add_argument("--local-steps", type=int, default=20, help="between two messages of *LoCo")
    parser.add_argument("--tune", type=int, default=100, help="steps of the search; 0: no search")
    options = parser.parse_args()
    packages = PACKAGES[: options.devices]
    print(
        f"{'bits per character':24}{'rate':>8}{'device':>8}{'worst':>8}{'merged':>8}{'MB sent':>9}"
    )
    for entry in entries(options.local_steps):
        rate = entry.rate
        if options.tune:
            rate = best_rate(entry, options.tune, load_text(packages, "tune"))
        study = study_of(entry, rate, options.steps, load_text(packages, "test"))
        summary = gs.run(study).summary
        print(
            f"{entry.name:24}{rate:9.2g}{summary['bits']:9.2f}{summary['bits_worst']:9.2f}"
            f"{summary['bits_merged']:9.2f}{summary['bytes'] / 1e6:9.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
