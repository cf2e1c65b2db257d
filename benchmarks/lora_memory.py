"""Measure the memory of 16 devices that train LoRA adapters of one base model.

    python benchmarks/lora_memory.py

The peak of the process, less what it has before the run, is compared with base + 16 states. The
state of a device is what a training loop of its own holds: weights, gradient and two moments of
AdamW, four tensors. A round of all devices holds a fifth one, the weights that are mixed, since a
device's new weights depend on the old ones of others. Both ratios are printed:

    training_ratio    (peak − base) / (16 × four tensors)
    states_ratio      (peak − base) / (16 × five tensors), which is to be at most 1.2

The rest is the optimiser's temporaries, some copies of one adapter, and what a pass keeps. Batches
are small (1 sample of 8 tokens), so that this is little. Needs the extra gossamer[hf].
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import threading
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import peft  # noqa: F401  # the code of packages is not measured
import torch
import transformers

import gossamer as gs

MIB = 1 << 20
DEVICES = 16
LENGTH = 8
TENSORS_OF_TRAINING = 4  # weights, gradient, two moments
TENSORS_PER_STATE = TENSORS_OF_TRAINING + 1  # and the weights that are mixed
ALLOWED = 1.2
INTERVAL = 0.002  # seconds between two samples of the memory
CONFIG = {
    "vocab_size": 8192,
    "hidden_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "intermediate_size": 2048,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
LORA = {
    "r": 32,
    "target_modules": [
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    ],
}


def processor() -> str:
    """Return the name of the processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def resident() -> int:
    """Return the memory of this process in bytes."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Peak:
    """The largest memory of this process within a block."""

    def __enter__(self) -> Peak:
        self.before = resident()
        self.largest = self.before
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(INTERVAL):
            self.largest = max(self.largest, resident())


def run(folder: str, rounds: int) -> tuple[int, int]:
    """Train adapters on all devices; return the peak in bytes and an adapter's elements."""
    tokens = torch.randint(2, CONFIG["vocab_size"], (64, LENGTH))
    labels = torch.arange(64) % 4
    data = gs.from_arrays(tokens, labels, tokens[:4], labels[:4], name="random tokens")
    model = gs.Transformers(folder=folder, lora=LORA)
    study = gs.Study(
        gs.DPSGD(eta=0.001, optimizer=gs.AdamW()),
        gs.RandomRing(DEVICES),
        data,
        model=model,
        batch=1,
        rounds=rounds,
        threads=1,
        measure=gs.Measure(every=rounds),
    )
    with Peak() as peak:
        simulator = gs.Simulator(study.plan())
        simulator.advance(rounds)
    return peak.largest - peak.before, simulator.worker.learner.parameters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="file for the figures as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    config = transformers.LlamaConfig(**CONFIG)
    with tempfile.TemporaryDirectory() as folder:
        base = transformers.LlamaForSequenceClassification(config)
        base.save_pretrained(folder)
        parameters = sum(p.numel() for p in base.parameters())
        del base
        peak, adapter = run(folder, arguments.rounds)
    base_bytes = 4 * parameters
    states = DEVICES * TENSORS_PER_STATE * 4 * adapter
    figures = {
        "processor": processor(),
        "base_parameters": parameters,
        "adapter_parameters": adapter,
        "base_mib": base_bytes / MIB,
        "states_mib": states / MIB,
        "peak_mib": peak / MIB,
        "training_ratio": (peak - base_bytes) / states * TENSORS_PER_STATE / TENSORS_OF_TRAINING,
        "states_ratio": (peak - base_bytes) / states,
        "allowed": ALLOWED,
    }
    for name, value in figures.items():
        print(f"{name:20} {value:,.2f}" if isinstance(value, float) else f"{name:20} {value}")
    if arguments.out:
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")
    if figures["states_ratio"] > ALLOWED:
        sys.exit(f"the peak is above base + {ALLOWED} × {DEVICES} states")


if __name__ == "__main__":
    main()
