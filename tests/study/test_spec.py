"""Specs: a study as tables and back, settings on the command line, defaults."""

from __future__ import annotations

import copy
import dataclasses
import tomllib
import typing
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gossamer import algorithms, mirror, network, tasks
from gossamer.algorithms.composition import mirror_of
from gossamer.cli.template import DEMO, TEMPLATE
from gossamer.engines import Measure
from gossamer.errors import GossamerError
from gossamer.network import Ring, save
from gossamer.study import Study, spec
from gossamer.tasks import split_files, split_rules, synthetic
from gossamer.tasks.hf import HuggingFace

# -- every kind of every section, with varied fields ---------------------------------------------

share = st.floats(0, 1)
number = st.floats(1e-6, 1e6)
seed = st.integers(-(2**40), 2**40)
count = st.integers(1, 50)

plain_schedules = st.one_of(
    st.builds(algorithms.InverseSqrt, number, number),
    st.builds(algorithms.Inverse, number, number),
    st.builds(algorithms.Cosine, number, count, number),
    st.builds(algorithms.Switch, number, count, number),
)
schedules = plain_schedules | st.builds(algorithms.Warmup, count, number | plain_schedules)
powers = st.one_of(
    st.floats(1, 101), st.builds(algorithms.Switch, st.floats(1, 9), count, st.floats(1, 3))
)
etas = st.one_of(number, schedules)
steps = st.one_of(
    st.just(algorithms.Constant()),
    st.just(algorithms.Power()),
    st.just(algorithms.Plain()),
    st.builds(algorithms.Matched, number),
    st.builds(algorithms.Safe, number),
    st.builds(algorithms.Ratio, st.sampled_from(["norm", "printed"])),
)
points = st.sampled_from(["local", "aggregate"])
orders = st.sampled_from(["combine-then-adapt", "adapt-then-combine"])
betas = st.floats(0, 0.99)
optimizers = st.one_of(
    st.just(algorithms.SGD()),
    st.builds(algorithms.SGD, st.floats(0.01, 0.99), st.booleans()),
    st.builds(algorithms.Adam, betas, betas, number),
    st.builds(algorithms.AdamW, betas, betas, number, share),
)
on_cut = st.sampled_from(["drop", "keep"])
local_steps = {
    "optimizer": optimizers,
    "weight_decay": share,
    "clip_norm": st.none() | number,
}
directions = st.one_of(
    st.just(algorithms.PlainGradient()),
    st.builds(algorithms.QuasiGlobalMoments, betas, betas, number, number),
    st.builds(algorithms.QuasiGlobalMomentum, betas),
)
weight_rules = st.one_of(
    *(
        st.just(rule())
        for rule in (network.Metropolis, network.NetworkWeights, network.BestConstant)
    ),
    *(st.just(rule()) for rule in (network.Matching, network.RandomPeer)),
    st.builds(network.Laplacian, share),
)
compressors = st.one_of(
    st.none(),
    st.builds(algorithms.TopK, st.floats(0.01, 1)),
    st.builds(algorithms.RandomK, st.floats(0.01, 1), count),
    st.builds(algorithms.Quantised, st.integers(2, 16), count),
)
mirrors = powers.map(mirror_of)
local_schedules = st.builds(algorithms.ByDivergence, number, number)
methods = st.one_of(
    st.builds(algorithms.WPM, powers, etas, steps, points, orders, st.booleans()),
    st.builds(
        algorithms.Composition,
        mirrors,
        direction=directions,
        local_steps=st.integers(1, 4),
        weights=weight_rules,
    ),
    st.builds(
        algorithms.Composition,
        mirrors,
        direction=st.just(algorithms.GradientTracking()),
        compress=compressors,
        pull=st.floats(0.1, 1),
    ),
    st.builds(algorithms.WPMPaper, st.floats(1, 101), number),
    st.builds(algorithms.AIMS, st.floats(1, 101), etas, steps, points, st.booleans()),
    st.builds(algorithms.WPM, st.builds(algorithms.ByDivergence, st.floats(1, 101))),
    st.builds(
        algorithms.Composition,
        st.builds(mirror.SinhMap, number) | st.builds(mirror.ArcsinhMap, number),
        step=st.sampled_from([algorithms.Constant(), algorithms.Plain()]),
    ),
    st.builds(algorithms.QuasiGlobal, etas, st.floats(0, 0.99)),
    st.builds(algorithms.ChocoSGD, etas, compressors.filter(bool), st.floats(0.1, 1)),
    st.builds(algorithms.WPMTracking, etas, powers),
    st.builds(algorithms.LocalSGD, etas, count, weight_rules),
    st.builds(algorithms.DPSGD, etas, points, orders, **local_steps),
    st.builds(algorithms.WPM, powers, **local_steps),
    st.builds(algorithms.Momentum, etas, st.floats(0.01, 0.99), st.booleans()),
    st.builds(algorithms.DAdam, etas, betas, betas, number, weight_decay=share),
    st.builds(algorithms.QuasiGlobalAdam, etas, betas, betas, number, number),
    st.builds(algorithms.DiLoCo, etas, count, number, betas, **local_steps),
    st.builds(algorithms.NoLoCo, etas, count, number, betas, number, **local_steps),
    st.builds(algorithms.KGT, etas, count, number, weight_decay=share),
    st.builds(algorithms.SwarmSGD, etas, count, st.sampled_from(["one", "matching"]), on_cut),
    st.builds(algorithms.AllReduce, etas),
    st.builds(
        algorithms.Composition,
        mirrors,
        etas,
        anchor=st.just(True),
        gain=number | st.builds(algorithms.Switch, number, count) | local_schedules,
    ),
    st.builds(algorithms.FedAvg, etas, count, st.floats(0.01, 1)),
    st.builds(algorithms.GossipLearning, etas),
    st.builds(algorithms.ADPSGD, etas, on_cut),
    st.builds(algorithms.DivShare, etas, count),
    st.builds(algorithms.SWIFT, etas, count, st.integers(1, 9)),
    st.builds(algorithms.PushSum, etas),
    *(st.builds(static, number) for static in (algorithms.EXTRA, algorithms.D2, algorithms.NIDS)),
    st.builds(algorithms.DGD, number),
    st.builds(algorithms.FastAveraging, etas, weight_rules),
    st.builds(algorithms.FadingGain, etas, st.floats(0, 9)),
    st.builds(algorithms.FadingGainTracking, etas, st.floats(0, 9)),
    st.builds(algorithms.GainControl, etas, st.floats(1, 2), count),
    st.builds(algorithms.GainQuasiGlobal, etas, betas, st.floats(1, 2), count),
    st.builds(algorithms.GainTracking, etas, st.floats(1, 2), count),
    st.builds(algorithms.Tracking, etas),
    st.builds(algorithms.WPMCompressed, etas, powers, compressors.filter(bool), st.floats(0.1, 1)),
    st.builds(algorithms.WPMLocalSteps, etas, powers, count),
    st.builds(algorithms.WPMQuasiGlobal, etas, betas, powers),
    st.builds(algorithms.ADOM, st.floats(1, 9), st.floats(0.1, 1), st.floats(1, 99)),
    st.builds(algorithms.DABMD, etas, st.floats(1, 9), count, steps, seed),
)

