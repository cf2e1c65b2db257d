"""Data sets of Hugging Face on disk, named by a spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pandas  # type: ignore[import-untyped]
import pytest
import torch
from support.hugging_face import VOCABULARY, tokenizer, topics

import gossamer as gs
from gossamer.errors import DataError, InputError
from gossamer.study import spec
from gossamer.tasks import table_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a data set in every form, and a tokeniser."""
    folder = tmp_path_factory.mktemp("hf")
    datasets.disable_progress_bars()
    whole = topics(40)
    whole = whole.add_column("author", [f"author {i % 3 + 9}" for i in range(40)])
    whole.save_to_disk(folder / "whole")
    whole.to_parquet(folder / "whole.parquet")
    parts = datasets.DatasetDict({"train": topics(30), "validation": topics(10, seed=1)})
    parts.save_to_disk(folder / "parts")
    datasets.DatasetDict({"train": topics(20)}).save_to_disk(folder / "single")
    tokenizer().save_pretrained(folder / "words")
    return folder


def source(folder: Path, name: str = "whole", **settings: Any) -> gs.HuggingFace:
    settings = {"tokenizer": folder / "words", "max_length": 9} | settings
    return gs.HuggingFace(folder / name, **settings)


@pytest.mark.parametrize("name", ["whole", "whole.parquet"])
def test_a_data_set_on_disk(folder: Path, name: str) -> None:
    data = source(folder, name).load()
    assert (data.samples, len(data.x_test), data.shape, data.name) == (32, 8, (9,), "whole")
    assert data.labels == ("alpha", "beta", "gamma", "delta")
    everything = gs.from_hf(topics(40), topics(40), tokenizer=tokenizer(), max_length=9)
    rows = torch.cat([data.x, data.x_test]).tolist()
    assert sorted(rows) == sorted(everything.x.tolist())


def test_splits_of_a_data_set(folder: Path) -> None:
    data = source(folder, "parts", splits=("train", "validation")).load()
    assert (data.samples, len(data.x_test)) == (30, 10)
    with pytest.raises(InputError, match=r"split = 'test' .*'train', 'validation'"):
        source(folder, "parts").load()
    assert source(folder, "single").load().samples == 16


def test_devices_are_a_column(folder: Path) -> None:
    by_author = source(folder, device="author")
    assert by_author.brings_devices
    data = by_author.load()
    assert data.device_names == ("author 9", "author 10", "author 11")
    assert torch.bincount(data.owner).sum() == data.samples
    pooled = source(folder, device="author", pooled=True)
    assert not pooled.brings_devices
    assert pooled.load().owner is None


def test_a_spec_trains_a_transformer_on_a_data_set(folder: Path) -> None:
    (folder / "study.toml").write_text(
        f"""
        rounds = 3
        [data]
        kind = "hf"
        path = "whole"
        tokenizer = "words"
        next_token = true
        max_length = 8
        device = "author"
        [model]
        kind = "transformers"
        head = "causal-lm"
        [model.config]
        model_type = "llama"
        vocab_size = {len(VOCABULARY)}
        hidden_size = 16
        intermediate_size = 16
        num_hidden_layers = 1
        num_attention_heads = 2
        pad_token_id = 0
        [network]
        kind = "ring"
        devices = 3
        [algorithm]
        kind = "d-psgd"
        """
    )
    (study,) = gs.load_spec(folder / "study.toml")
    assert spec.studies(spec.to_table(study)) == [study]
    run = gs.run(study)
    assert run.summary["perplexity"] < len(VOCABULARY) + 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"inputs": "txt"}, "inputs = 'txt' .*did you mean 'text'"),
        ({"target": "lable"}, "target = 'lable' .*did you mean 'label'"),
        ({"device": "writer"}, "device = 'writer' .*one of the columns"),
        ({"tokenizer": None}, "tokenizer = None .*a tokeniser"),
        ({"tokenizer": Path("nowhere")}, r"tokenizer = 'nowhere' .*tokenizer\.json"),
        ({"test": 0.01}, "test = 0.01 .*no sample is left to test on of 40"),
    ],
)
def test_bad_settings_are_one_sentence(folder: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        source(folder, **settings).load()


def test_bad_folders_are_one_sentence(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match="there is no file or folder"):
        source(folder, "nowhere").load()
    with pytest.raises(InputError, match=r"path = .*a folder that save_to_disk"):
        source(folder, "words").load()
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "dataset_info.json").write_text("{")
    with pytest.raises(DataError, match="damaged is damaged, or of another version"):
        gs.HuggingFace(damaged).load()
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match="is damaged, or of another version"):
        source(folder, tokenizer=tmp_path).load()
    for values in ({"test": 0}, {"test": 1}, {"max_length": 0}):
        with pytest.raises(InputError):
            source(folder, **values)
    monkeypatch.setattr(table_files, "MAX_BYTES", 100)
    for name in ("whole", "whole.parquet"):
        with pytest.raises(DataError, match="more than the 0 MiB that can be read here"):
            source(folder, name).load()


def test_numbers_in_a_parquet_file(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"a": range(10), "b": [0.5] * 10, "label": [0, 1] * 5})
    frame.to_parquet(tmp_path / "mine.parquet", index=False)
    data = gs.HuggingFace(tmp_path / "mine.parquet", inputs=("a", "b")).load()
    assert (data.shape, data.classes) == ((2,), 2)
