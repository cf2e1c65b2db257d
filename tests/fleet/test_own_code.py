"""Own code on devices: provisioned, run with permission only, and equal to the simulator."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
from support.command import assert_refused, gossamer
from support.fleets import Fleets, Outcome, Trial, leftovers, require_namespaces, simulated

import gossamer as gs
from gossamer.errors import InputError
from gossamer.fleet import provision
from gossamer.fleet.collect import LINKS, collect
from gossamer.fleet.service import plan_of
from gossamer.fleet.settings import Fleet, read_device
from gossamer.network import Sequence
from gossamer.study import spec

OWN = Path(__file__).parents[1] / "support" / "own_code"


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> gs.Study:
    """The study, in a folder of its own that may be changed."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(OWN, "own")
    return gs.load_spec("own/study.toml", allow_code=True)[0]


def test_the_folder_of_a_fleet_has_the_code(study: gs.Study) -> None:
    paths = provision.init(study, Fleet(insecure=True), Path("fleet"), datetime.now(UTC))
    names = sorted(path.name for path in Path("fleet/code").iterdir())
    assert names == ["own_layers.py", "own_parts.py"]
    shutil.rmtree("own")  # a device has its copy only
    Path("fleet").rename("moved")
    device = read_device(Path("moved") / paths[0].name)
    with pytest.raises(spec.SpecError, match=r"moved/code/own_parts.py.*--allow-code"):
        plan_of(device)
    plan = plan_of(device, allow_code=True)
    assert plan.task.learner.parameters == study.plan().task.learner.parameters
    assert plan.algorithm.label == "Damped"
    file = Path("moved/code/own_layers.py")
    file.write_text(file.read_text().replace("Tanh", "ReLU"))
    with pytest.raises(InputError, match=r"code/own_layers.py has changed"):
        plan_of(device, allow_code=True)


def test_commands_of_a_fleet_run_code_with_the_flag_only(study: gs.Study) -> None:
    options = ("--set", "fleet.insecure=true", "--set", "fleet.slot=1")
    prepared = gossamer("fleet", "init", "own/study.toml", "--allow-code", *options)
    assert prepared.code == 0, prepared.err
    assert "study.toml, code/, n0.toml, n0/" in prepared.out
    assert "gossamer node n0.toml --insecure --allow-code" in prepared.out
    refused = gossamer("node", "fleet/n0.toml", "--insecure", "-q")
    said = " ".join(refused.err.splitlines()[1:])  # after the warning about --insecure
    assert refused.code == 2
    assert "is Python code in" in said
    assert "fleet/code/own_parts.py" in said
    assert_refused(gossamer("fleet", "collect", "fleet", "--allow-code"), "no device in fleet")


@pytest.mark.slow
@pytest.mark.fleet
@pytest.mark.timeout(900)
def test_own_code_on_devices_equals_the_simulator(study: gs.Study, tmp_path: Path) -> None:
    """In float32, to 1e-5 over twelve rounds, on the links of an own network."""
    require_namespaces()
    measured = replace(study, measure=replace(study.measure, at="after_step"))
    outcome = run(measured, Fleet(slot=2.2, lease=0.7, sync=False), tmp_path / "first")
    if disturbed(outcome):  # a busy machine
        outcome = run(measured, Fleet(slot=5.0, lease=1.5, sync=False), tmp_path / "second")
    assert not disturbed(outcome)
    expected = simulated(measured).models()
    models = torch.stack([outcome.model(i) for i in outcome.devices])
    torch.testing.assert_close(models, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    assert not leftovers()


def run(study: gs.Study, fleet: Fleet, folder: Path) -> Outcome:
    running = Fleets({"own": Trial(study, fleet)}, folder)
    try:
        return running["own"]
    finally:
        running.close()


def disturbed(outcome: Outcome) -> bool:
    """True if devices did not meet as the network says."""
    out = outcome.folder / "run"
    if not out.exists():
        with pytest.raises(spec.SpecError, match="--allow-code"):
            collect(outcome.folder, out)
        collect(outcome.folder, out, allow_code=True)
    met = Sequence(out / LINKS, beyond="empty")
    study = outcome.trial.study
    as_planned = all(met.links(t) == study.network.links(t) for t in range(study.rounds))
    counts = outcome.counts()
    return not as_planned or any(counts[key] for key in ("failed", "in doubt", "missed"))