DEVICES = 12
mix_rules = st.one_of(
    st.builds(algorithms.Clip, number),
    st.builds(algorithms.TrimmedMean, st.floats(0, 0.49)),
    st.just(algorithms.Median()),
    st.builds(algorithms.Checked, number),
)


def guardable(method: algorithms.Algorithm) -> bool:
    return method.weights.sums in ("both", "rows") and not method.merges_one_by_one


guarded = st.builds(algorithms.Guarded, methods.filter(guardable), mix_rules)
numbers = st.lists(st.integers(0, DEVICES - 1), max_size=3, unique=True).map(tuple)
kinds_of_harm = st.sampled_from(["large", "opposite", "noise", "nan"])
methods = st.one_of(
    methods,
    guarded,
    st.builds(algorithms.Broken, methods | guarded, numbers, kinds_of_harm, number, seed),
)

faults = st.one_of(
    st.builds(network.LinkFailure, share, seed),
    st.builds(network.GilbertElliott, share, share, share, share, seed),
    st.builds(network.Churn, share, share, seed),
)
every = st.integers(0, 9)
bare = st.one_of(
    st.just(network.Full(DEVICES)),
    st.just(network.Ring(DEVICES)),
    st.just(network.Star(DEVICES)),
    st.builds(network.RandomRing, st.just(DEVICES), seed, every),
    st.builds(network.Random, st.just(DEVICES), share, seed, every),
    st.builds(network.ErdosRenyi, st.just(DEVICES), share, seed, every),
    st.builds(network.Regular, st.just(DEVICES), st.integers(0, DEVICES - 1), seed, every),
    st.just(network.Torus(DEVICES, rows=2)),
    st.builds(network.SmallWorld, st.just(DEVICES), st.just(2), share, seed, every),
    st.builds(network.StochasticBlocks, st.just(DEVICES), st.just(3), share, share, seed, every),
    st.just(network.Exponential(DEVICES)),
    st.just(network.OnePeerExponential(DEVICES)),
    st.just(network.HyperHypercube(DEVICES, 2)),
    st.builds(network.BaseGraph, st.just(DEVICES), count, st.booleans()),
    st.builds(network.EquiStatic, st.just(DEVICES), count, seed=seed),
    st.builds(network.EquiDyn, st.just(DEVICES), count, st.just(False), st.floats(0.1, 1), seed),
    st.builds(
        network.Mobility, st.just(DEVICES), number, st.just(0.01), st.just(0.1), number, seed=seed
    ),
    st.builds(
        network.PoissonMeetings,
        st.just(DEVICES),
        share,
        st.floats(0.1, 9),
        st.sampled_from(["exponential", "fixed"]),
        seed,
    ),
)


