"""Bad input: the command prints one sentence, exits with the right code, changes no file."""

from __future__ import annotations

import errno
import importlib
import json
import os
import resource
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support import processes
from support.command import REAL, assert_refused, files, gossamer, real

from gossamer import errors
from gossamer._core.files import write_atomically
from gossamer.network import Ring, save
from gossamer.results import folder as store
from gossamer.tasks.originals import ORIGINALS

# The package has a function of the same name, which hides the module.
running = importlib.import_module("gossamer.study.run")

SPEC = """
rounds = 6
batch = 8
[data]
kind = "digits"
[split]
kind = "iid"
[model]
kind = "softmax"
[network]
kind = "random"
devices = 10
density = 0.2
[measure]
every = 3
[algorithm]
kind = "wpm"
p = 3
eta = 0.05
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test in an empty folder with one valid spec."""
    monkeypatch.chdir(tmp_path)
    Path("a.toml").write_text(SPEC)


def refused(*words: object, parts: tuple[str, ...] = (), command: str = "run") -> None:
    """Assert that the command fails with these parts in its message, and changes no file."""
    before = files()
    assert_refused(gossamer(command, "a.toml", *words), *parts)
    assert files() == before


def refused_set(*settings: str, parts: tuple[str, ...] = ()) -> None:
    refused(*(word for setting in settings for word in ("--set", setting)), parts=parts)


def finished(*words: object) -> None:
    done = gossamer("run", "a.toml", "-q", *words)
    assert (done.code, done.err) == (0, "")


# -- keys, kinds, types --------------------------------------------------------------------------

MISSPELT = [
    ("rouds", "rounds"),
    ("algoritm.p", "algorithm"),
    ("data.sed", "seed"),
    ("split.knid", "kind"),
    ("model.l22", "l2"),
    ("network.densty", "density"),
    ("measure.evry", "every"),
    ("algorithm.gradient_et", "gradient_at"),
]


@pytest.mark.parametrize(("key", "meant"), MISSPELT)
def test_a_misspelt_key_is_named_and_the_nearest_suggested(key: str, meant: str) -> None:
    wrong = key.split(".")[0] if meant == "algorithm" else key
    expected = (f"{wrong} is not a known key", f"did you mean '{meant}'?")
    refused_set(f"{key}=1", parts=expected)
    section, _, last = key.rpartition(".")
    inside = Path("a.toml").read_text()
    Path("a.toml").write_text(
        f"{last} = 1\n{inside}"
        if not section
        else (
            inside.replace(f"[{section}]", f"[{section}]\n{last} = 1")
            if f"[{section}]" in inside
            else f"[{section}]\n{last} = 1"
        )
    )
    refused(parts=expected)


def test_an_unknown_key_lists_the_known_ones() -> None:
    refused_set(
        "network.zebra=1",
        parts=("network.zebra is not", "the keys here are kind, devices, density, seed, every"),
    )


KINDS = [
    ("data.kind=digit", "did you mean 'digits'?"),
    ("split.kind=onelabel", "did you mean 'one-label'?"),
    ("model.kind=sofmax", "did you mean 'softmax'?"),
    ("network.kind=randon", "did you mean 'random'?"),
    ("algorithm.kind=wmp", "did you mean 'wpm'?"),
    ("algorithm.step={kind='mached'}", "did you mean 'matched'?"),
    ("algorithm.eta={kind='cosin',start=1,rounds=2}", "did you mean 'cosine'?"),
    ("network.faults=[{kind='chrn'}]", "did you mean 'churn'?"),
    ("network={kind='cycle',networks=['rng']}", "did you mean 'ring'?"),
    ("algorithm.preset=paper", "not a known key"),
    (
        "data=[1]",
        "data = [1] is not accepted: give a table with a kind, such as data = { kind = 'digits' }",
    ),
    ("network.kind=[1]", "'random'"),
    ("network={devices=10}", "network has no kind: give network.kind = one of "),
    (
        "network={knid='ring',devices=10}",
        "network.knid is not a known key (did you mean 'kind'?)",
    ),
    ("network={kind='mobility',devices=10}", "network.radius is missing: give a number"),
    ("data.kind=arrays", "data.path is missing: give a path"),
    ("algorithm=[]", "give one [algorithm] or several [[algorithm]]"),
    ("data={kind='least-squares'}", "split is not accepted"),
]


@pytest.mark.parametrize(("setting", "part"), KINDS)
def test_an_unknown_kind(setting: str, part: str) -> None:
    refused_set(setting, parts=(part,))


