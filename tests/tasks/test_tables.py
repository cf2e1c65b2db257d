"""Data from CSV and Parquet files and from data frames."""

from __future__ import annotations

import csv
import gzip
import io
import math
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas  # type: ignore[import-untyped]
import polars
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gs
from gossamer.tasks import table_columns, table_files

FRAME = pandas.DataFrame(
    {
        "speed": [0.5, 1.5, 2.5, 4.0, 3.0, 1.0, 2.0, 0.0],
        "load": [1, 2, 3, 4, 5, 6, 7, 9],
        "activity": ["rest", "walk", "walk", "run", "run", "rest", "walk", "rest"],
        "robot": ["r10", "r9", "r9", "r10", "r10", "r9", "r9", "r10"],
    }
)


def table(folder: Path, text: str, name: str = "mine.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def robots(folder: Path, frames: dict[str, pandas.DataFrame]) -> Path:
    """Write one file per device, half of them Parquet."""
    path = folder / "robots"
    path.mkdir()
    for number, (name, frame) in enumerate(frames.items()):
        if number % 2:
            frame.to_parquet(path / f"{name}.parquet")
        else:
            frame.to_csv(path / f"{name}.csv", index=False)
    return path


def write_tabs(path: Path) -> None:
    FRAME.to_csv(path.with_suffix(".tsv"), sep="\t", index=False)


def write_german(path: Path) -> None:
    text = FRAME.to_csv(sep=";", decimal=",", index=False).replace("\n", "\r\n")
    path.with_suffix(".csv").write_bytes(b"\xef\xbb\xbf" + text.encode())


def write_packed(path: Path) -> None:
    FRAME.to_csv(path.with_suffix(".csv.gz"))  # with its index, a column without a name


def write_parquet(path: Path) -> None:
    FRAME.astype({"activity": "category"}).to_parquet(path.with_suffix(".parquet"))


@pytest.mark.parametrize("write", [write_tabs, write_german, write_packed, write_parquet])
def test_the_same_rows_in_any_form(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "mine")
    (path,) = tmp_path.iterdir()
    source = gs.Table(path, "activity", inputs=("speed", "load"), scale=False, test=0.25)
    data = source.load()
    expected = gs.from_table(FRAME, 0.25, target="activity", inputs=["speed", "load"], scale=False)
    assert (data.samples, len(data.x_test), data.classes) == (6, 2, 3)
    assert data.labels == ("rest", "run", "walk")
    assert not source.brings_devices
    for name in ("x", "y", "x_test", "y_test"):
        assert torch.equal(getattr(data, name), getattr(expected, name))
    # A row keeps its label.
    for x, y in zip(data.x.tolist(), data.y.tolist(), strict=True):
        (row,) = FRAME[(FRAME.speed == x[0]) & (FRAME.load == x[1])].itertuples()
        assert row.activity == data.labels[y]


NUMBERS = st.floats(-1e6, 1e6).map(lambda x: round(x, 3))


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS, st.sampled_from("abc")), min_size=5, max_size=30),
    st.sampled_from(",;\t"),
)
def test_a_csv_file_is_read_as_python_reads_it(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, float, str]], delimiter: str
) -> None:
    path = tmp_path_factory.mktemp("csv") / "mine.csv"
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=delimiter, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(["first, really", "second", "kind"])
    writer.writerows(rows)
    path.write_text(buffer.getvalue())
    read = table_files.read_table(path)
    assert read.column_names == ["first, really", "second", "kind"]
    for number, name in enumerate(read.column_names):
        assert read[name].to_pylist() == [row[number] for row in rows]


def test_inputs_have_mean_0_and_variance_1_in_training() -> None:
    data = gs.from_table(FRAME, FRAME.iloc[:2], target="activity", inputs=["speed", "load"])
    assert data.x.mean(0).abs().max() < 1e-6
    assert (data.x.var(0, unbiased=False) - 1).abs().max() < 1e-5
    assert torch.equal(data.x[:2], data.x_test)  # the test rows are scaled alike


@pytest.mark.parametrize("make", [pandas.DataFrame, polars.DataFrame])
def test_frames_of_pandas_and_polars(make: Callable[[dict], object]) -> None:
    frame = make(FRAME.to_dict("list"))
    data = gs.from_table(frame, 0.25, target="activity", inputs=["load"], device="robot")
    assert data.device_names == ("r9", "r10")
    assert torch.bincount(data.owner).tolist() == [3, 3]
    each = gs.from_table({"a": frame, "b": frame}, 0.25, target="speed", inputs=["load"])
    assert each.device_names == ("a", "b")
    assert (each.classes, each.samples) == (None, 12)


def test_a_file_per_device(tmp_path: Path) -> None:
    frames = {}
    for name, frame in FRAME.drop(columns="robot").groupby(FRAME.robot):
        frames[name] = frame
    path = robots(tmp_path, frames)
    source = gs.Table(path, "activity", test=0.25)
    data = source.load()
    assert data.name == "robots"
    by_column = gs.from_table(FRAME, 0.25, target="activity", device="robot", scale=False)
    assert data.device_names == by_column.device_names == ("r9", "r10")
    assert sorted(data.owner.tolist()) == sorted(by_column.owner.tolist())
    assert source.brings_devices
    pooled = gs.Table(path, "activity", pooled=True)
    assert not pooled.brings_devices
    assert pooled.load().owner is None


