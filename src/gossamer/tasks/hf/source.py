"""Data sets of Hugging Face on disk, as a part of a spec. Nothing is downloaded or executed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer import draws
from gossamer._core import checks
from gossamer._core.registry import register
from gossamer.errors import DataError, InputError
from gossamer.tasks.data import Data
from gossamer.tasks.hf import packages
from gossamer.tasks.hf.data import from_hf
from gossamer.tasks.table_files import check_size, read_table

_MARKS = ("dataset_info.json", "dataset_dict.json")  # files that save_to_disk writes
_TOKENIZER = "tokenizer.json"


@register("data", "hf")
@dataclass(frozen=True)
class HuggingFace:
    """A data set of Hugging Face on disk: a folder that `save_to_disk` wrote, or a Parquet file.

    Args:
        path: The folder, or the .parquet file.
        inputs: Column of the inputs, or several, as in `from_hf`.
        target: Column of the targets.
        next_token: The target of a token is the next one, for language models; `target` is not
            used.
        tokenizer: Folder of a tokeniser of transformers with a tokenizer.json, for text.
        max_length: Tokens per sample.
        device: Column with the name of the device that holds a sample, such as an author. A study
            then needs no split.
        splits: Names of the splits to train and to test on, if the data set has several.
        test: Share of the samples to test on, drawn at random, if the data set has one split.
        pooled: Do not keep the devices apart: a split rule divides the samples.
        seed: Seed of the draw of the test samples. It is not the study's seed.

    Raises:
        InputError: If a value is not accepted.

    Example:
        >>> source = HuggingFace("films", tokenizer="bert", max_length=64)
        >>> source.load()                                              # doctest: +SKIP
    """

    path: Path
    inputs: str | tuple[str, ...] = "text"
    target: str = "label"
    next_token: bool = False
    tokenizer: Path | None = None
    max_length: int = 128
    device: str | None = None
    splits: tuple[str, str] = ("train", "test")
    test: float = 0.2
    pooled: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        checks.number("test", self.test, above=0, below=1)
        checks.whole("max_length", self.max_length, 1)
        # Lists become tuples, so that equal sources have equal hashes.
        object.__setattr__(self, "splits", tuple(self.splits))
        if not isinstance(self.inputs, str):
            object.__setattr__(self, "inputs", tuple(self.inputs))

    @property
    def brings_devices(self) -> bool:
        """True if the data set says which device holds which samples."""
        return self.device is not None and not self.pooled

    def load(self) -> Data:
        path = Path(self.path).expanduser()
        train, test = self._parts(_read(path))
        target = None
        if not self.next_token:
            target = self.target
        device = None
        if self.brings_devices:
            device = self.device
        return from_hf(
            train,
            test,
            inputs=self.inputs,
            target=target,
            tokenizer=self._tokenizer(),
            max_length=self.max_length,
            device=device,
            name=path.stem,
        )

    def _parts(self, dataset: Any) -> tuple[Any, Any]:
        """Return what to train on and what to test on."""
        if isinstance(dataset, Mapping):
            if len(dataset) > 1:
                return dataset, self.splits
            (dataset,) = dataset.values()
        count = int(self.test * len(dataset))
        if count == 0:
            accepted = f"a larger share: no sample is left to test on of {len(dataset)}"
            raise InputError("test", self.test, accepted)
        order = draws.permutation(len(dataset), self.seed, "hf")
        return dataset.select(sorted(order[count:])), dataset.select(sorted(order[:count]))

    def _tokenizer(self) -> Any:
        if self.tokenizer is None:
            return None
        folder = Path(self.tokenizer).expanduser()
        if not (folder / _TOKENIZER).is_file():
            accepted = f"a folder that the save_pretrained of a tokeniser wrote, with {_TOKENIZER}"
            raise InputError("tokenizer", str(folder), accepted)
        auto = packages.load("transformers").AutoTokenizer
        with _refusing(folder):
            return auto.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False, use_fast=True
            )


def _read(path: Path) -> Any:
    """Return the data set, or several by split."""
    datasets = packages.load("datasets")
    if path.suffix == ".parquet" and path.is_file():
        table = read_table(path)
        with _refusing(path):
            return datasets.Dataset(table)
    if not path.exists():
        raise DataError(f"there is no file or folder {path}")
    if not any((path / mark).is_file() for mark in _MARKS):
        accepted = "a folder that save_to_disk of datasets wrote, or a .parquet file"
        raise InputError("path", str(path), accepted)
    size = 0
    for file in path.rglob("*.arrow"):
        size += file.stat().st_size
    check_size(path, size)
    with _refusing(path):
        return datasets.load_from_disk(str(path))


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn what other packages raise on a damaged folder into one sentence."""
    try:
        yield
    except (MemoryError, InputError, DataError):
        raise
    except Exception as error:
        text = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise DataError(f"{path} is damaged, or of another version: {text}") from None