TYPES = [
    ("rounds=many", "rounds = 'many' is not accepted: give a whole number"),
    ("rounds=1.5", "rounds = 1.5 is not accepted: give a whole number"),
    ("rounds=true", "give a whole number"),
    ("rounds=[1]", "rounds = [1] is not accepted"),
    ("rounds=", "rounds = '' is not accepted"),
    ("rounds=2020-01-01", "give a whole number"),
    ("name=3", "name = 3 is not accepted: give text"),
    ("network.density=high", "network.density = 'high' is not accepted: give a number"),
    ("network.density=[0.1]", "network.density = [0.1]"),
    ("network=3", "network = 3 is not accepted: give a table with a kind"),
    ("network.devices=1e3", "network.devices = 1000.0 is not accepted: give a whole number"),
    (
        "network={kind='cycle',networks=3}",
        "network.networks = 3 is not accepted: give a list of networks",
    ),
    ("network.faults=3", "network.faults = 3 is not accepted: give a table with a kind"),
    ("algorithm.p='3'", "algorithm.p = '3' is not accepted: give a number or a table with a kind"),
    (
        "algorithm.p=[1,2]",
        "algorithm.p = [1, 2] is not accepted: give a number or a table with a kind",
    ),
    ("algorithm.anchor=1", "algorithm.anchor = 1 is not accepted: give true or false"),
    ("algorithm.step=3", "algorithm.step = 3 is not accepted: give a table with a kind"),
    ("algorithm.gradient_at=here", "give 'local' or 'aggregate'"),
    (
        "model={kind='mlp',hidden=64}",
        "model.hidden = 64 is not accepted: give a list of whole numbers",
    ),
    ("model={kind='mlp',hidden=['a']}", "give a list of whole numbers"),
    ("model={kind='cnn',channels=[1]}", "give a list of 2 whole numbers"),
    ("measure=3", "measure = 3 is not accepted: give a table"),
    ("measure.accuracy_targets=[0.8]", 'give targets = ["accuracy >= 0.9"]'),
    ("measure.loss_targets=[0.8]", 'give targets = ["loss <= 0.1"]'),
    ("measure.targets=0.8", "give a list of values"),
    ("measure.targets=['accuracy']", "measure.targets = ['accuracy'] is not accepted"),
    ("measure.targets=['accuracy 0.9']", 'a metric, ">=" or "<=", and a number'),
    ("measure.targets=['accuracy >= high']", 'a metric, ">=" or "<=", and a number'),
    ("measure.targets=['accuracy <= 0.9']", '"accuracy >= 0.9", since a higher accuracy is better'),
    ("measure.targets=['mae <= 4']", "one of the metrics that are measured: accuracy, loss"),
    ("measure.metrics=['acuracy']", "(did you mean 'accuracy'?)"),
    ("measure.metrics='accuracy'", "give a list of metrics"),
    ("measure.metrics=['accuracy', 'accuracy']", "metrics with different names"),
    ("measure.metrics=['rmse']", "the targets are not numbers"),
    ("measure.metrics=[{kind = 'top-k', k = 11}]", "k from 1 to 10, the number of classes"),
    ("measure.metrics=[{kind = 'top-k', k = 0}]", "k = 0 is not accepted"),
    ("algorithm=[3]", "algorithm = 3 is not accepted: give a table with a kind"),
    ("network={kind='file',path='a\\u0000b'}", "give a path"),
]


@pytest.mark.parametrize(("setting", "part"), TYPES)
def test_a_value_of_the_wrong_type(setting: str, part: str) -> None:
    # In a basic string of TOML \u0000 is a null; on the command line quotes are part of the value.
    refused_set(setting.replace("'a\\u0000b'", '"a\\u0000b"'), parts=(part,))


# -- values --------------------------------------------------------------------------------------