def test_several_targets_and_kinds_of_targets() -> None:
    frame = FRAME.drop(columns=["robot", "activity"]).assign(extra=range(8))
    data = gs.from_table(frame, 0.25, target=["speed", "load"])
    assert (data.targets, tuple(data.y.shape)) == ("values", (6, 2))
    numbers = gs.from_table(frame, 0.25, target="load", targets="values")
    assert (numbers.targets, numbers.y.dtype) == ("values", torch.float32)
    bools = gs.from_table(frame.assign(yes=frame.speed > 1), 0.25, target="yes")
    assert bools.labels == ("False", "True")


def test_labels_that_are_no_numbers_from_0_are_numbered_with_a_warning() -> None:
    frame = pandas.DataFrame({"a": range(9), "y": [1, 2, 5] * 3})
    with pytest.warns(gs.DataWarning, match=r"1, 2, 5 become the classes 0, 1, 2"):
        data = gs.from_table(frame, frame, target="y")
    assert data.labels == ("1", "2", "5")
    assert data.y.tolist() == [0, 1, 2] * 3
    negative = frame.assign(y=[-1, 0, 1] * 3)
    with pytest.warns(gs.DataWarning, match=r"-1, 0, 1 become the classes 0, 1, 2"):
        gs.from_table(negative, negative, target="y")


def test_large_labels_are_told_apart() -> None:
    large = 2**60
    frame = pandas.DataFrame({"a": range(4), "y": [large, large + 1] * 2})
    with pytest.warns(gs.DataWarning, match="become the classes 0, 1"):
        data = gs.from_table(frame, frame, target="y")
    assert data.labels == (str(large), str(large + 1))


def test_floats_are_values_unless_the_user_says_labels() -> None:
    frame = pandas.DataFrame({"a": range(60), "y": [0.0, 1.0, 2.0] * 20})
    with pytest.warns(gs.DataWarning, match=r"taken for values .*targets = \"labels\""):
        assert gs.from_table(frame, frame, target="y").classes is None
    assert gs.from_table(frame, frame, target="y", targets="labels").classes == 3
    assert gs.from_table(frame, frame, target="y", targets="values").classes is None
    halves = frame.assign(y=frame.y / 2)
    with pytest.raises(gs.DataError, match=r"'y' is no whole number, so no label, in row 2"):
        gs.from_table(halves, halves, target="y", targets="labels")


def test_many_different_values_need_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pandas.DataFrame({"a": range(300), "age": range(300)})
    with pytest.raises(gs.InputError, match=r"300 different whole numbers in 600 rows"):
        gs.from_table(frame, frame, target="age")
    assert gs.from_table(frame, frame, target="age", targets="values").classes is None
    words = frame.assign(age=[f"word {i}" for i in range(300)])
    with pytest.raises(gs.InputError, match=r"300 different words in 600 rows"):
        gs.from_table(words, words, target="age")
    assert gs.from_table(words, words, target="age", targets="labels").classes == 300
    monkeypatch.setattr(table_columns, "MAX_CLASSES", 200)
    with pytest.raises(gs.InputError, match=r"'age' with 300 different labels.*at most 200"):
        gs.from_table(words, words, target="age", targets="labels")


def test_warnings_of_columns_that_say_nothing_and_labels_without_training() -> None:
    frame = FRAME.assign(same=7)
    with pytest.warns(gs.DataWarning, match=r"all training rows have the same value in 'same'"):
        gs.from_table(frame, frame, target="activity", inputs=["load", "same"])
    walking = FRAME[FRAME.activity == "walk"]
    with pytest.warns(gs.DataWarning, match=r"no training sample .* label 'rest', 'run', which 5"):
        gs.from_table(walking, FRAME, target="activity", inputs=["load"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty: its first line must name the columns"),
        ("a,label\n", "has no rows"),
        ("1,2\n3,4\n", "has no header"),
        ("a,a,label\n1,2,3\n", "names two columns alike"),
        ("a,label\n1,2\n3\n", "is not a CSV file: .*Expected 2 columns, got 1"),
        ("a,label\n1,x\n,y\n", r"'a' has no value in row 2 \(1 of 2 rows\)"),
        ("a,label\n1,x\nnan,y\n", r"'a' (has no value|is not a finite number) in row 2"),
        ("a,label\n1,x\n1e999,y\n", r"'a' is not a finite number in row 2"),
        ("a,label\nred,x\nblue,y\n", r"'a' holds text, such as 'red'"),
        ("a,label\n2020-01-01,x\n2020-01-02,y\n", r"'a' holds values of the type date"),
        ("a,label\n1,\n2,y\n", r"'label' is empty in row 1"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = table(tmp_path, text)
    with pytest.raises(gs.DataError, match=rf"mine\.csv.*{said}"):
        gs.Table(path, "label").load()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"target": "labl"}, r"target = 'labl' .*'a', 'b', 'label' of .*did you mean 'label'"),
        ({"inputs": ("a", "c")}, "inputs = 'c' .*one of the columns"),
        ({"inputs": ("label",)}, "inputs = 'label' .*columns other than the target"),
        ({"device": "robot"}, "device = 'robot' .*one of the columns"),
        ({"test": 0.001}, "test = 0.001 .*no row is left to test on of 4 rows"),
        ({"target": ()}, "target = .*the name of a column"),
        (
            {"target": ("a", "label"), "inputs": ("b",), "targets": "labels"},
            "targets = 'labels' .*one column",
        ),
    ],
)
def test_bad_settings_are_one_sentence(tmp_path: Path, settings: dict, said: str) -> None:
    path = table(tmp_path, "a,b,label\n1,2,x\n3,4,y\n5,6,x\n7,8,y\n")
    with pytest.raises(gs.InputError, match=said):
        gs.Table(path, **({"target": "label"} | settings)).load()


