"""Parts of a study that are the user's own code."""

from __future__ import annotations

import pickle
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gossamer as gs
from gossamer.engines import Snapshot
from gossamer.errors import DataError, GossamerError, InputError
from gossamer.study import spec, study_of
from gossamer.study.pools import Processes
from gossamer.study.sweep import sweep
from gossamer.testing import check

OWN = '''
"""Every part of a study, and parts that fail."""
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

import gossamer as gs


def make(data, width=8):
    if width < 1:
        raise ValueError("width is too small")
    features = data.x[0].numel()
    return nn.Sequential(nn.Flatten(), nn.Linear(features, width), nn.ReLU(), nn.Linear(width, 2))


class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)


net = Net()
softmax = gs.Softmax()


def load(samples=60):
    x = np.random.default_rng(0).normal(size=(samples, 4))
    y = (x[:, 0] > 0).astype(int)
    return gs.from_arrays(x[20:], y[20:], x[:20], y[:20])


loaded = load()


class Rows:
    def load(self):
        return load()


def halves(y, devices):
    return gs.from_lists(np.array_split(np.arange(len(y)), devices))


@dataclass(frozen=True)
class Chain(gs.Network):
    devices: int = 4
    seed: int = 0

    def links(self, t):
        a = (t + self.seed) % self.devices
        return gs.Links.of(self.devices, [(a, (a + 1) % self.devices)])


@dataclass(frozen=True)
class Plain(gs.Algorithm):
    eta: float = 0.1
    fail: int = -1

    def round(self, state, grad, mix, t):
        if t == self.fail:
            raise KeyError("gone")
        w = state["w"]
        return {"w": mix(w) - self.eta * grad(w)}

    def halfway(self, state, grad, mix, t):
        return mix(state["w"])


twice = Plain(eta=0.2)


def weighted(outputs, y, weight=1.0):
    return weight * nn.functional.cross_entropy(outputs, y, reduction="none")


def mean(outputs, y):
    return nn.functional.cross_entropy(outputs, y)


def broken(outputs, y):
    return nn.functional.cross_entropy(outputs, y)[5]


smooth = gs.CrossEntropy(label_smoothing=0.1)


def wrong_share(outputs, y):
    return torch.stack([(outputs.argmax(1) != y).sum(), torch.tensor(len(y))])


def largest_margin(outputs, y, scale=1.0):
    return scale * (outputs[:, 0] - outputs[:, 1]).abs().max()


def failing(outputs, y):
    raise LookupError("no margin")


def shapeless(outputs, y):
    return "margin"


ready = gs.FunctionMetric(wrong_share, "ready", "lower", share=True)


class Half(gs.Metric):
    def __init__(self, fail=False):
        self.fail = fail

    @property
    def column(self):
        return gs.FunctionMetric(wrong_share, "half", "higher").column

    def sums(self, outputs, y):
        if self.fail:
            raise LookupError("no half")
        return torch.tensor([0.5])

    def value(self, sums):
        return sums[0] / sums[0] / 2
'''