VALUES = [
    ("algorithm.p=0.5", "algorithm.p = 0.5 is not accepted: give a number of at least 1"),
    ("algorithm.p=nan", "algorithm.p = nan"),
    ("algorithm.p=inf", "algorithm.p = inf"),
    ("algorithm.p=-3", "algorithm.p = -3 is not accepted"),
    ("algorithm.eta=-1", "algorithm.eta = -1 is not accepted: give a number of at least 0"),
    ("algorithm.eta=nan", "algorithm.eta = nan"),
    ("algorithm.eta=inf", "algorithm.eta = inf"),
    ("algorithm.step={kind='safe',floor=0}", "algorithm.step.floor = 0 is not accepted"),
    ("algorithm={kind='swarm-sgd',local_steps=0}", "algorithm.local_steps = 0"),
    ("network.density=1.5", "network.density = 1.5 is not accepted: give a number from 0 to 1"),
    ("network.density=-0.1", "network.density = -0.1"),
    ("network.density=nan", "network.density = nan"),
    ("network.devices=0", "network.devices = 0 is not accepted: give a whole number from 1"),
    ("network.devices=-3", "network.devices = -3"),
    (
        "network.devices=2000",
        "network.devices = 2000 is not accepted: give at most 1437, the number of samples",
    ),
    (
        "network.faults=[{kind='churn',leave=2,come_back=1}]",
        "network.faults.leave = 2 is not accepted",
    ),
    ("network={kind='regular',devices=9,degree=3}", "network.degree = 3"),
    ("network={kind='cycle',networks=[]}", "network.networks = []"),
    (
        "network={kind='cycle',networks=[{kind='ring',devices=10},"
        "{kind='random',devices=10,density=2}]}",
        "networks[1].density = 2",
    ),
    (
        "network={kind='cycle',networks=[{kind='ring',devices=10},{kind='ring',devices=9}]}",
        "the same number of devices",
    ),
    ("rounds=-1", "rounds = -1 is not accepted: give a whole number of at least 0"),
    ("batch=-1", "batch = -1 is not accepted: give a whole number of at least 1, or 0"),
    ("batch=0", "batch = 0 is not accepted"),
    ("threads=-1", "threads = -1"),
    ("dtype=float16", "dtype = 'float16' is not accepted: give 'float32' or 'float64'"),
    ("device=nonsense", "device = 'nonsense'"),
    ("name=a/b", "name = 'a/b'"),
    ("measure.every=-1", "measure.every = -1"),
    ("measure.at=nowhere", "give 'after_step' or 'after_mix'"),
    (
        "measure.targets=['accuracy >= 2']",
        "measure.targets = 'accuracy >= 2' is not accepted: give a share from 0 to 1 for accuracy",
    ),
    ("data.test=5000", "data.test = 5000"),
    ("split={kind='labels',k=0}", "split.k = 0"),
    ("split={kind='labels',k=11}", "split.k = 11 is not accepted: give at most 10"),
    ("split={kind='dirichlet',alpha=-1}", "split.alpha = -1"),
    ("model={kind='mlp',hidden=[]}", "model.hidden = []"),
    ("model.l2=-1", "model.l2 = -1"),
]


@pytest.mark.parametrize(("setting", "part"), VALUES)
def test_a_value_out_of_range(setting: str, part: str) -> None:
    refused_set(setting, parts=(part,))


def test_more_than_fits_in_memory() -> None:
    refused(
        "--out",
        "out",
        "--set",
        "batch=1000000000000",
        parts=("give a smaller batch", "GiB are available"),
    )


LATE = [
    ("algorithm.eta={kind='cosine',start=0.1,rounds=0}", "algorithm.eta.rounds = 0"),
    ("algorithm.eta={kind='cosine',start=-1,rounds=5}", "algorithm.eta.start = -1"),
    ("algorithm.eta={kind='inverse',start=0.1,every=0}", "algorithm.eta.every = 0"),
    ("algorithm.eta={kind='inverse-sqrt',start=nan}", "algorithm.eta.start = nan"),
    ("algorithm.p={kind='switch',first=5,rounds=2,then=0.5}", "algorithm.p"),
    ("algorithm.p={kind='inverse',start=2}", "algorithm.p"),
    ("algorithm={kind='d-psgd',eta=1e300}", "algorithm.eta = 1e+300"),
    ("measure.targets=['loss <= nan']", "measure.targets = ['loss <= nan']"),
    ("threads=99999999999", "threads = 99999999999"),
    ("device=meta", "device = 'meta'"),
]


@pytest.mark.parametrize(("setting", "part"), LATE)
def test_a_value_that_is_checked_at_the_start_of_a_run(setting: str, part: str) -> None:
    refused_set(setting, parts=(part,))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_a_torch_device_that_does_not_exist() -> None:
    refused_set("device=cuda", parts=("device = 'cuda' is not accepted", "cpu"))


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        (["model.kind=logistic"], ("model = 'logistic' is not accepted", "softmax")),
        (
            ["split.kind=one-label", "network.devices=5"],
            ("network.devices = 5 is not accepted: give at least 10", "labels"),
        ),
    ],
)
def test_parts_that_do_not_fit_the_data(settings: list[str], parts: tuple[str, ...]) -> None:
    refused_set(*settings, parts=parts)


@pytest.mark.parametrize("model", ["softmax", "svm"])
def test_a_classifier_for_regression_targets(model: str) -> None:
    Path("a.toml").write_text(f'rounds = 1\ndata = "least-squares"\nmodel = "{model}"\n')
    refused(parts=(f"model = '{model}' is not accepted", "least-squares"))


def arrays(path: str = "mine.npz", **changes: object) -> str:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 6))
    y = np.arange(40) % 4
    np.savez(path, **{"x": x, "y": y, "x_test": x[:8], "y_test": y[:8], **changes})
    return f"data={{kind='arrays',path='{path}'}}"