def test_folders_and_files_that_are_not_there(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / ".hidden.csv").write_text("a,label\n1,2\n")
    wrong = table(tmp_path, "a", "mine.xlsx")
    for path, said in (
        (empty, "holds no table: no name in it ends in .csv"),
        (tmp_path / "nowhere", "there is no file or folder"),
        (wrong, "mine.xlsx is not a table"),
    ):
        with pytest.raises(gs.DataError, match=said):
            gs.Table(path, "label").load()
    good = table(tmp_path, "a,label\n1,x\n2,y\n")
    with pytest.raises(gs.DataError, match="there is no file or folder"):
        gs.Table(good, "label", test_path=tmp_path / "nowhere").load()
    for value in (0, 1, math.nan):
        with pytest.raises(gs.InputError, match="test = "):
            gs.Table(good, "label", test=value)
    with pytest.raises(gs.InputError, match="targets = 'words'"):
        gs.Table(good, "label", targets="words")  # type: ignore[arg-type]


def test_files_of_devices_that_do_not_fit(tmp_path: Path) -> None:
    folder = tmp_path / "robots"
    folder.mkdir()
    table(folder, "a,label\n1,0\n2,1\n", "one.csv")
    table(folder, "b,label\n1,0\n2,1\n", "two.csv")
    with pytest.raises(gs.InputError, match=r"inputs = 'a' .*columns 'b', 'label' of .*two\.csv"):
        gs.Table(folder, "label", test=0.5).load()
    table(folder, "a,label\n1,x\n2,y\n", "two.csv")
    with pytest.raises(gs.DataError, match=r"holds text in some files and numbers in others"):
        gs.Table(folder, "label", test=0.5).load()
    table(folder, "a,label\n1,0\n2,1\n", "one.tsv")
    with pytest.raises(gs.DataError, match="two files are of the device 'one'"):
        gs.Table(folder, "label", test=0.5).load()


def test_size_is_bounded_before_memory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "MAX_BYTES", 1 << 20)
    rows = "a,label\n" + "1,2\n" * (1 << 18) * 2
    large = table(tmp_path, rows)
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(rows.encode()))
    many = tmp_path / "many.parquet"
    pandas.DataFrame({"a": np.zeros(1 << 18), "label": 1}).to_parquet(many)
    assert max(packed.stat().st_size, many.stat().st_size) < 1 << 20
    for path in (large, packed, many):
        with pytest.raises(gs.DataError, match="more than the 1 MiB that can be read here"):
            gs.Table(path, "label").load()


def test_damaged_files(tmp_path: Path) -> None:
    for name in ("a.parquet", "a.csv.gz"):
        (tmp_path / name).write_bytes(b"\x1f\x8bnothing")
        with pytest.raises(gs.DataError, match="is damaged"):
            gs.Table(tmp_path / name, "label").load()
    for frame in (5, [[1, 2]], pandas.DataFrame({"a": []})):
        with pytest.raises(gs.InputError, match="train = "):
            gs.from_table(frame, target="a")


MUTATIONS = st.lists(
    st.tuples(st.integers(0, 400), st.binary(min_size=0, max_size=4)), min_size=1, max_size=6
)
CONTENT = FRAME.to_csv(index=False).encode()


@given(MUTATIONS, st.sampled_from(["activity", "speed", "load"]))
def test_a_damaged_file_is_read_or_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, mutations: list[tuple[int, bytes]], target: str
) -> None:
    content = CONTENT
    for place, replacement in mutations:
        place %= len(content)
        content = content[:place] + replacement + content[place + 1 :]
    path = tmp_path_factory.mktemp("csv") / "mine.csv"
    path.write_bytes(content)
    names = ["speed", "load"]
    if target in names:
        names.remove(target)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gs.DataWarning)
            data = gs.Table(path, target, inputs=tuple(names), targets=None, test=0.3).load()
    except (gs.InputError, gs.DataError) as error:
        sentence = str(error)
    else:
        sentence = ""
        assert bool(torch.isfinite(data.x).all())
        lines = content.count(b"\n") + content.count(b"\r") + 1
        assert data.samples + len(data.x_test) <= lines
    assert "\n" not in sentence