def faulty(nets: st.SearchStrategy[network.Network]) -> st.SearchStrategy[network.Network]:
    def on_top(net: network.Network, several: list[network.Fault]) -> network.Network:
        for fault in several:
            net = net & fault
        return net

    return st.builds(on_top, nets, st.lists(faults, max_size=3))


networks = st.recursive(
    faulty(bare),
    lambda inner: faulty(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: network.Cycle(tuple(parts)))
    ),
    max_leaves=4,
)
# Links of one network go one way or both, so these are not in a cycle with the others.
one_way = st.builds(network.Epidemic, st.just(DEVICES), st.integers(1, 3), seed, every)
networks |= faulty(one_way)
paths = st.sampled_from(["/data/fleet.npz", "/data/with a space/ü.npz", "/data/it's.npz"]).map(Path)
folders = st.none() | paths
column = st.sampled_from(["label", "a b", "größe"])
real_data = st.one_of(
    st.builds(tasks.Digits, st.integers(1, 1796), seed),
    st.builds(tasks.Mnist, folders),
    st.builds(tasks.FashionMnist, folders),
    st.builds(tasks.Cifar10, folders),
    st.builds(tasks.Arrays, paths),
    st.builds(
        tasks.Table,
        paths,
        column | st.lists(column, min_size=2, max_size=3, unique=True).map(tuple),
        test=st.floats(0.01, 0.99),
        test_path=folders,
        scale=st.booleans(),
        pooled=st.booleans(),
        seed=seed,
    ),
    st.builds(HuggingFace, paths, column, max_length=count, pooled=st.booleans(), seed=seed),
)
data = st.one_of(
    real_data,
    st.builds(tasks.Validation, real_data, st.floats(0.01, 0.99), seed),
    st.builds(synthetic.LeastSquares, st.just(DEVICES), count, count, number, seed, number),
    st.builds(synthetic.Logistic, st.just(DEVICES), count, count, number, seed, number),
)
rules = st.one_of(
    st.just(split_rules.Iid()),
    st.just(split_rules.OneLabel()),
    st.builds(split_rules.Labels, count),
    st.builds(split_rules.Dirichlet, number),
    st.builds(split_rules.Uneven, number),
    st.builds(split_rules.Drawn, count),
    st.builds(split_rules.ByClass, column),
    st.builds(split_files.Lists, paths),
)
models = st.one_of(
    st.builds(tasks.Softmax, number),
    st.builds(tasks.Svm, number),
    st.builds(tasks.LinearRegression, number),
    st.builds(tasks.LogisticRegression, number),
    st.builds(tasks.Mlp, st.lists(count, min_size=1, max_size=3).map(tuple), st.floats(0, 0.9)),
    st.builds(tasks.Cnn, st.tuples(count, count), st.booleans()),
    st.builds(
        tasks.Transformers,
        config=st.builds(lambda size: {"model_type": "bert", "hidden_size": size}, count),
        head=st.sampled_from(["sequence-classification", "causal-lm"]),
        lora=st.none() | st.builds(lambda r: {"r": r, "target_modules": ["query"]}, count),
        pad=st.none() | count,
    ),
)
targets = st.one_of(
    st.builds(lambda value: f"accuracy >= {value!r}", share),
    st.builds(lambda value: f"loss <= {value!r}", number),
)
measures = st.builds(
    Measure,
    st.integers(0, 99),
    st.sampled_from(["after_step", "after_mix"]),
    st.integers(0, 999),
    targets=st.lists(targets, max_size=3, unique=True).map(tuple),
)
quantities = st.one_of(
    number,
    st.builds(
        lambda low, times, every: network.LogUniform(low, low * times, every),
        number,
        number.map(lambda x: 1 + x),
        every,
    ),
)
timings = st.none() | st.builds(network.Timing, quantities, quantities, quantities, seed)
names = st.text(
    st.characters(exclude_categories=["C"], exclude_characters="/."), min_size=1, max_size=9
).filter(str.isprintable)
studies = st.builds(
    Study,
    methods,
    networks,
    data,
    rules,
    models,
    count,
    st.integers(0, 10**6),
    seed,
    measures,
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["cpu", "cuda:1"]),
    st.integers(0, 64),
    names,
    timings,
).map(
    lambda study: (
        dataclasses.replace(study, split=split_rules.Iid())
        if hasattr(study.data, "split")
        else study
    )
)