def test_an_image_model_needs_images() -> None:
    refused_set(arrays(), "model.kind=cnn", parts=("model = 'cnn' is not accepted", "shape [6]"))


def test_a_split_by_label_needs_labels() -> None:
    refused_set(
        arrays(y=np.ones(40), y_test=np.ones(8)),
        "split.kind=one-label",
        "model.kind=least-squares",
        parts=("split.kind = 'one-label' is not accepted: give iid, uneven, drawn or lists",),
    )


# -- files ---------------------------------------------------------------------------------------


def test_a_missing_spec() -> None:
    shutil.move("a.toml", "b.toml")
    refused(parts=("there is no spec a.toml", "`gossamer new a.toml`"))


def test_a_spec_that_is_a_folder() -> None:
    Path("a.toml").unlink()
    Path("a.toml").mkdir()
    refused(parts=("cannot read a.toml: Is a directory",))


@pytest.mark.parametrize(
    "content",
    [b"rounds = = 3", b"\xff\xfe\x00", b"a = " + b"[" * 20_000],
    ids=["syntax", "binary", "deep"],
)
def test_a_spec_that_is_not_toml(content: bytes) -> None:
    Path("a.toml").write_bytes(content)
    refused(parts=("a.toml is not TOML",))


def test_an_empty_spec_is_the_default_study() -> None:
    Path("a.toml").write_text("")
    finished("--set", "rounds=2", "--out", "out")
    assert tomllib.loads(Path("out/spec.toml").read_text())["network"]["density"] == 0.2


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        (
            "algorithm.p",
            "--set 'algorithm.p' is not accepted: give key=value, for example algorithm.p=15",
        ),
        ("=3", "give key=value"),
        ("a..b=3", "give key=value"),
        ("rounds.x=3", "--set rounds.x: rounds is a plain value and has no keys"),
        ("algorithm[3].p=1", "there is no algorithm[3]; algorithm has 1, counted from 0"),
        ("model.kind.x=3", "model.kind = "),
    ],
)
def test_invalid_settings(setting: str, part: str) -> None:
    refused_set(setting, parts=(part,))


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        (
            "network={kind='file',path='none.parquet'}",
            "none.parquet does not exist; `gossamer network show --save` writes",
        ),
        (
            "network={kind='file',path='a.toml'}",
            "a.toml is not a sequence of links that can be used",
        ),
        ("network={kind='contacts',path='none.txt'}", "none.txt cannot be read: No such file"),
        ("split={kind='lists',path='none.json'}", "cannot read"),
        ("split={kind='lists',path='a.toml'}", "a.toml is not JSON"),
        ("data={kind='arrays',path='none.npz'}", "there is no file"),
        ("data={kind='arrays',path='a.npz'}", "a.npz"),
        ("data={kind='arrays',path='a.toml'}", "data.path = "),
        ("data={kind='arrays',path='a.pt'}", "a file of torch.save can run code"),
        ("data={kind='table',path='none.csv',target='y'}", "there is no file or folder"),
        ("data={kind='table',path='a.csv'}", "data.target is missing"),
        ("data={kind='table',path='a.csv',target='z'}", "data.target = 'z' is not accepted"),
        ("data={kind='table',path='a.csv',target='y'}", "the column 'x' holds text, such as 'red'"),
        ("data={kind='table',path='empty',target='y',pooled=true}", "empty holds no table"),
        ("data={kind='table',path='a.csv',target='y',test='b.csv'}", "data.test = 'b.csv'"),
        ("data={kind='hf',path='none'}", "there is no file or folder"),
        ("data={kind='hf',path='empty'}", "a folder that save_to_disk of datasets wrote"),
    ],
)
def test_missing_and_invalid_files(setting: str, part: str) -> None:
    Path("a.npz").write_bytes(b"PK\x03\x04 and no more")
    Path("a.csv").write_text("x,y\nred,1\nblue,0\n")
    Path("empty").mkdir()
    refused_set(setting, parts=(part,))


def test_a_network_file_for_another_number_of_devices() -> None:
    save(Ring(9), "nine.parquet", 10)
    Path("ten.json").write_text(json.dumps([[i] for i in range(10)]))
    refused_set(
        "network={kind='file',path='nine.parquet'}",
        "split={kind='lists',path='ten.json'}",
        parts=("ten.json is for 10 devices, not 9",),
    )
    # Synthetic data are made for the network's devices unless the spec says otherwise.
    Path("a.toml").write_text(
        'rounds = 2\nnetwork = { kind = "file", path = "nine.parquet" }\n'
        '[data]\nkind = "logistic"\ndevices = 10\n'
    )
    refused(parts=("network.devices = 9 is not accepted: give 10",))


