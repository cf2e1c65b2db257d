"""Data from `datasets.Dataset`."""

from __future__ import annotations

import sys
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hugging_face import VOCABULARY, WORDS, tokenizer, topics

import gossamer as gs
from gossamer.errors import InputError, MissingExtra

FORMATS = st.sampled_from([None, "numpy", "torch", "arrow", "pandas"])
TEXTS = st.lists(st.lists(st.sampled_from(VOCABULARY[1:]), max_size=7).map(" ".join), min_size=1)
NUMBERS = st.floats(-1e6, 1e6, width=32)


def dataset(**columns) -> Any:
    return datasets.Dataset.from_dict(columns)


def padded(text: str, length: int) -> tuple[list[int], list[int]]:
    """Return tokens and next tokens of a text of known words, by a plain loop."""
    tokens = [VOCABULARY.index(word) for word in text.split()][:length]
    following = [*tokens[1:], -100]
    if not tokens:
        following = []
    missing = length - len(tokens)
    return tokens + [0] * missing, following + [-100] * missing


@settings(max_examples=40)
@given(texts=TEXTS, form=FORMATS, length=st.integers(2, 9))
def test_text_becomes_tokens(texts: list[str], form: str | None, length: int) -> None:
    labels = [number % 2 for number in range(len(texts))] + [1]
    table = dataset(text=[*texts, "v"], label=labels).with_format(form)
    data = gs.from_hf(table, table, tokenizer=tokenizer(), max_length=length)
    expected = [padded(text, length)[0] for text in [*texts, "v"]]
    assert data.x.dtype == torch.int64
    assert data.x.tolist() == data.x_test.tolist() == expected
    assert data.y.tolist() == labels


@settings(max_examples=40)
@given(texts=TEXTS, form=FORMATS, length=st.integers(2, 9))
def test_the_next_token_is_the_target(texts: list[str], form: str | None, length: int) -> None:
    table = dataset(text=texts).with_format(form)
    data = gs.from_hf(table, table, target=None, tokenizer=tokenizer(), max_length=length)
    assert data.y.tolist() == [padded(text, length)[1] for text in texts]
    assert data.classes is None


@settings(max_examples=40)
@given(
    rows=st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=1, max_size=9),
    form=FORMATS,
)
def test_numbers_stay_as_they_are(rows: list[list[float]], form: str | None) -> None:
    first, second, third = map(list, zip(*rows, strict=True))
    table = dataset(a=first, b=second, c=third, row=rows).with_format(form)
    data = gs.from_hf(table, table, inputs=["a", "b"], target="c")
    torch.testing.assert_close(data.x, torch.tensor(rows, dtype=torch.float32)[:, :2])
    torch.testing.assert_close(data.y, torch.tensor(third, dtype=torch.float32))
    whole = gs.from_hf(table, table, inputs="row", target="c")
    torch.testing.assert_close(whole.x, torch.tensor(rows, dtype=torch.float32))


def test_a_column_of_one_number_is_one_feature() -> None:
    table = dataset(a=[0.5, 1.5], b=[1.0, 2.0])
    assert gs.from_hf(table, table, inputs="a", target="b").x.tolist() == [[0.5], [1.5]]


def test_class_labels_have_as_many_classes_as_names() -> None:
    table = topics(8)
    data = gs.from_hf(table.select(range(2)), table.select([0]), tokenizer=tokenizer())
    assert data.classes == len(WORDS)
    assert data.labels == WORDS


def test_words_as_targets_are_numbered_by_datasets() -> None:
    table = dataset(a=[[1.0], [2.0]], label=["no", "yes"])
    data = gs.from_hf(
        table.class_encode_column("label"), table.class_encode_column("label"), inputs="a"
    )
    assert data.y.tolist() == [0, 1]
    assert data.labels == ("no", "yes")


def test_arrays_and_images() -> None:
    pixels = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4) * 10
    features = datasets.Features(
        {"image": datasets.Image(), "array": datasets.Array2D((3, 4), "float32")}
    )
    images = [{"path": None, "bytes": _png(image)} for image in pixels]
    table = datasets.Dataset.from_dict(
        {"image": images, "array": pixels.astype(np.float32)}, features=features
    ).add_column("label", [0, 1])
    data = gs.from_hf(table, table, inputs="image")
    torch.testing.assert_close(data.x, torch.tensor(pixels)[:, None] / 255)
    data = gs.from_hf(table, table, inputs="array")
    torch.testing.assert_close(data.x, torch.tensor(pixels).float())