SPEC = """
rounds = 6
batch = 4
data = { kind = "python", object = "own:load", arguments = { samples = 80 } }
split = { kind = "python", object = "own:halves" }
model = { kind = "python", object = "own:make", arguments = { width = 5 } }
network = { kind = "python", object = "own:Chain" }
algorithm = { kind = "python", object = "own:Plain", arguments = { eta = 0.2 } }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    Path("study.toml").write_text(SPEC)
    return tmp_path


def load(**settings: Any) -> gs.Study:
    given = [f"{key.replace('__', '.')}={value}" for key, value in settings.items()]
    return gs.load_spec("study.toml", given, allow_code=True)[0]


def own_module() -> Any:
    return sys.modules[type(load().algorithm.made).__module__]


def test_a_spec_runs_what_python_runs(folder: Path) -> None:
    """The same study with the same objects in Python gives the same models, bit for bit."""
    own = own_module()
    data = own.load(80)
    python = gs.Study(
        own.Plain(eta=0.2),
        own.Chain(),
        data,
        own.halves(data.y.numpy(), 4),
        gs.Module(lambda: own.make(data, 5)),
        batch=4,
        rounds=6,
        name="study",
    )
    for seed in (0, 3):
        found = gs.run(load().with_seed(seed)).models
        wanted = gs.run(python.with_seed(seed)).models
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_study_is_written_as_the_same_tables(folder: Path) -> None:
    study = load()
    table = spec.to_table(study)
    for section, object_ in (("model", "own:make"), ("algorithm", "own:Plain")):
        assert table[section]["object"] == object_
        assert table[section]["path"] == str(folder)
        assert [line.split()[0] for line in table[section]["sources"]] == ["own.py"]
    (back,) = spec.studies(tomllib.loads(spec.dumps(study)), allow_code=True)
    assert back == study
    assert spec.digest(back) == spec.digest(study)
    assert spec.digest(load(model__arguments__width=6)) != spec.digest(study)


def test_nothing_is_run_without_permission(folder: Path) -> None:
    Path("own.py").write_text("raise SystemExit('executed')")
    with pytest.raises(spec.SpecError, match=r"data.object = 'own:load' is Python code in") as why:
        gs.load_spec("study.toml")
    assert str(folder / "own.py") in str(why.value)
    assert "--allow-code" in str(why.value)
    for nested in (
        {"data": {"kind": "validation", "data": {"kind": "python", "object": "own:load"}}},
        {"network": {"kind": "cycle", "networks": [{"kind": "python", "object": "own:Chain"}]}},
        {"algorithm": [{"kind": "d-psgd"}, {"kind": "python", "object": "own:Plain"}]},
    ):
        with pytest.raises(spec.SpecError, match=r"without permission"):
            spec.studies(nested)


@pytest.mark.parametrize(
    ("section", "objects"),
    [
        ("model", ["make", "Net", "net", "softmax"]),
        ("data", ["load", "loaded", "Rows"]),
        ("network", ["Chain"]),
        ("algorithm", ["Plain", "twice"]),
    ],
)
def test_what_a_section_takes(folder: Path, section: str, objects: list[str]) -> None:
    text = SPEC.replace("arguments", "ignored")
    table = tomllib.loads(text)
    for part in table.values():
        if isinstance(part, dict):
            part.pop("ignored", None)
    for name in objects:
        table[section] = {"kind": "python", "object": f"own:{name}"}
        (study,) = spec.studies(table, allow_code=True)
        assert gs.run(study).finished


@pytest.mark.parametrize(
    ("section", "name", "wanted"),
    [
        ("model", "load", "torch.nn.Module.*it returns a Data"),
        ("model", "twice", "torch.nn.Module.*it is a Plain"),
        ("data", "make", "{}.*missing a required argument: 'data'"),
        ("data", "softmax", "gossamer.Data.*it is a Softmax"),
        ("data", "Chain", "gossamer.Data.*it returns a Chain"),
        ("split", "load", "gossamer Split.*it returns a Data"),
        ("network", "load", "gossamer.Network.*it returns a Data"),
        ("network", "loaded", "gossamer.Network.*it is a Data"),
        ("algorithm", "Chain", "gossamer.Algorithm.*it returns a Chain"),
    ],
)
def test_a_wrong_type_is_refused(folder: Path, section: str, name: str, wanted: str) -> None:
    table = {section: {"kind": "python", "object": f"own:{name}", "path": str(folder)}}
    if section == "split":
        table["data"] = {"kind": "digits"}
    with pytest.raises(InputError, match=rf"^{section}\.\w+ = .*{wanted}"):
        spec.studies(table, allow_code=True)[0].plan().task.learner  # noqa: B018


def test_arguments_have_to_fit(folder: Path) -> None:
    with pytest.raises(InputError, match=r"model.arguments = {'widht': 3}.*widht"):
        load(model__arguments="{widht = 3}")
    with pytest.raises(InputError, match=r"model.arguments.*none: own:net is an object"):
        load(model__object="own:net")
    with pytest.raises(InputError, match=r"own.py:\d+ raised ValueError: width is too small"):
        load(model__arguments__width=0).plan().task.learner  # noqa: B018


def test_an_error_while_it_runs_names_the_line(folder: Path) -> None:
    line = OWN.splitlines().index('            raise KeyError("gone")') + 1
    study = load(algorithm__arguments="{fail = 3}")
    with pytest.raises(InputError, match=rf"algorithm.object.*own.py:{line} raised KeyError"):
        gs.run(study)


def test_a_part_is_sent_without_what_it_made(folder: Path) -> None:
    study = load()
    study.network.links(0)
    sent = pickle.dumps(study)
    assert b"gossamer_code_" not in sent  # no object of the user's modules
    back = pickle.loads(sent)
    assert back == study
    assert back.network.links(2) == study.network.links(2)
    assert back.plan().task.learner.parameters == study.plan().task.learner.parameters


def test_a_part_that_is_received_refuses_another_file(folder: Path) -> None:
    sent = pickle.dumps(load().algorithm)
    Path("own.py").write_text(OWN.replace("self.eta", "2 * self.eta"))
    with pytest.raises(InputError, match=r"algorithm.sources = 'own.py .*has changed"):
        pickle.loads(sent).label  # noqa: B018
    Path("own.py").unlink()
    with pytest.raises(InputError, match=r"algorithm.object = .*there is no own.py"):
        pickle.loads(sent).label  # noqa: B018


def test_an_own_method_meets_the_contract_of_methods(folder: Path) -> None:
    method = gs.AlgorithmCode("own:Plain")
    assert check(method) == ["churn", "changing", "static"]
    guarded = gs.Study(gs.Guarded(method, gs.Median()), rounds=2)
    assert gs.run(guarded).finished
    assert spec.studies(spec.to_table(guarded), allow_code=True) == [guarded]


def test_a_part_made_in_python_keeps_its_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = gs.ModelCode("own:make", arguments={"width": 3})
    monkeypatch.chdir("/")
    table = spec.to_table(gs.Study(model=model))
    assert table["model"]["path"] == str(folder)
    assert spec.studies(table, allow_code=True)[0].model == model


def test_seeds_reach_own_networks(folder: Path) -> None:
    study = load(seed=5)
    assert study.network.made.seed == 5
    assert study.with_seed(7).network.made.seed == 7
    assert load(network__seed=2).network.made.seed == 2


def test_faults_go_on_top_of_an_own_network(folder: Path) -> None:
    fault = [{"kind": "link-failure", "probability": 1.0}]
    table = spec.read(Path("study.toml"))
    table["network"]["faults"] = fault
    (study,) = spec.studies(table, allow_code=True)
    assert len(study.network.links(0)) == 0
    assert spec.studies(spec.to_table(study), allow_code=True) == [study]


# -- losses ----------------------------------------------------------------------------------------


def with_loss(loss: Any) -> gs.Study:
    table = spec.read(Path("study.toml"))
    table["model"]["loss"] = loss
    return spec.studies(table, allow_code=True)[0]


def own_loss(name: str, **arguments: Any) -> dict[str, Any]:
    return {"kind": "python", "object": f"own:{name}", "arguments": arguments}


def test_an_own_loss_is_the_one_that_python_gives(folder: Path) -> None:
    plain = gs.run(load()).models
    for loss in (own_loss("weighted"), own_loss("mean"), own_loss("nn.CrossEntropyLoss")):
        found = gs.run(with_loss(loss)).models
        assert all(torch.allclose(found[name], plain[name], atol=1e-6) for name in plain)
    smooth = gs.run(with_loss({"kind": "cross-entropy", "label_smoothing": 0.1})).models
    found = gs.run(with_loss(own_loss("smooth"))).models
    assert all(torch.equal(found[name], smooth[name]) for name in smooth)
    doubled = gs.run(with_loss(own_loss("weighted", weight=2.0)))
    assert np.isclose(doubled.metrics["loss"][0], 2 * gs.run(load()).metrics["loss"][0])


def test_a_loss_is_written_as_the_same_table(folder: Path) -> None:
    study = with_loss(own_loss("weighted", weight=2.0))
    table = tomllib.loads(spec.dumps(study))
    assert table["model"]["loss"]["arguments"] == {"weight": 2.0}
    assert spec.studies(table, allow_code=True) == [study]


def test_a_loss_that_cannot_be_used_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"model.loss.arguments = {'wight': 2}"):
        with_loss(own_loss("weighted", wight=2))
    with pytest.raises(InputError, match=r"model.loss.object = .*; it is a Data"):
        with_loss(own_loss("loaded"))
    with pytest.raises(InputError, match=r"model.loss.object = 'own:broken'.*own.py:\d+ raised"):
        gs.run(with_loss(own_loss("broken")))
    softmax = {"kind": "python", "object": "own:softmax", "loss": "squared-error"}
    table = spec.read(Path("study.toml")) | {"model": softmax}
    with pytest.raises(InputError, match=r"model.loss = .*none: own:softmax"):
        gs.run(spec.studies(table, allow_code=True)[0])


# -- metrics ---------------------------------------------------------------------------------------


def with_metrics(*names: str, **fields: Any) -> gs.Study:
    table = spec.read(Path("study.toml"))
    metrics: list[Any] = ["accuracy"]
    for name in names:
        metrics.append({"kind": "python", "object": f"own:{name}"} | fields)
    table["measure"] = {"every": 2, "metrics": metrics}
    return spec.studies(table, allow_code=True)[0]


def test_an_own_metric_is_measured_for_devices_and_the_merged_model(folder: Path) -> None:
    study = with_metrics("wrong_share", better="lower", unit="")
    run = gs.run(study, "runs/mine")
    for ending in ("", "_merged"):
        wrong = run.metrics[f"wrong-share{ending}"]
        assert np.allclose(wrong, 1 - run.metrics[f"accuracy{ending}"])
    assert np.allclose(run.metrics["wrong-share_worst"], 1 - run.metrics["accuracy_worst"])
    read = gs.Run.read("runs/mine")
    assert read.spec["measure"]["metrics"][1]["name"] == "wrong-share"
    assert study_of(read, allow_code=True) == study


def test_metrics_of_every_form(folder: Path) -> None:
    run = gs.run(with_metrics("ready", "Half"))
    assert np.allclose(run.metrics["ready"], 1 - run.metrics["accuracy"])
    assert (run.metrics["half"] == 0.5).all()
    study = with_metrics("largest_margin", better="lower", name="wide", arguments={"scale": 2.0})
    doubled = gs.run(study).metrics["wide"]
    plain = gs.run(with_metrics("largest_margin", better="lower")).metrics["largest-margin"]
    assert np.allclose(doubled, 2 * plain)
    assert spec.studies(tomllib.loads(spec.dumps(study)), allow_code=True) == [study]
    text = spec.dumps(with_metrics("ready", "Half"))
    (back,) = spec.studies(tomllib.loads(text), allow_code=True)
    assert spec.dumps(back) == text


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("wrong_share", {}, r"measure.metrics\[1\].better = .*'higher'"),
        ("wrong_share", {"better": "up"}, r"measure.metrics\[1\].better = 'up'"),
        ("wrong_share", {"better": "lower", "name": "bytes"}, r"measure.metrics\[1\].name"),
        ("ready", {"better": "higher"}, r"better = 'higher'.* 'lower', which own:ready has"),
        ("loaded", {"better": "lower"}, "it is a Data"),
        ("failing", {"better": "lower"}, r"own.py:\d+ raised LookupError: no margin"),
        ("shapeless", {"better": "lower"}, "shapeless returning 'margin'"),
        ("Half", {"arguments": {"fail": True}}, r"own.py:\d+ raised LookupError: no half"),
        ("broken", {"better": "lower"}, r"own.py:\d+ raised IndexError"),
    ],
)
def test_a_metric_that_cannot_be_used_is_refused(
    folder: Path, name: str, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        gs.run(with_metrics(name, **fields))


# -- run folders -----------------------------------------------------------------------------------


def test_a_run_folder_is_read_without_running_code(folder: Path) -> None:
    run = gs.run(load(), "runs/mine")
    Path("own.py").write_text("raise SystemExit('executed')")
    read = gs.Run.read("runs/mine")
    assert read.finished
    assert read.label == "Plain"
    assert read.spec == run.spec
    assert read.devices == 4
    assert all(torch.equal(read.models[name], run.models[name]) for name in run.models)
    with pytest.raises(GossamerError, match=r"--allow-code"):
        study_of(read)


def test_the_study_of_a_run_folder_is_built_with_permission(folder: Path) -> None:
    study = load()
    gs.run(study, "runs/mine")
    assert study_of(gs.Run.read("runs/mine"), allow_code=True) == study
    Path("own.py").write_text(OWN + "# changed\n")
    with pytest.raises(InputError, match=r"sources.*has changed"):
        study_of(gs.Run.read("runs/mine"), allow_code=True)


def stop_after(study: gs.Study, rounds: int, out: str) -> None:
    """Leave the folder of a run that was stopped."""
    gs.run(study, out)
    folder = Path(out)
    (folder / "summary.json").unlink()
    simulator = gs.Simulator(study.plan())
    simulator.advance(rounds)
    from gossamer.results.folder import RunFolder

    snapshot: Snapshot = simulator.snapshot()
    RunFolder(folder).write_snapshot(snapshot)


def test_a_run_is_resumed_with_the_same_code_only(folder: Path) -> None:
    wanted = gs.run(load()).models
    stop_after(load(), 3, "runs/mine")
    Path("own.py").write_text(OWN + "# changed\n")
    with pytest.raises(DataError, match=r"the code of \w+ was 'own.py .*' and is now 'own.py"):
        gs.run(load(), "runs/mine", resume=True)
    Path("own.py").write_text(OWN)
    found = gs.run(load(), "runs/mine", resume=True).models
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_resuming_runs_no_other_code_of_the_folder(folder: Path, tmp_path: Path) -> None:
    """A folder from elsewhere may name any code in its spec."""
    gs.run(load(), "runs/mine")
    mark = tmp_path / "executed"
    Path("evil.py").write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\n")
    file = Path("runs/mine/spec.toml")
    file.write_text(file.read_text().replace("own:make", "evil:make"))
    with pytest.raises(DataError, match=r"model.object was 'evil:make'"):
        gs.run(load(), "runs/mine", resume=True)
    assert not mark.exists()


def test_a_sweep_runs_own_code_in_processes(folder: Path) -> None:
    studies = [load(rounds=3).with_seed(seed) for seed in (0, 1)]
    runs = sweep(studies, Path("runs"), Processes(1))
    for study, run in zip(studies, runs, strict=True):
        assert np.allclose(run.metrics["loss"], gs.run(study).metrics["loss"])


def test_tables_of_code_are_found_by_name() -> None:
    code = {"kind": "python", "object": "a:b"}
    table = {
        "model": code,
        "algorithm": [{"kind": "guarded", "algorithm": code}, code],
        "measure": {"metrics": ["accuracy", code]},
        "network": {"kind": "python", "is": "Callback()"},
    }
    names = [name for name, _ in spec.code_tables(table)]
    assert names == ["model", "algorithm[0].algorithm", "algorithm[1]", "measure.metrics[1]"]
