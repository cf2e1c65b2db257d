"""Adapt a small transformer to eight topics by LoRA, on 16 devices with one topic each.

The topics are packages of Python's standard library: a device holds pieces of one package's source
code, and all devices together learn to tell from which package a piece is. The base model knows
Python from elsewhere: it is trained first, in one place, to tell single-file modules of the
standard library apart. Then it is frozen, and devices train and send adapters only.

    python examples/lora_adapters.py              # the whole comparison
    python examples/lora_adapters.py --quick      # a few steps, to see that it runs

Nothing is downloaded: the standard library is part of every Python. Needs the extra gossamer[hf].
"""

import argparse
import contextlib
import os
import sysconfig
import tempfile
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # no network is needed

import datasets
import tokenizers
import torch
import transformers

import gossamer as gs

TOPICS = ["asyncio", "email", "encodings", "html", "logging", "pydoc_data", "unittest", "xml"]
DEVICES = 16  # two per topic
STDLIB = Path(sysconfig.get_path("stdlib"))
PIECE = 240  # characters of a piece of text
MAX_PIECES = 300  # per topic: no device has much more than the others
LENGTH = 64  # tokens of a sample
VOCABULARY = 2048
OTHER_MODULES = 40  # single-file modules that the base model is trained on
BATCH = 4  # samples per step and device
LORA = {"r": 8, "alpha": 16, "target_modules": ["Wqkv", "Wo", "Wi"]}


# -- the text


def read_text(path: Path) -> str:
    """Return the source code of a file or of a package."""
    files = [path]
    if path.is_dir():
        files = sorted(path.rglob("*.py"))
    return "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)


def other_modules() -> list[Path]:
    """Return the largest single-file modules."""
    return sorted(STDLIB.glob("*.py"), key=lambda path: -path.stat().st_size)[:OTHER_MODULES]