def test_a_network_file_with_fewer_rounds_than_asked_for() -> None:
    save(Ring(10), "short.parquet", 5)
    refused_set(
        "network={kind='file',path='short.parquet'}",
        parts=("rounds = 6 is not accepted: give at most 5",),
    )


TRACES = [
    (
        "0 0 1\n1 1 2\n",
        "symmetric='require'",
        "log.txt: the contact 0 1 of round 0 is not listed the other way round too",
    ),
    (
        "0 0 1\n0 1 12\n",
        "devices=10",
        "network.devices = 10 is not accepted: give 3, the number of devices that",
    ),
    ("0 0 1\n0 1 -2\n", "devices=10", "line 2: device -2 is negative"),
    ("0 0 1\nnonsense\n", "devices=10", "line 2: expected 3 values as in the first line"),
    ("0 0 1\nx 1 2\n", "devices=10", "line 2: the time 'x' is not a finite number"),
    ("0 3 3\n", "devices=10", "line 1: device 3 is linked to itself"),
    ("0 CONN 0 1 up\n3 CONN 1 2 down\n", "devices=10", "line 2: `down` without an `up`"),
    ("", "devices=10", "has no lines"),
    ("0 a b\n", "devices=10", "network.devices = 10 is not accepted: give 2"),
]


@pytest.mark.parametrize(("text", "option", "part"), TRACES)
def test_a_trace_that_cannot_be_used(text: str, option: str, part: str) -> None:
    Path("log.txt").write_text(text)
    refused_set(f"network={{kind='contacts',path='log.txt',{option}}}", parts=(part,))


def test_positions_that_cannot_be_used() -> None:
    Path("gps.csv").write_text("0,0,91.0,8.5\n")
    refused_set(
        "network={kind='positions',path='gps.csv',radius=100.0,geographic=true}",
        parts=("gps.csv, line 1", "latitude 91"),
    )


# -- data sets -----------------------------------------------------------------------------------


def test_missing_data_names_the_command_that_fetches_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path / "nothing"))
    for name in ("mnist", "fashion-mnist", "cifar10"):
        refused_set(
            f"data.kind={name}",
            parts=(f"{name}: there is no", f"`gossamer data get {name}`", "--from DIR"),
        )


def test_data_that_is_truncated_or_has_another_hash(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "mnist"
    folder.mkdir(parents=True)
    for name, stamp in ORIGINALS["mnist"].files.items():
        with (folder / name).open("wb") as file:
            file.truncate(stamp.size)  # zeros, of the right length
    refused_set(
        "data.kind=mnist",
        parts=(
            "train-images-idx3-ubyte is truncated or not the original",
            "sha256:",
            "data get mnist",
        ),
    )
    with (folder / "train-images-idx3-ubyte").open("wb") as file:
        file.truncate(1000)
    refused_set("data.kind=mnist", parts=("it has 1,000 bytes, expected is 47,040,016 bytes",))


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (
            ["mnst"],
            "name = 'mnst' is not accepted: "
            "give mnist or fashion-mnist or cifar10 (did you mean 'mnist'?)",
        ),
        (["mnist", "--from", "nowhere"], "nowhere is not a folder"),
        (["mnist", "--from", "."], "there is no train-images-idx3-ubyte in ."),
        ([], "missing argument 'NAME'"),
    ],
)
def test_data_get(
    words: list[str], part: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path / "nothing"))
    before = files()
    assert_refused(gossamer("data", "get", *words), part)
    assert files() == before


# -- the other commands --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["none.toml"], "there is no spec none.toml"),
        (["none.parquet"], "none.parquet does not exist"),
        (
            ["a.toml", "--rounds", "0"],
            "rounds = 0 is not accepted: give a whole number of at least 1",
        ),
        (["a.toml", "--rounds", "many"], "--rounds"),
        (["a.toml", "--set", "network.kind=zoo"], "network.kind = 'zoo'"),
        (
            ["a.toml", "--save", "none/links.parquet"],
            "cannot write none/links.parquet: No such file",
        ),
        (["a.toml", "--picture", "none/net.png"], "cannot write none/net.png: No such file"),
        (["a.toml", "--picture", "net.xyz"], "cannot write net.xyz: Format 'xyz' is not supported"),
        (
            [
                "a.toml",
                "--set",
                "network={kind='file',path='short.parquet'}",
                "--rounds",
                "9",
            ],
            "rounds = 9 is not accepted: give a whole number of at least 1 and at most 5",
        ),
    ],
)
def test_network_show(words: list[str], part: str) -> None:
    save(Ring(10), "short.parquet", 5)
    before = files()
    assert_refused(gossamer("network", "show", *words), part)
    assert files() == before


def test_network_show_of_a_folder() -> None:
    assert_refused(gossamer("network", "show", "."), "cannot read .: Is a directory")


