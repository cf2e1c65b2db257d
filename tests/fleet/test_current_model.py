"""The current model of a device, for a program that runs beside the node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from support.command import assert_refused, gossamer
from support.fleet_commands import DEVICES, DEVICES_RUN, PORTS, init, logs
from support.loopback import python
from support.nodes import NodeFleet

import gossamer as gs
from gossamer.fleet.settings import Fleet

pytest.importorskip("zenoh", reason="needs the extra gossamer[peer]")

pytestmark = pytest.mark.usefixtures("fleet_spec")

EXAMPLE = Path(__file__).parents[2] / "examples" / "inference_beside_node.py"


def round_of(path: Path) -> int:
    with safe_open(path, framework="pt") as file:
        return int(file.metadata()["round"])


@pytest.mark.slow
@pytest.mark.fleet
def test_a_program_uses_the_newest_model_beside_the_node() -> None:
    """The example runs while nodes train; a reader that never waits finds whole models only."""
    init(
        *("--hosts", ",".join(PORTS), "--set", "fleet.insecure=true"),
        *("--set", "rounds=4000", "--set", "fleet.model_every=2", "--set", "fleet.slot=1"),
        *("--set", "measure.every=1"),
        ahead=10,
    )
    code = """
from safetensors.torch import load_file
nodes = [node(i, "--insecure", "-q") for i in range(2)]
path = Path("fleet/n0/model.safetensors")
example = subprocess.Popen(
    [sys.executable, given["example"], "fleet/n0", "3"], stdout=subprocess.PIPE, text=True
)
reads = 0
until(path.exists)
while example.poll() is None:
    load_file(path)  # raises on a torn file
    reads += 1
    time.sleep(0.001)
said = example.communicate()[0].splitlines()
nodes[0].send_signal(15)
first = ended(nodes[0])
nodes[1].kill()
nodes[1].wait()
result = {"said": said, "reads": reads, "first": first, "killed": rounds(1)}
"""
    result: Any = python(DEVICES_RUN + code, Path.cwd(), example=str(EXAMPLE))
    assert len(result["said"]) == 3
    assert all(line[:-1] == "the first image shows a " for line in result["said"])
    assert result["reads"] > 10
    assert result["first"][0] == 0
    # On stop the model is that of the last round; a node that is killed leaves an older one.
    stopped = Path("fleet/n0/model.safetensors")
    assert round_of(stopped) == logs()[0][-1]["round"]
    killed = round_of(Path("fleet/n1/model.safetensors"))
    assert 0 <= logs()[1][-1]["round"] - killed <= 2
    # It is a state dict of a plain torch module, which predicts what the node has measured.
    model = torch.nn.Linear(64, 10)
    model.load_state_dict(load_file(stopped))
    samples = load_file("fleet/n0/data.safetensors")
    right = model(samples["x_test"].flatten(1)).argmax(1) == samples["y_test"]
    assert right.float().mean().item() == pytest.approx(logs()[0][-1]["metrics"]["accuracy"])
    collected = gossamer("fleet", "collect", "fleet")
    assert collected.code == 0, collected.err
    assert "missing, and left out: n2" in collected.err
    assert "not at the last round, with their newest models: n0 (" in collected.err


def test_the_models_of_the_newest_rounds_are_kept(tmp_path: Path) -> None:
    """Softmax regression on digits has 2,600 bytes and more; four models fit in 11 kB."""
    study = gs.Study(
        gs.DPSGD(0.1), gs.Full(2), gs.Digits(), rounds=12, measure=gs.Measure(every=1, test=20)
    )
    fleet = Fleet(slot=1.0, sync=False, history=0.011)
    nodes = NodeFleet(study, tmp_path, fleet, nodes=2)
    nodes.run()
    for i in range(2):
        kept = sorted((tmp_path / str(i) / "history").iterdir())
        assert [path.stem for path in kept] == ["000009", "000010", "000011", "000012"]
    (tmp_path / "0" / "history" / "000009.safetensors").unlink()  # by its owner
    more = NodeFleet(replace(study, rounds=14), tmp_path, fleet, nodes=2)
    more.run()
    assert more.results == {0: True, 1: True}
    for i in range(2):
        kept = sorted((tmp_path / str(i) / "history").iterdir())
        assert kept[-1].stem == "000014"
        assert sum(path.stat().st_size for path in kept) <= 11_000 + 4 * 200
    none = NodeFleet(study, tmp_path / "none", replace(fleet, history=0.001), nodes=2)
    none.run()
    assert not (tmp_path / "none" / "0" / "history").exists()


def test_a_device_that_is_stopped_in_an_exchange_writes_its_model(tmp_path: Path) -> None:
    """Its partner is silent, so it waits in an exchange when the signal comes."""
    study = gs.Study(gs.DPSGD(0.1), gs.Full(2), gs.Digits(), rounds=9)
    fleet = Fleet(slot=1.0, sync=False, model_every=0)
    nodes = NodeFleet(study, tmp_path, fleet, nodes=1, stops={0: 7.5})
    nodes.run({1: lambda endpoint: endpoint.sleep_until(100.0)})
    assert nodes.results == {0: False}
    path = tmp_path / "0" / "model.safetensors"
    assert round_of(path) == nodes.checkpoint(0).round
    assert torch.equal(
        torch.cat([x.flatten() for x in load_file(path).values()]).sort().values,
        nodes.checkpoint(0).state["w"].flatten().sort().values,
    )


def test_the_interval_is_checked() -> None:
    words = ("fleet", "init", "fleet.toml", "--devices", DEVICES)
    refused = gossamer(*words, "--set", "fleet.model_every=-1")
    assert_refused(refused, "fleet.model_every = -1", "a whole number of rounds")
