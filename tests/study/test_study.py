"""Studies from Python: equality, seeds, plans, runs with user data and modules, comparisons."""

from __future__ import annotations

import signal
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from support.command import gossamer
from support.listing import attribute, times_of
from torch import Tensor, nn

import gossamer as gs
from gossamer import draws
from gossamer.cli import main
from gossamer.errors import DataError, GossamerError, InputError
from gossamer.study import Interrupted, Run, spec, study_of


def small(**changes: Any) -> gs.Study:
    """Return a study that runs in a few hundredths of a second."""
    return replace(
        gs.Study(
            gs.DPSGD(eta=0.1),
            gs.Ring(5),
            rounds=6,
            measure=gs.Measure(every=3, targets=("accuracy >= 0.2",)),
        ),
        **changes,
    )


def blobs(samples: int = 240) -> gs.Data:
    """Return three clusters of points that are learned in a few rounds."""
    y = np.arange(samples) % 3
    x = (
        0.5 * draws.normal(0, "blobs", np.arange(samples)[:, None], np.arange(4))
        + np.eye(3, 4)[y] * 3
    )
    return gs.from_arrays(x[:180], y[:180], x[180:], y[180:], name="blobs")


class Net(nn.Module):
    """A module with local state and draws: BatchNorm, dropout, and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(4, 8).requires_grad_(False)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(torch.relu(self.norm(self.features(x)))))


def own(**changes: Any) -> gs.Study:
    """Return a study of user arrays and a user module."""
    return small(
        **{
            "data": blobs(),
            "split": gs.Dirichlet(1.0),
            "model": gs.Module(Net),
            "rounds": 20,
            **changes,
        }
    )


def same(one: Run, other: Run) -> bool:
    """True if models and measurements are equal bit for bit."""
    for name in {*one.models, *other.models}:
        if not torch.equal(one.models[name], other.models[name]):
            return False
    for name in {*one.metrics, *other.metrics}:
        if not np.array_equal(one.metrics[name], other.metrics[name], equal_nan=True):
            return False
    return True


# -- the study itself ----------------------------------------------------------------------------


def test_studies_with_equal_parts_are_equal() -> None:
    assert small() == small()
    assert gs.Study() == gs.Study()
    data = blobs()
    assert own(data=data) == own(data=data)
    assert own() != own()  # other arrays, even if the same numbers are in them
    for change in (
        {"algorithm": gs.DPSGD(eta=0.2)},
        {"network": gs.Ring(6)},
        {"split": gs.OneLabel()},
        {"model": gs.Softmax(l2=0.1)},
        {"measure": gs.Measure(every=1)},
        {"seed": 1},
    ):
        assert small(**change) != small()


def test_with_seed_shifts_every_seed_by_the_same_amount(tmp_path: Path) -> None:
    network = gs.Cycle(
        (gs.Random(5, 0.5, seed=3) & gs.LinkFailure(0.1, seed=5), gs.Ring(5))
    ) & gs.Churn(0.1, 0.5, seed=2)
    study = small(
        network=network,
        seed=10,
        parts_seed=10,
        data=gs.LeastSquares(5, seed=7),
        model=gs.LinearRegression(),
    )
    assert study.network == network
    moved = study.with_seed(14)
    assert moved.seed == 14
    assert moved.network == gs.Cycle(
        (gs.Random(5, 0.5, seed=7) & gs.LinkFailure(0.1, seed=9), gs.Ring(5))
    ) & gs.Churn(0.1, 0.5, seed=6)
    assert moved.data == gs.LeastSquares(5, seed=11)
    assert moved.with_seed(10) == study
    assert study.with_seed(10) == study


def test_a_study_of_a_seed_is_that_study_moved_to_the_seed() -> None:
    parts: dict[str, Any] = {
        "algorithm": gs.Composition(gs.PowerMap(3), compress=gs.RandomK(0.5, seed=2)),
        "network": gs.Random(5, 0.5, seed=3) & gs.Churn(0.1, 0.5),
        "data": gs.LeastSquares(5, seed=7),
        "model": gs.LinearRegression(),
        "timing": gs.Timing(0.1, rate=1e6),
    }
    study = gs.Study(**parts, seed=4)
    assert study == gs.Study(**parts).with_seed(4)
    assert study.network == gs.Random(5, 0.5, seed=7) & gs.Churn(0.1, 0.5, seed=4)
    assert study.algorithm.compress.seed == 6
    assert (study.data.seed, study.timing.seed) == (11, 4)
    assert replace(study, rounds=9).network == study.network  # not moved a second time
    assert replace(study, seed=0) == gs.Study(**parts)
    assert spec.studies(spec.parse(spec.dumps(study))) == [study]
    for wrong in (1.5, "3", 2**63):
        with pytest.raises(InputError, match=r"^seed = "):
            gs.Study(seed=wrong)


def test_a_seed_is_the_same_in_python_in_a_spec_and_at_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = """
rounds = 12
batch = 8
name = "a"
timing = { compute = 0.1, rate = { kind = "log-uniform", low = 1e5, high = 1e6 } }
[network]
kind = "random"
devices = 6
density = 0.4
faults = [{ kind = "churn", leave = 0.1, come_back = 0.5 }]
[algorithm]
kind = "composition"
eta = 0.1
compress = { kind = "random-k", share = 0.5 }
"""
    Path("a.toml").write_text(text)
    Path("b.toml").write_text(f"seed = 3\n{text}")
    assert gossamer("run", "a.toml", "--seed", "3", "--out", "command", "-q").code == 0
    assert gossamer("run", "b.toml", "--out", "spec", "-q").code == 0
    assert gossamer("run", "command/spec.toml", "--out", "again", "-q").code == 0
    study = gs.Study(
        gs.Composition(eta=0.1, compress=gs.RandomK(0.5)),
        gs.Random(6, 0.4) & gs.Churn(0.1, 0.5),
        rounds=12,
        batch=8,
        name="a",
        timing=gs.Timing(0.1, rate=gs.LogUniform(1e5, 1e6)),
        seed=3,
    )
    made = gs.run(study, "python")
    for name in ("command", "spec", "again"):
        assert Path(name, "spec.toml").read_text() == Path("python", "spec.toml").read_text()
        assert same(gs.Run.read(name), made)
    other = gs.run(replace(study, seed=0))
    assert not same(other, made)
    assert other.study.network != study.network


def test_with_seed_keeps_parts_without_draws(tmp_path: Path) -> None:
    trace = tmp_path / "contacts.txt"
    trace.write_text("0 0 1\n1 1 2\n2 2 3\n3 3 4\n")
    function: Callable[[int], list[tuple[int, int]]] = lambda t: [(0, 1)]  # noqa: E731
    for network in (
        gs.Ring(5),
        gs.ContactTrace(trace),
        gs.Graph(5, ((0, 1), (2, 3))),
        gs.Callback(5, function),
    ):
        assert small(network=network).with_seed(3).network == network
    moved = small(network=gs.ContactTrace(trace) & gs.LinkFailure(0.5)).with_seed(3)
    assert moved.network == gs.ContactTrace(trace) & gs.LinkFailure(0.5, seed=3)
    data = blobs()
    assert own(data=data).with_seed(3).data is data
    assert small().with_seed(3).data == gs.Digits()  # the same test images for every seed


def test_another_seed_is_another_run() -> None:
    network = gs.Random(5, 0.4)
    runs = [gs.run(small(network=network).with_seed(seed)) for seed in (0, 1, 0)]
    assert same(runs[0], runs[2])
    assert not same(runs[0], runs[1])


def test_a_plan_has_the_values_of_the_study() -> None:
    study = small(batch=7, seed=3, dtype="float64", threads=1)
    plan = study.plan()
    assert (plan.task.batch, plan.seed, plan.dtype, plan.threads, plan.rounds) == (
        7,
        3,
        "float64",
        1,
        6,
    )
    assert (plan.network, plan.algorithm, plan.measure, plan.task.model) == (
        study.network,
        study.algorithm,
        replace(study.measure, metrics=(gs.Accuracy(),)),
        study.model,
    )
    assert plan.task.split.devices == 5
    data = blobs()
    assert small().plan(data).task.data is data  # loaded already
    given = gs.from_lists([[0, 1], [2], [3], [4], [5, 6]])
    assert small(split=given).plan().task.split is given
    problem = gs.LeastSquares(5, samples=3)
    plain = gs.Measure()
    synthetic = small(data=problem, model=gs.LinearRegression(), measure=plain).plan()
    assert synthetic.task.split.of(1).tolist() == [3, 4, 5]  # a problem comes with its own


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: small(name="a/b"), "name"),
        (lambda: small(name=""), "name"),
        (lambda: small(dtype="float16"), "dtype"),
        (lambda: small(rounds=-1).plan(), "rounds"),
        (lambda: small(batch=-1).plan(), "batch"),
        (lambda: small(network=gs.Ring(2000)).plan(), "network.devices"),
        (lambda: small(split=gs.from_lists([[0], [1]])).plan(), "network.devices"),
        (lambda: small(split=gs.from_lists([[0], [1], [2], [3], [5000]])).plan(), "split"),
        (
            lambda: small(data=gs.LeastSquares(4), model=gs.LinearRegression()).plan(),
            "network.devices",
        ),
        (lambda: gs.run(small(data=gs.LeastSquares(5), measure=gs.Measure())), "model"),
        (lambda: small(data=gs.LeastSquares(5)).plan(), "measure.targets"),
        (lambda: gs.run(own(model=gs.Module(lambda: nn.Linear(3, 3)))), "module"),
        (
            lambda: gs.run(
                own(model=gs.Module(lambda: nn.Linear(4, 3), loss=lambda outputs, y: outputs))
            ),
            "loss",
        ),
    ],
)
def test_invalid_values_are_errors(make: Callable[[], object], field: str) -> None:
    with pytest.raises(InputError) as refusal:
        make()
    assert refusal.value.field == field


def test_a_study_that_cannot_run_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(GossamerError):
        gs.run(own(model=gs.Module(lambda: nn.Linear(3, 3))), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# -- running -------------------------------------------------------------------------------------


def test_a_run_without_a_folder_has_its_measurements_and_models() -> None:
    done = gs.run(small())
    assert done.folder is None
    assert done.metrics["round"].tolist() == [0, 3, 6]
    assert done.metrics["device_accuracy"].shape == (3, 5)
    assert done.metrics["accuracy"] == pytest.approx(done.metrics["device_accuracy"].mean(1))
    assert done.summary["accuracy"] == done.metrics["accuracy"][-1] > 0.3
    assert done.summary["rounds_to"]["accuracy >= 0.2"] in (3, 6)
    assert {name: tuple(part.shape) for name, part in done.models.items()} == {
        "weight": (5, 10, 64),
        "bias": (5, 10),
    }
    simulator = gs.Simulator(small().plan())
    simulator.advance(6)
    torch.testing.assert_close(
        simulator.models().view(5, 10, 65)[..., 64], done.models["bias"], rtol=0, atol=0
    )


def test_user_arrays_and_a_module_learn() -> None:
    done = gs.run(
        own(network=gs.Mobility(8, radius=0.5) & gs.GilbertElliott(0.1, 0.5), rounds=60, batch=16)
    )
    assert done.summary["accuracy"] > 0.9
    assert set(done.models) >= {"head.weight", "head.bias", "norm.weight", "norm.bias"}
    for name in done.models:  # frozen parameters are shared, and in no device's model
        assert not name.startswith("features")
    assert same(done, gs.run(replace(done.study)))  # dropout and all


def test_a_torch_dataset_and_a_module() -> None:
    data = blobs()
    train = torch.utils.data.TensorDataset(data.x, data.y)
    test = torch.utils.data.TensorDataset(data.x_test, data.y_test)
    module = nn.Linear(4, 3)
    done = gs.run(own(data=gs.from_dataset(train, test), model=gs.Module(module)))
    assert done.summary["accuracy"] > 0.9
    assert same(done, gs.run(own(data=data, model=gs.Module(module))))


def test_a_user_regression() -> None:
    x = draws.normal(0, "x", np.arange(200)[:, None], np.arange(3))
    y = x @ [1.0, -2.0, 0.5]
    data = gs.from_arrays(x, y, x, y)
    measure = gs.Measure(targets=("rmse <= 1",))
    done = gs.run(
        own(
            data=data,
            split=gs.Uneven(),
            model=gs.Module(lambda: nn.Linear(3, 1)),
            rounds=60,
            measure=measure,
        )
    )
    assert done.summary["loss"] < 1e-3
    assert "accuracy" not in done.summary  # nothing is classified
    assert done.summary["rmse"] == pytest.approx((2 * done.summary["loss"]) ** 0.5, rel=0.1)
    assert done.summary["rounds_to"]["rmse <= 1"] is not None
    linear = gs.LinearRegression()
    closed = gs.run(own(data=data, split=gs.Uneven(), model=linear, rounds=60, measure=measure))
    assert closed.summary["loss"] < 1e-3


# -- buffers: what stays with its device ---------------------------------------------------------


def test_running_statistics_stay_with_their_device() -> None:
    """On a full graph all models are equal after a round; the running statistics differ."""
    study = own(
        network=gs.Full(5),
        algorithm=gs.DPSGD(eta=0.1, order="adapt-then-combine"),
        split=gs.Labels(1),
    )
    simulator = gs.Simulator(study.plan())
    simulator.advance(5)
    w = simulator.models()
    tensors = simulator.snapshot().tensors
    torch.testing.assert_close(w, w[:1].expand_as(w), rtol=1e-5, atol=1e-6)
    means = tensors["buffer/norm.running_mean"]
    assert torch.pdist(means).min() > 0.01  # two devices with the same label
    assert torch.pdist(means).max() > 1  # two with different ones
    assert tensors["buffer/norm.num_batches_tracked"].tolist() == [5] * 5
    assert (
        len(set(simulator.record().loss.round(4).tolist())) > 1
    )  # and each is scored with its own


def test_only_devices_that_step_count_batches() -> None:
    for study in (
        own(network=gs.Full(5) & gs.Churn(0.4, 0.4)),
        own(algorithm=gs.SwarmSGD(eta=0.1, local_steps=2)),
    ):
        simulator = gs.Simulator(study.plan())
        simulator.advance(7)
        steps = np.zeros(5, dtype=int)
        for t in range(7):
            links = study.network.links(t)
            weights = study.algorithm.weights(links, t, study.seed)
            local = 2 if isinstance(study.algorithm, gs.SwarmSGD) else 1
            active = weights.active if weights.active is not None else np.ones(5, dtype=bool)
            steps += local * active
        assert (
            simulator.snapshot().tensors["buffer/norm.num_batches_tracked"].tolist()
            == steps.tolist()
        )
        assert len(set(steps.tolist())) > 1


def test_measuring_changes_nothing() -> None:
    often = gs.run(own(measure=gs.Measure(every=1, at="after_mix")))
    seldom = gs.run(own(measure=gs.Measure(every=0)))
    for name in often.models:
        assert torch.equal(often.models[name], seldom.models[name])


# -- folders of studies made in Python -----------------------------------------------------------


class StopAt(gs.Observer):
    """Press Ctrl-C, once, when a round is done."""

    def __init__(self, round_: int) -> None:
        self._round = round_
        self._pressed = False

    def advanced(self, round: int) -> None:
        if round >= self._round and not self._pressed:
            self._pressed = True
            signal.raise_signal(signal.SIGINT)


def test_an_interrupted_run_of_a_module_resumes_bit_for_bit(tmp_path: Path) -> None:
    """The checkpoint holds running statistics, the state of dropout, and the anchor of WPM."""
    study = own(algorithm=gs.WPM(p=3, eta=0.05), network=gs.Random(5, 0.4) & gs.Churn(0.2, 0.5))
    whole = gs.run(study, tmp_path / "whole")
    with pytest.raises(Interrupted):
        gs.run(study, tmp_path / "stopped", observers=[StopAt(9)])
    resumed = gs.run(study, tmp_path / "stopped", resume=True)
    assert same(whole, resumed)
    again = gs.run(study, tmp_path / "stopped", resume=True)  # finished: read, not run
    assert same(whole, again)
    assert again.study is study


def test_except_exception_does_not_swallow_an_interrupt(tmp_path: Path) -> None:
    failed = []

    def run_three() -> None:
        for number in range(3):
            try:
                gs.run(small(), tmp_path / str(number), observers=[StopAt(3)])
            except Exception:
                failed.append(number)

    with pytest.raises(KeyboardInterrupt) as stopped:
        run_three()
    assert failed == []
    assert isinstance(stopped.value, gs.Interrupted)
    assert not isinstance(stopped.value, GossamerError)
    assert "--resume continues it" in str(stopped.value)


def test_the_spec_describes_parts_made_in_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    study = own(network=gs.Callback(5, lambda t: [(t % 5, (t + 1) % 5)]), rounds=4)
    gs.run(study, folder)
    spec = tomllib.loads((folder / "spec.toml").read_text())
    for part, word in (("model", "Net"), ("data", "blobs"), ("network", "Callback")):
        assert spec[part]["kind"] == "python"
        assert word in spec[part]["is"]
        assert " at 0x" not in spec[part]["is"]  # nothing that another process would say otherwise
    assert spec["split"] == {"kind": "dirichlet", "alpha": 1.0}
    with pytest.raises(DataError, match="model"):  # a resume with another module
        gs.run(replace(study, model=gs.Module(lambda: nn.Linear(4, 3))), folder, resume=True)
    with pytest.raises(DataError, match="data"):  # or with other arrays
        gs.run(replace(study, data=blobs(210)), folder, resume=True)
    read = Run.read(folder)
    assert read.finished
    assert read.devices == 5
    with pytest.raises(GossamerError, match="made in Python"):
        study_of(read)


def test_the_command_cannot_resume_parts_made_in_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        gs.run(
            small(model=gs.Module(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))),
            folder,
            observers=[StopAt(3)],
        )
    monkeypatch.setattr(
        sys,
        "argv",
        ["gossamer", "run", str(folder / "spec.toml"), "--resume", "--out", str(folder)],
    )
    with pytest.raises(SystemExit) as end:
        main()
    message = capsys.readouterr().err.strip()
    assert end.value.code == 2
    assert "\n" not in message
    assert "model was made in Python" in message


# -- comparing -----------------------------------------------------------------------------------


def test_compare_runs_every_method_on_every_seed(tmp_path: Path) -> None:
    data = blobs()
    studies = []
    for a in (
        gs.DPSGD(eta=0.1),
        gs.WPM(1, 0.1, gradient_at="local", anchor=False),
        gs.SwarmSGD(eta=0.1),
    ):
        studies.append(own(data=data, algorithm=a))
    methods = gs.compare(studies, seeds=2, out=tmp_path)
    assert attribute(methods, "label") == ["D-PSGD", "WPM p=1", "SwarmSGD"]
    assert [[r.study.seed for r in m.runs] for m in methods] == [[0, 1]] * 3
    first = methods[0].runs
    second = methods[1].runs
    # The same links, batches, masks and start.
    for a, b in zip(first, second, strict=True):
        assert same(a, b)
    assert not same(*first)
    assert methods[0].value("accuracy").count == 2
    assert methods[0].value("accuracy").mean == pytest.approx(
        np.mean([r.summary["accuracy"] for r in first])
    )
    written = times_of(filter(Path.is_file, tmp_path.rglob("*")))
    again = gs.compare(studies, seeds=2, out=tmp_path)
    assert written == times_of(filter(Path.is_file, tmp_path.rglob("*")))  # nothing run again
    for m, n in zip(methods, again, strict=True):
        for a, b in zip(m.runs, n.runs, strict=True):
            assert same(a, b)


@pytest.mark.parametrize(
    "change",
    [
        {"network": gs.Ring(4)},
        {"batch": 8},
        {"seed": 1},
        {"data": blobs()},
        {"model": gs.Svm()},
        {"split": gs.OneLabel()},
    ],
)
def test_compare_refuses_studies_that_differ_in_more_than_the_method(
    change: dict[str, Any],
) -> None:
    with pytest.raises(InputError, match="fair") as refusal:
        gs.compare([small(), small(algorithm=gs.SwarmSGD(), **change)])
    assert refusal.value.field.split(".")[0] == next(iter(change))


def test_compare_needs_a_study() -> None:
    for studies, seeds, field in (([], 1, "studies"), ([small()], 0, "seeds")):
        with pytest.raises(InputError) as refusal:
            gs.compare(studies, seeds)
        assert refusal.value.field == field


# -- networks of the user's own ------------------------------------------------------------------


def test_networkx_graphs_and_callables_are_networks() -> None:
    expected = gs.run(small())
    ring = nx.cycle_graph(5)
    for network in (
        gs.from_networkx(ring),
        gs.from_networkx(nx.relabel_nodes(ring, dict(enumerate("abcde")))),
        gs.Callback(5, lambda t: ring),
        gs.Callback(5, lambda t: [(i, (i + 1) % 5) for i in range(5)]),
        gs.Callback(5, gs.Ring(5).links),
    ):
        assert same(expected, gs.run(small(network=network)))
    turns = [nx.cycle_graph(5), nx.star_graph(4), nx.empty_graph(5)]
    in_turn = gs.run(small(network=gs.from_networkx(turns)))
    assert same(in_turn, gs.run(small(network=gs.Callback(5, lambda t: turns[t % 3]))))
    assert in_turn.summary["messages"] == 2 * 2 * (5 + 4 + 0)


def test_the_models_of_a_run_have_the_running_statistics_of_their_device() -> None:
    done = gs.run(
        gs.Study(gs.DPSGD(0.05), gs.Ring(4), model=gs.Cnn((2, 2), norm=True), rounds=2, batch=8)
    )
    assert done.models["1.running_mean"].shape == (4, 2)
    assert not torch.equal(done.models["1.running_mean"][0], done.models["1.running_mean"][1])