def test_several_methods_are_not_one_run() -> None:
    Path("a.toml").write_text('[[algorithm]]\nkind = "d-psgd"\n[[algorithm]]\nkind = "swarm-sgd"\n')
    refused(
        parts=(
            "algorithm = 'D-PSGD, SwarmSGD' is not accepted: give one [algorithm]",
            "gossamer compare",
        )
    )
    refused(
        "--set", "algorithm.local_steps=2", parts=("algorithm[0].local_steps is not a known key",)
    )


def test_studies_that_differ_in_more_than_the_method() -> None:
    for old, new, part in [
        (
            "density = 0.2",
            "density = 0.3",
            "network.density = 0.3 is not accepted: give 0.2 as in the first study",
        ),
        ("batch = 8", "batch = 9", "batch = 9 is not accepted: give 8"),
        (
            'kind = "iid"',
            'kind = "one-label"',
            "split.kind = 'one-label' is not accepted: give 'iid'",
        ),
    ]:
        Path("b.toml").write_text(SPEC.replace(old, new))
        refused("b.toml", parts=(part, "fair"), command="compare")


def test_no_seeds() -> None:
    refused(
        "--seeds",
        "0",
        parts=("seeds = 0 is not accepted: give a whole number from 1 to 100000",),
        command="compare",
    )


def test_new_does_not_write_over_a_file() -> None:
    before = files()
    assert_refused(gossamer("new", "a.toml"), "a.toml exists: give another name")
    assert_refused(
        gossamer("new", "none/b.toml"), "cannot write none/b.toml: No such file or directory"
    )
    assert files() == before


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["rum"], "no such command 'rum' (did you mean 'run'?); see `gossamer --help`"),
        (["run", "--sed", "3"], "--sed"),
        (["run", "--seed", "x"], "--seed"),
        (["run", "a.toml", "b.toml"], "b.toml"),
        (["network", "shw"], "shw"),
    ],
)
def test_unknown_arguments(words: list[str], part: str) -> None:
    assert_refused(gossamer(*words), part, "--help`")


# -- run folders ---------------------------------------------------------------------------------