@pytest.mark.slow
@settings(max_examples=300)
@given(studies)
def test_a_study_is_the_same_after_a_round_trip_through_toml(study: Study) -> None:
    (back,) = spec.studies(tomllib.loads(spec.dumps(study)))
    assert back == study
    assert spec.difference(spec.to_table(back), spec.to_table(study)) is None


@pytest.mark.slow
@settings(max_examples=100)
@given(studies, st.integers(0, 1000))
def test_the_seed_option_shifts_every_seed(study: Study, wanted: int) -> None:
    assert spec.studies(spec.to_table(study), seed=wanted) == [study.with_seed(wanted)]


class AllFound(Exception):
    """Ends the search of examples."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "section",
    [
        "data",
        "split",
        "model",
        "network",
        "faults",
        "algorithm",
        "step",
        "schedule",
        "quantity",
        "rule",
    ],
)
def test_the_round_trip_covers_every_kind(section: str) -> None:
    """A new kind must be added to the strategies above, or to the test of files below."""
    from_files = {"file", "contacts", "positions", "trace"}
    strategies = {
        "data": data,
        "split": rules,
        "model": models,
        "faults": faults,
        "algorithm": methods,
    }
    strategies |= {
        "step": steps,
        "schedule": schedules | local_schedules,
        "network": bare | one_way | st.just(network.Cycle((network.Ring(DEVICES),))),
        "quantity": quantities,
        "rule": mix_rules,
    }
    missing = {cls for kind, cls in spec.KINDS[section].items() if kind not in from_files}

    @settings(max_examples=6000, database=None, phases=[Phase.generate])
    @given(strategies[section])
    def note(part: Any) -> None:
        missing.discard(_bare(part))
        if not missing:
            raise AllFound

    with suppress(AllFound):
        note()
    assert not missing


def _bare(part: Any) -> type:
    """Return the class of a part; of a network, without its faults."""
    while isinstance(part, network.Faulty):
        part = part.network
    return type(part)


def test_networks_from_files_keep_their_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(Ring(10), "links.parquet", 5)
    Path("log.txt").write_text("0 0 1\n1 8 9\n")
    Path("dated.txt").write_text("".join(f"2010-12-06T00:{m:02}Z {m} 9\n" for m in range(9)))
    Path("fixes.csv").write_text("0,0,0.0,0.0\n1,9,1.0,1.0\n")
    nets = [
        network.Sequence("links.parquet", "repeat"),
        network.ContactTrace("log.txt", 10, 2.0, 0.0, "contacts", "assume", "empty"),
        network.ContactTrace("dated.txt", start=datetime(2010, 12, 6), columns=("time", "a", "b")),
        network.ContactTrace("dated.txt", start="2010-12-06T00:00:10Z", absent="away"),
        network.PositionTrace("fixes.csv", 3.0, 10, True, 0.5, 0.0, "repeat"),
        network.Cycle((network.Sequence("links.parquet"), network.ContactTrace("log.txt", 10))),
    ]
    for net in nets:
        text = spec.dumps(Study(network=net))
        assert str(tmp_path) in text  # wherever the run folder is read from
        monkeypatch.chdir("/")
        (back,) = spec.studies(tomllib.loads(text))
        monkeypatch.chdir(tmp_path)
        assert back.network.links(1) == net.links(1)
        assert spec.to_table(back) == spec.to_table(Study(network=net))


def test_a_timing_from_files_keeps_its_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("devices.csv").write_text("device,compute\n0,0.5\n")
    Path("links.csv").write_text("a,b,rate\n0,1,9\n")
    timing = network.Timing(
        network.TimingTrace("devices.csv", 0.25), network.TimingTrace(Path("links.csv"))
    )
    text = spec.dumps(Study(timing=timing))
    monkeypatch.chdir("/")
    (back,) = spec.studies(tomllib.loads(text))
    assert back.timing == network.Timing(
        network.TimingTrace(str(tmp_path / "devices.csv"), 0.25),
        network.TimingTrace(str(tmp_path / "links.csv")),
    )


def test_parts_made_in_python_are_described_and_not_rebuilt() -> None:
    net = network.Callback(10, lambda t: [(0, 1)])
    table = spec.to_table(Study(algorithms.DPSGD(eta=lambda t: 0.1), net))
    assert table["network"]["kind"] == table["algorithm"]["eta"]["kind"] == "python"
    with pytest.raises(spec.SpecError, match="network was made in Python"):
        spec.studies(table)


# -- reading -------------------------------------------------------------------------------------


def test_an_empty_spec_is_the_default_study() -> None:
    assert spec.studies({}) == [Study()]


def test_the_kind_alone_is_short_for_a_table() -> None:
    short = {
        "data": "digits",
        "split": "one-label",
        "model": "svm",
        "algorithm": {"kind": "wpm", "step": "matched"},
    }
    (study,) = spec.studies(short)
    assert (study.split, study.model) == (split_rules.OneLabel(), tasks.Svm())
    assert study.algorithm == algorithms.WPM(step=algorithms.Matched())


def test_paths_are_relative_to_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.toml").write_text(
        'data = { kind = "arrays", path = "../own.npz" }\n'
        'network = { kind = "cycle", networks = [{ path = "x" }] }\n'
    )
    monkeypatch.chdir("/")
    table = spec.read(tmp_path / "deep" / "a.toml")
    assert Path(table["data"]["path"]).resolve() == tmp_path / "own.npz"
    assert table["network"]["networks"][0]["path"] == str(tmp_path / "deep" / "x")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert (
        spec.with_settings({}, ["data={kind='arrays',path='~/own.npz'}"])["data"]["path"]
        == "/home/somebody/own.npz"
    )


def test_a_methods_name_is_its_kind_and_its_table_has_its_arguments() -> None:
    def one(**table: object) -> algorithms.Algorithm:
        return spec.studies({"algorithm": table})[0].algorithm

    for name, entry in algorithms.METHODS.items():
        assert one(kind=name) == entry.make()
    assert one(kind="wpm-paper", p=5) == algorithms.WPMPaper(5)
    assert one(kind="wpm", p=5, step="power", anchor=False) == algorithms.WPM(
        5, step=algorithms.Power(), anchor=False
    )
    falling = {"kind": "power-schedule", "p": {"kind": "switch", "first": 5, "rounds": 20}}
    assert one(kind="composition", mirror=falling) == algorithms.Composition(
        algorithms.PowerSchedule(algorithms.Switch(5, 20))
    )
    sinh = {"kind": "sinh", "scale": 0.1}
    assert one(kind="composition", mirror=sinh, step="constant") == algorithms.Composition(
        mirror.SinhMap(0.1), step=algorithms.Constant()
    )
    local = {"kind": "by-divergence", "most": 9}
    assert one(kind="wpm", p=local) == algorithms.WPM(algorithms.ByDivergence(9))


def test_the_seed_reaches_every_part_that_draws() -> None:
    table = {
        "seed": 7,
        "data": "logistic",
        "network": {
            "kind": "cycle",
            "networks": [
                {"kind": "random", "devices": 4, "density": 0.5},
                {"kind": "random-ring", "devices": 4, "seed": 1},
            ],
            "faults": [{"kind": "churn", "leave": 0.1, "come_back": 0.1}],
        },
    }
    for wanted, moved in ((None, 0), (9, 2)):
        (study,) = spec.studies(table, seed=wanted)
        cycle = typing.cast(network.Faulty, study.network)
        inner = typing.cast(network.Cycle, cycle.network).networks
        assert [vars(part)["seed"] for part in inner] == [7 + moved, 1 + moved]
        assert vars(cycle.fault)["seed"] == vars(study.data)["seed"] == study.seed == 7 + moved


def test_synthetic_data_fits_the_network_and_its_model() -> None:
    (study,) = spec.studies({"data": "least-squares", "network": {"kind": "ring", "devices": 7}})
    assert study.data == synthetic.LeastSquares(devices=7)
    assert study.model == tasks.LinearRegression()


@pytest.mark.parametrize("text", [DEMO, TEMPLATE], ids=["demo", "template"])
def test_the_specs_of_the_project_are_valid(text: str) -> None:
    for study in spec.studies(spec.parse(text)):
        assert spec.studies(tomllib.loads(spec.dumps(study))) == [study]


# -- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "settings", "after"),
    [
        (
            {},
            ["rounds=5", "name=a b", "dtype='float64'"],
            {"rounds": 5, "name": "a b", "dtype": "float64"},
        ),
        ({"rounds": 5}, ["rounds=6", "rounds=7"], {"rounds": 7}),
        (
            {"split": "iid"},
            ["split.kind=uneven", "split.sigma=2"],
            {"split": {"kind": "uneven", "sigma": 2}},
        ),
        ({"split": "iid"}, ["split=one-label"], {"split": "one-label"}),
        (
            {"algorithm": [{"kind": "d-psgd"}, {"kind": "swarm-sgd"}]},
            ["algorithm.eta=0.1", "algorithm[1].local_steps=3"],
            {
                "algorithm": [
                    {"kind": "d-psgd", "eta": 0.1},
                    {"kind": "swarm-sgd", "eta": 0.1, "local_steps": 3},
                ]
            },
        ),
        (
            {
                "network": {
                    "kind": "random",
                    "devices": 8,
                    "density": 0.5,
                    "faults": [{"kind": "churn"}],
                }
            },
            ["network.kind=ring"],
            {"network": {"kind": "ring", "devices": 8, "faults": [{"kind": "churn"}]}},
        ),
        (
            {"network": {"kind": "random", "devices": 8, "density": 0.5}},
            ["network.kind=random"],
            {"network": {"kind": "random", "devices": 8, "density": 0.5}},
        ),
        (
            {"algorithm": {"kind": "wpm", "p": 3, "eta": 0.1}},
            ["algorithm.kind=d-psgd"],
            {"algorithm": {"kind": "d-psgd", "eta": 0.1}},
        ),
        (
            {"algorithm": {"kind": "wpm", "step": {"kind": "safe", "floor": 0.1}}},
            ["algorithm.step.kind=constant"],
            {"algorithm": {"kind": "wpm", "step": {"kind": "constant"}}},
        ),
        (
            {},
            ["network.density=0.3"],
            {"network": {"kind": "random", "devices": 10, "density": 0.3}},
        ),
        ({}, ["algorithm.p=5"], {"algorithm": {"kind": "wpm", "p": 5}}),
        (
            {},
            ["algorithm.p={kind='switch',first=5,rounds=2}"],
            {
                "algorithm": {
                    "kind": "wpm",
                    "p": {"kind": "switch", "first": 5, "rounds": 2},
                }
            },
        ),
        ({}, [" rounds = 5 "], {"rounds": 5}),
        ({}, ["name=a=b"], {"name": "a=b"}),
    ],
)
def test_settings(before: dict[str, Any], settings: list[str], after: dict[str, Any]) -> None:
    given = copy.deepcopy(before)
    assert spec.with_settings(before, settings) == after
    assert before == given  # the tables that were given are left as they were


@given(
    st.floats(allow_nan=False),
    st.integers(),
    st.booleans(),
    st.text(st.characters(exclude_categories=["C"])),
)
def test_settings_equal_toml(real: float, whole: int, truth: bool, text: str) -> None:
    words = [f"a={real!r}", f"b={whole}", f"c={str(truth).lower()}", f"d='''{text}'''"]
    if "'" in text:
        words[-1] = "d=" + '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert spec.with_settings({}, words) == {"a": real, "b": whole, "c": truth, "d": text}


@pytest.mark.slow
@given(
    st.recursive(
        st.integers(0, 3) | st.text(max_size=2),
        lambda v: st.lists(v) | st.dictionaries(st.text(max_size=2), v),
    )
)
def test_a_table_does_not_differ_from_itself(table: Any) -> None:
    assert spec.difference(table, copy.deepcopy(table)) is None


def test_the_first_difference_is_named() -> None:
    old = {"rounds": 5, "network": {"faults": [{"leave": 0.1}, {"leave": 0.2}]}}
    assert spec.difference(old, {**old, "rounds": 6}) == ("rounds", 5, 6)
    new = {"rounds": 5, "network": {"faults": [{"leave": 0.1}, {"leave": 0.3}]}}
    assert spec.difference(old, new) == ("network.faults[1].leave", 0.2, 0.3)
    assert spec.difference({}, {"seed": 1}) == ("seed", None, 1)
    assert spec.difference({"a": [1]}, {"a": [1, 2]}) == ("a", [1], [1, 2])


# -- every field of every kind -------------------------------------------------------------------

FIELDS = [
    (section, kind, field)
    for section in ("data", "split", "model", "network", "algorithm")
    for kind, cls in spec.KINDS[section].items()
    for field in dataclasses.fields(cls)
    if field.init
]


@pytest.mark.parametrize(
    ("section", "kind", "field"), FIELDS, ids=[f"{s}-{k}-{f.name}" for s, k, f in FIELDS]
)
def test_errors_name_the_field_and_what_it_accepts(
    section: str, kind: str, field: dataclasses.Field
) -> None:
    """A table instead of a plain value, or the reverse, is an error that names the field."""
    nonsense = 3 if field.name in ("networks", "step", "columns") else {"no": "such"}
    path = f"{section}.{field.name}"
    with pytest.raises(GossamerError) as refusal:
        spec.studies({"data": "digits", section: {"kind": kind, field.name: nonsense}})
    assert path in str(refusal.value)
    assert any(word in str(refusal.value) for word in ("give", "kind")), refusal.value


def test_numpy_scalars_are_written_as_plain_numbers() -> None:
    study = Study(
        network=network.Random(10, np.float64(0.5), seed=np.int64(3)),
        seed=np.int64(3),
        rounds=np.int32(9),
    )
    table = tomllib.loads(spec.dumps(study))
    assert (
        table["network"]["density"],
        table["network"]["seed"],
        table["seed"],
        table["rounds"],
    ) == (0.5, 6, 3, 9)