def pieces(paths: list[Path], most: int) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Cut text into pieces, each with the number of its path; the last fifth is for testing."""
    train: dict[str, list[Any]] = {"text": [], "label": []}
    test: dict[str, list[Any]] = {"text": [], "label": []}
    for label, path in enumerate(paths):
        text = read_text(path)
        stride = max(PIECE, len(text) // most)
        starts = range(0, len(text) - PIECE, stride)
        for number, start in enumerate(starts):
            part = train if number < 0.8 * len(starts) else test
            part["text"].append(text[start : start + PIECE])
            part["label"].append(label)
    names = datasets.ClassLabel(names=[path.stem for path in paths])
    features = datasets.Features({"text": datasets.Value("string"), "label": names})
    return (
        datasets.Dataset.from_dict(train, features=features),
        datasets.Dataset.from_dict(test, features=features),
    )


def train_tokenizer(texts: list[str]) -> transformers.PreTrainedTokenizerFast:
    """Return a tokeniser with byte pairs of some texts."""
    pairs = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="[UNK]"))
    pairs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    special = ["[PAD]", "[UNK]", "[CLS]"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, show_progress=False
    )
    pairs.train_from_iterator(texts, trainer)
    pairs.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A", special_tokens=[("[CLS]", special.index("[CLS]"))]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=pairs, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]"
    )


# -- the base model, trained in one place


def train_base(data: gs.Data, steps: int, width: int, folder: str) -> float:
    """Train a base model on the modules, save it, and return its accuracy on unseen text."""
    config = transformers.ModernBertConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=2 * width,
        max_position_embeddings=LENGTH,
        global_attn_every_n_layers=1,
        classifier_pooling="mean",
        num_labels=data.classes,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=2,
        cls_token_id=2,
        sep_token_id=2,
    )
    torch.manual_seed(0)
    model = transformers.ModernBertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(steps):
        batch = torch.randint(len(data.x), (32,))
        loss = model(**inputs(data.x[batch]), labels=data.y[batch]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.save_pretrained(folder)
    with torch.no_grad():
        correct = model.eval()(**inputs(data.x_test)).logits.argmax(1) == data.y_test
    return float(correct.float().mean())


def inputs(tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"input_ids": tokens, "attention_mask": (tokens != 0).long()}


# -- the comparison


@dataclass(frozen=True)
class Entry:
    """One row of the table, with the learning rate at which its search begins."""

    label: str
    algorithm: gs.Algorithm
    network: gs.Network
    rate: float
    lora: bool = True


def entries() -> list[Entry]:
    """Return what is compared."""
    ring = gs.RandomRing(DEVICES)
    alone = gs.DPSGD(optimizer=gs.AdamW())
    return [
        Entry("one model, all topics", alone, gs.Full(1), 0.01),
        Entry("no links", gs.DPSGD(), gs.Random(DEVICES, density=0.0), 0.1),
        Entry("D-PSGD", gs.DPSGD(), ring, 0.1),
        Entry("quasi-global momentum", gs.QuasiGlobal(), ring, 0.03),
        Entry("quasi-global Adam", gs.QuasiGlobalAdam(), ring, 0.003),
        Entry("D-PSGD, all weights", gs.DPSGD(), ring, 0.1, lora=False),
    ]


def best_rate(entry: Entry, data: gs.Data, folder: str, rounds: int) -> float:
    """Return the learning rate whose merged model is the most accurate on the tuning pieces.

    The rates are a factor of three apart. The search goes on until the best is not at an edge.
    """
    found: dict[float, float] = {}
    candidates = [entry.rate / 3, entry.rate, entry.rate * 3]
    while candidates:
        for rate in candidates:
            found[rate] = 0.0
            with contextlib.suppress(gs.Diverged):
                run = run_entry(entry, rate, data, folder, rounds)
                found[rate] = run.summary["accuracy_merged"]
        best = max(found, key=found.__getitem__)
        candidates = []
        if best == min(found):
            candidates.append(best / 3)
        if best == max(found):
            candidates.append(best * 3)
    return best


def run_entry(entry: Entry, rate: float, data: gs.Data, folder: str, rounds: int) -> gs.Run:
    """Train as an entry says, at a learning rate."""
    lora = None
    if entry.lora:
        lora = LORA
    split: Any = gs.OneLabel()
    batch = BATCH
    if entry.network.devices == 1:  # as many samples per round as all devices together
        split = gs.Iid()
        batch = BATCH * DEVICES
    study = gs.Study(
        replace(entry.algorithm, eta=rate),
        entry.network,
        data,
        split,
        gs.Transformers(folder=folder, lora=lora),
        batch=batch,
        rounds=rounds,
        measure=gs.Measure(every=rounds, at="after_mix"),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gs.NetworkWarning)  # one of them has no links on purpose
        return gs.run(study)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few steps of a smaller model")
    steps = 400
    rounds = 100
    width = 64
    most = MAX_PIECES
    quick = parser.parse_args().quick
    if quick:
        steps = 3
        rounds = 2
        width = 16
        most = 20
    modules = pieces(other_modules(), most)
    tokenizer = train_tokenizer(modules[0]["text"])
    topics = pieces([STDLIB / name for name in TOPICS], most)
    data = gs.from_hf(*topics, tokenizer=tokenizer, max_length=LENGTH, name="stdlib")
    # Half of the unseen pieces are for choosing learning rates, the other half for the results.
    tuning = replace(data, x_test=data.x_test[::2], y_test=data.y_test[::2])
    data = replace(data, x_test=data.x_test[1::2], y_test=data.y_test[1::2])
    others = gs.from_hf(*modules, tokenizer=tokenizer, max_length=LENGTH)
    with tempfile.TemporaryDirectory() as folder:
        accuracy = train_base(others, steps, width, folder)
        print(f"base: {accuracy:.0%} of unseen pieces of {OTHER_MODULES} other modules")
        print(f"{'':24}{'rate':>8}{'parameters':>12}{'MB sent':>10}{'accuracy':>10}{'merged':>9}")
        for entry in entries():
            rate = entry.rate
            if not quick:
                rate = best_rate(entry, tuning, folder, rounds)
            run = run_entry(entry, rate, data, folder, rounds)
            parameters = 0
            for values in run.models.values():
                parameters += values[0].numel()
            sent = run.summary["bytes"] / 1e6
            merged = run.metrics["accuracy_merged"][-1]
            print(
                f"{entry.label:24}{rate:8.2g}{parameters:>12,}{sent:>10.1f}"
                f"{run.summary['accuracy']:>10.1%}{merged:>9.1%}",
                flush=True,
            )
            if entry.label == "D-PSGD":
                save_adapter(run)


def save_adapter(run: gs.Run) -> None:
    """Write the mean of all devices' adapters as a folder that peft reads."""
    with tempfile.TemporaryDirectory() as folder:
        run.study.model.save_adapter(run.models, folder)
        files = sorted(path.name for path in Path(folder).iterdir())
        assert files == ["adapter_config.json", "adapter_model.safetensors"]


if __name__ == "__main__":
    main()