def test_a_run_folder_that_exists() -> None:
    finished("--out", "out")
    refused(
        "--out",
        "out",
        parts=("out exists: go on with it by --resume, or give another name by --out",),
    )
    Path("mine").mkdir()
    finished("--out", "mine", "--set", "rounds=1")  # an empty folder will do
    Path("mine/spec.toml").unlink()
    for words in (["--out", "mine"], ["--out", "mine", "--resume"]):
        refused(*words, parts=("mine exists and holds no run: give another name by --out",))
    refused("--out", "a.toml", parts=("cannot read a.toml: Not a directory",))


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("algorithm.p=5", "algorithm.p was 3.0 and is now 5.0"),
        ("rounds=7", "rounds was 6 and is now 7"),
        ("network.kind=ring", "network.kind was 'random' and is now 'ring'"),
        (
            "network.faults=[{kind='link-failure',probability=0.1}]",
            "network.faults was not set and is now",
        ),
        ("measure.targets=['loss <= 1']", "measure.targets was not set and is now ['loss <= 1']"),
    ],
)
def test_a_resume_with_a_changed_spec(setting: str, part: str) -> None:
    finished("--out", "out")
    refused(
        "--out",
        "out",
        "--resume",
        "--set",
        setting,
        parts=("cannot resume out", part, "another --out"),
    )


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of an interrupted run."""
    monkeypatch.setattr(running, "_CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(running, "_CHECKPOINT_SPACING", 0)
    with monkeypatch.context() as patch:
        patch.setattr(
            store.RunFolder,
            "write_models",
            lambda *_: (_ for _ in ()).throw(errors.DataError("stopped")),
        )
        assert gossamer("run", "a.toml", "-q", "--out", "out").code == 2
    yield Path("out")
    for half_written in Path("out").glob(".*"):
        pytest.fail(f"{half_written} was left behind")


def damaged(path: Path, at: int) -> bytes:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    return bytes(content)


def end_of_first_values(path: Path) -> int:
    """Where the values of the column `round` of a Parquet file end."""
    columns = pq.read_metadata(path).row_group(0)
    for i in range(columns.num_columns):
        column = columns.column(i)
        if column.path_in_schema == "round":
            return int(column.data_page_offset + column.total_compressed_size - 1)
    raise AssertionError("there is no column of rounds")


DAMAGE = [
    ("checkpoint.safetensors", lambda path: path.read_bytes()[:-10], "is not a whole checkpoint"),
    ("checkpoint.safetensors", lambda path: b"", "is not a whole checkpoint"),
    ("checkpoint.safetensors", lambda path: damaged(path, -5), "its checksum does not fit"),
    (
        "checkpoint.safetensors",
        lambda path: safetensors.torch.save({"w": torch.zeros(3)}),
        "is not a whole checkpoint",
    ),
    (
        "metrics.parquet",
        lambda path: path.read_bytes()[:-10],
        "metrics.parquet is not a whole Parquet file",
    ),
    (
        "metrics.parquet",
        lambda path: damaged(path, end_of_first_values(path)),
        "metrics.parquet is not a whole Parquet file",
    ),
    ("metrics.parquet", lambda path: None, "metrics.parquet is missing"),
    ("spec.toml", lambda path: b"rounds = = 3", "spec.toml is not TOML"),
    ("spec.toml", lambda path: b"", "cannot resume"),
    ("summary.json", lambda path: b'{"finished": ', "summary.json is not a summary in JSON"),
    ("summary.json", lambda path: b"[1]", "summary.json is not a summary in JSON"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "damage", "part"), DAMAGE)
def test_resume_of_a_damaged_folder(stopped: Path, name: str, damage, part: str) -> None:
    content = damage(stopped / name) if (stopped / name).exists() else damage(stopped)
    if content is None:
        (stopped / name).unlink()
    else:
        (stopped / name).write_bytes(content)
    refused("--out", "out", "--resume", parts=(part,))


def test_deleting_a_damaged_checkpoint_helps(stopped: Path) -> None:
    (stopped / "checkpoint.safetensors").unlink()
    finished("--out", "out", "--resume")


def test_a_folder_that_cannot_be_created() -> None:
    refused("--out", "a.toml/out", parts=("cannot make the folder a.toml/out: Not a directory",))
    refused("--out", "x" * 300, parts=("names have at most 255 bytes",))
    refused("--out", "/proc/gossamer/out", parts=("cannot make the folder /proc/gossamer/out",))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "spec.toml",
        "metrics.parquet",
        "checkpoint.safetensors",
        "models.safetensors",
        "summary.json",
    ],
)
def test_a_full_disk(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(running, "_CHECKPOINT_SPACING", 0)
    sync = os.fsync
    write = write_atomically

    def full(path: Path, content: bytes) -> None:
        def fail(handle: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail if path.name == name else sync)
            write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(store, "write_atomically", full)
        assert_refused(
            gossamer("run", "a.toml", "-q", "--out", "out"),
            f"cannot write out/{name}: No space left on device",
            code=errors.Unavailable.exit_code,
        )
    assert not list(Path().rglob("*.part"))
    if name == "spec.toml":  # nothing had begun
        assert files().keys() == {"a.toml"}
    finished("--out", "out", "--resume")  # nothing was lost
    finished("--out", "whole")
    for file in ("out", "whole"):
        assert pq.read_table(f"{file}/metrics.parquet")["round"].to_pylist() == [0, 3, 6]
    assert (
        Path("out/models.safetensors").read_bytes() == Path("whole/models.safetensors").read_bytes()
    )


def test_a_run_that_diverges() -> None:
    """Least squares with a step far above 2/L: the models grow without bound."""
    Path("a.toml").write_text(
        'rounds = 500\ndata = "least-squares"\nmeasure = { every = 5 }\n'
        'algorithm = { kind = "d-psgd", eta = 50.0 }\n'
    )
    result = gossamer("run", "a.toml", "-q", "--out", "out")
    summary = json.loads(Path("out/summary.json").read_text(), parse_constant=pytest.fail)
    at = summary["diverged"]["round"]
    device = summary["diverged"]["device"]
    assert_refused(
        result,
        f"device {device} has a value that is not finite after round {at}",
        "a smaller eta",
        code=3,
    )
    assert summary["finished"] is False
    assert 0 <= device < 10
    rounds = pq.read_table("out/metrics.parquet")["round"].to_pylist()
    assert rounds == list(range(0, rounds[-1] + 1, 5))
    assert rounds[-1] < at <= rounds[-1] + 5  # everything until then was kept
    assert np.isfinite(pq.read_table("out/metrics.parquet")["loss"]).all()
    assert not Path("out/models.safetensors").exists()


def test_a_method_that_diverges_does_not_end_a_comparison() -> None:
    """The others run, its row says so, and the exit code is 3; the same command says it again."""
    Path("a.toml").write_text(
        "rounds = 12\nmeasure = { every = 4 }\n"
        '[[algorithm]]\nkind = "d-psgd"\neta = 1e30\n[[algorithm]]\nkind = "swarm-sgd"\n'
    )
    for _ in range(2):
        result = gossamer("compare", "a.toml", "-q", "--seeds", 2, "--out", "both")
        assert result.code == 3
        assert result.err == (
            "gossamer: 1 of 2 methods diverged: D-PSGD (2 of 2 seeds diverged); "
            'a smaller eta, a smaller p or step = "safe" usually mends it\n'
        )
        rows = {line.split()[0]: line for line in result.out.splitlines() if line.strip()}
        assert "2 of 2 seeds diverged" in rows["D-PSGD"]
        assert "±" in rows["SwarmSGD"]
    found = json.loads(gossamer("compare", "a.toml", "-q", "--out", "both", "--json").out)
    wild, tame = found["methods"]
    assert wild["diverged"] == {"0": wild["runs"][0]["diverged"]["round"]}
    assert "accuracy" not in wild
    assert "diverged" not in tame
    assert tame["accuracy"]["mean"] > 0.1


def test_a_comparison_in_which_all_diverge_before_a_measurement() -> None:
    Path("a.toml").write_text(
        'rounds = 9\nmeasure = { every = 0 }\nalgorithm = { kind = "d-psgd", eta = 1e30 }\n'
        'model = { kind = "mlp", hidden = [8] }\n'
    )
    result = gossamer("compare", "a.toml", "-q", "--out", "both")
    assert result.code == 3
    assert "diverged at round" in result.out


@pytest.mark.filterwarnings("ignore::gossamer.NetworkWarning")
def test_a_diverging_run_names_the_device() -> None:
    """Only device 7 has values that are too large: it is the first that is not finite."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 6)).astype(np.float32)
    x[28:32] *= 1e15
    Path("own.json").write_text(json.dumps([list(range(4 * i, 4 * i + 4)) for i in range(10)]))
    Path("a.toml").write_text(
        'rounds = 5\nsplit = { kind = "lists", path = "own.json" }\nmodel = "least-squares"\n'
        'algorithm = { kind = "d-psgd", eta = 0.1 }\n'
        'network = { kind = "random", devices = 10, density = 0.0 }\n'
    )
    setting = arrays(x=x, y=np.ones(40), x_test=x[:8], y_test=np.ones(8))
    assert_refused(
        gossamer("run", "a.toml", "-q", "--out", "out", "--set", setting), "device 7 has", code=3
    )