def _png(pixels: np.ndarray) -> bytes:
    import io

    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def test_pairs_of_texts() -> None:
    table = dataset(first=["alpha v", "beta"], second=["w", "x y"], label=[0, 1])
    data = gs.from_hf(table, table, inputs=["first", "second"], tokenizer=tokenizer(), max_length=5)
    expected = [padded(text, 5)[0] for text in ("alpha v w", "beta x y")]
    assert data.x.tolist() == expected


def test_splits_of_a_dict() -> None:
    both = datasets.DatasetDict({"train": topics(8), "test": topics(4, 1), "other": topics(6, 2)})
    data = gs.from_hf(both, tokenizer=tokenizer(), max_length=8)
    assert (data.samples, len(data.x_test)) == (8, 4)
    data = gs.from_hf(both, ("other", "train"), tokenizer=tokenizer(), max_length=8)
    assert (data.samples, len(data.x_test)) == (6, 8)
    with pytest.raises(InputError, match="one of the splits 'train', 'test', 'other'"):
        gs.from_hf(both, ("train", "validation"), tokenizer=tokenizer())


def test_tokens_of_the_data_set_itself() -> None:
    table = dataset(ids=[[1, 2, 3], [4, 5, 6]], tags=[[0, 1, -100], [1, 1, 0]])
    data = gs.from_hf(table, table, inputs="ids", target="tags")
    assert data.x.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert data.y.tolist() == [[0, 1, -100], [1, 1, 0]]


class _NoPad:
    pad_token_id = None


GOOD = {"text": ["v", "w"], "label": [0, 1], "a": [1.0, 2.0], "row": [[1.0], [2.0]]}
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "missing column": ({}, {"inputs": "texts"}, "inputs = 'texts' is not accepted: give one of"),
    "missing target": ({}, {"target": "labels"}, "target = 'labels'"),
    "no tokeniser": ({}, {"tokenizer": None}, "a tokeniser for the text in ['text']"),
    "no pad token": ({}, {"tokenizer": _NoPad()}, "tokenizer.pad_token"),
    "ragged": ({"row": [[1.0], [2.0, 3.0]]}, {"inputs": "row"}, "sequences of several lengths"),
    "None": ({"a": [1.0, None]}, {"inputs": "a"}, "'a' with 1 missing values"),
    "None in text": ({"text": ["v", None]}, {}, "'text' with 1 missing values"),
    "None in a sequence": ({"row": [[1.0], [None]]}, {"inputs": "row"}, "inputs = 'NaN"),
    "words as targets": ({"label": ["no", "yes"]}, {}, "class_encode_column('label')"),
    "text and numbers": ({}, {"inputs": ["text", "a"]}, "text alone, or of numbers alone"),
    "sequences and numbers": ({}, {"inputs": ["row", "a"]}, "one column of sequences"),
    "three texts": ({}, {"inputs": ["text", "text", "text"]}, "two for pairs"),
    "no inputs": ({}, {"inputs": []}, "the name of a column"),
    "next number": ({}, {"inputs": "a", "target": None}, "next tokens are targets of text only"),
    "no length": ({}, {"max_length": 0}, "max_length = 0"),
    "no samples": ({name: [] for name in GOOD}, {}, "without samples"),
    "dicts": ({"a": [{"b": 1}, {"b": 2}]}, {"inputs": "a"}, "a column of numbers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    columns, fields, sentence = REFUSED[case]
    table = dataset(**(GOOD | columns))
    with pytest.raises(InputError) as refusal:
        gs.from_hf(table, table, **({"tokenizer": tokenizer()} | fields))
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_anything_but_a_data_set_is_refused() -> None:
    with pytest.raises(InputError, match="a data set to test on"):
        gs.from_hf(topics(4))
    with pytest.raises(InputError, match=r"datasets\.Dataset"):
        gs.from_hf([1, 2], [3])
    with pytest.raises(InputError, match="stream"):
        gs.from_hf(topics(4).to_iterable_dataset(), topics(4))


def test_without_the_extra_a_sentence_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"pip install 'gossamer\[hf\]'"):
        gs.from_hf(topics, topics)