# -- anything ------------------------------------------------------------------------------------

KEYS = [
    "rounds",
    "batch",
    "seed",
    "dtype",
    "name",
    "data",
    "split",
    "model",
    "network",
    "algorithm",
    "measure",
    "nothing",
]
INNER = [
    "",
    ".kind",
    ".devices",
    ".density",
    ".p",
    ".eta",
    ".step",
    ".step.kind",
    ".faults",
    ".every",
    ".x",
    "[0].p",
    ".networks",
]
WORDS = st.one_of(
    st.sampled_from(
        [
            "true",
            "nan",
            "-inf",
            "1979-05-27",
            "''",
            "[]",
            "{}",
            "[{}]",
            "{kind=1}",
            "{kind='ring'}",
            "[[1]]",
            "0",
            "-1",
            '{"a\\nb"=1}',
        ]
    ),
    st.text(max_size=6),
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gossamer.errors.NetworkWarning")  # a density of 0 is accepted
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(key="network", inner=".density", word="0.0")
@given(st.sampled_from(KEYS), st.sampled_from(INNER), WORDS)
def test_no_setting_gives_a_traceback(key: str, inner: str, word: str) -> None:
    """Any setting either works or is an error of one sentence."""
    result = gossamer("network", "show", "a.toml", "--rounds", "1", "--set", f"{key}{inner}={word}")
    if result.code:
        assert_refused(result)
    else:
        assert result.err == ""


# -- the real command ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "part", "code"),
    [
        (["run", "a.toml", "--set", "network.densty=0.1"], "did you mean 'density'?", 2),
        (["rum"], "no such command 'rum'", 2),
        (
            [
                "run",
                "a.toml",
                "-q",
                "--out",
                "out",
                "--set",
                "model.kind=least-squares",
                "--set",
                "algorithm.eta=1e6",
            ],
            "diverged",
            3,
        ),
    ],
)
def test_the_real_command(words: list[str], part: str, code: int) -> None:
    assert_refused(real(*words), part, code=code)


@pytest.mark.slow
def test_the_real_command_with_a_file_size_limit() -> None:
    """With files of at most 2 kB the spec can be written, the metrics cannot."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))

    assert_refused(
        real("run", "a.toml", "-q", "--out", "out", preexec_fn=limit),
        "cannot write out/",
        "File too large",
    )
    assert files().keys() == {"a.toml", "out", "out/spec.toml"}
    finished("--out", "out", "--resume")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_the_real_command_with_a_full_output() -> None:
    with open("/dev/full", "w") as full:
        done = processes.run([*REAL, "network", "show", "a.toml"], stdout=full)
    assert (done.returncode, done.stderr) == (
        2,
        "gossamer: cannot continue: No space left on device\n",
    )
