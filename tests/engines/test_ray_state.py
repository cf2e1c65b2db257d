"""State and models of a Ray run are written by the shards, and resumed by any number of them.

The cluster runs in a network namespace that has the loopback interface only.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.loopback import python

import gossamer as gs
from gossamer._core.tensor_files import Layout, Shape
from gossamer.engines import Simulator, Snapshot
from gossamer.errors import DataError
from gossamer.results.folder import RunFolder


class TwoParts:
    """`gossamer.engines.plan.Parts` of a snapshot whose rows two writers have."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._tensors = snapshot.tensors
        self.snapshot = Snapshot(snapshot.round, snapshot.messages, snapshot.bytes, {})
        self.shapes = {k: Shape(x.dtype, tuple(x.shape)) for k, x in snapshot.tensors.items()}

    def write(self, path: Path, layout: Layout) -> int:
        state = pytest.importorskip("gossamer.engines.ray.state")
        total = 0
        for number, devices in enumerate((np.array([0, 1, 4, 6]), np.array([2, 3, 5]))):
            tensors = {}
            for name, x in self._tensors.items():
                tensors[name] = x if len(x) == 1 else x[torch.from_numpy(devices)]
            rows = state.OwnRows(tensors, devices, number)
            shared = {name for name, x in self._tensors.items() if len(x) == 1}
            total += rows.write(path, layout, shared)
        return total


def test_a_checkpoint_that_several_processes_wrote(tmp_path: Path) -> None:
    """The file is that of a checkpoint which one process wrote, except for the digest."""
    simulator = Simulator(gs.Study(gs.WPM(3, 0.1), gs.Ring(7), rounds=9, seed=3).plan())
    simulator.advance(4)
    snapshot = simulator.snapshot()
    folder = RunFolder(tmp_path)
    folder.write_parts_of_snapshot(TwoParts(snapshot), {"mix": "torch"})
    found = folder.snapshot()
    assert found is not None
    assert (found.round, found.messages, found.backend) == (4, snapshot.messages, {"mix": "torch"})
    assert found.tensors.keys() == snapshot.tensors.keys()
    for name, x in snapshot.tensors.items():
        assert torch.equal(found.tensors[name], x)
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".part"]

    path = tmp_path / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="its checksum does not fit"):
        folder.snapshot()


def test_another_file_of_that_name_is_not_written_to(tmp_path: Path) -> None:
    state = pytest.importorskip("gossamer.engines.ray.state")
    layout = Layout.of({"w": Shape(torch.float32, (3, 2))})
    rows = state.OwnRows({"w": torch.ones(3, 2)}, np.arange(3), 0)
    assert rows.write(tmp_path / "missing", layout, set()) is None
    other = tmp_path / "other"
    other.write_bytes(b"x" * layout.size)
    assert rows.write(other, layout, set()) is None
    assert other.read_bytes() == b"x" * layout.size


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.cluster
def test_shards_write_and_resume(tmp_path: Path) -> None:
    """Two shards write a checkpoint and the models, three and the simulator go on with it."""
    pytest.importorskip("ray", reason="the extra gossamer[ray] is not installed")
    code = """
import torch
import gossamer as gs
from gossamer import backend
from gossamer.engines.ray import state
from gossamer.engines.ray.cluster import connect
from gossamer.results.folder import RunFolder
from pathlib import Path

fetched = []
fetch = state.ShardParts._fetch
state.BLOCK = 1000  # several blocks per shard

def noted(self, number, path, layout):
    fetched.append(number)
    return fetch(self, number, path, layout)

state.ShardParts._fetch = noted
energy = gs.Energy(step=1.0, byte=1e-6)
network = gs.Mobility(23, 0.3, seed=5)
study = gs.Study(gs.WPM(3, 0.02), network, rounds=30, dtype="float64", energy=energy)
plan = study.plan()
connection = connect(gs.Ray(shards=3))
engine = gs.Ray(shards=2).start(plan)
engine.advance(12)
shared = RunFolder(Path("shared"))
shared.path.mkdir()
shared.write_parts_of_snapshot(engine.parts("state"), backend.choices())
result = {"fetched from a shared folder": len(fetched)}

calls = engine._actors.call_checked

def unreachable(method, arguments):
    if method == "write_rows":
        arguments = [(Path("/nowhere/file"), *rest) for _, *rest in arguments]
    return calls(method, arguments)

engine._actors.call_checked = unreachable
other = RunFolder(Path("other"))
other.path.mkdir()
other.write_parts_of_snapshot(engine.parts("state"), backend.choices())
result["fetched from another"] = len(fetched)
engine._actors.call_checked = calls
whole = engine.snapshot().tensors
for name, folder in (("shared", shared), ("other", other)):
    found = folder.snapshot().tensors
    result[name] = found.keys() == whole.keys() and all(
        torch.equal(x, found[key]) for key, x in whole.items()
    )
engine.advance(30)
shared.write_parts_of_models(engine.parts("models"))
end = engine.state_dict()
models = shared.models()
result["models"] = all(torch.equal(x, models[name]) for name, x in end.items())
record = engine.record()
engine.close()

def resumed(start):
    engine = start(plan, shared.snapshot())
    engine.advance(30)
    again = engine.record()
    found = engine.state_dict()
    engine.close()
    same_counts = again.joules == record.joules and again.bytes == record.bytes
    return same_counts, float(max((x - end[name]).abs().max() for name, x in found.items()))

result["two shards"] = resumed(gs.Ray(shards=2).start)
result["three shards"] = resumed(gs.Ray(shards=3).start)
result["simulator"] = resumed(gs.Simulator)
connection.close()
"""
    found = python(code, tmp_path)
    same_counts, difference = found.pop("two shards")
    assert same_counts
    assert difference == 0  # the same number of shards: the same bits
    for name in ("three shards", "simulator"):
        same_counts, difference = found.pop(name)
        assert same_counts
        assert difference < 1e-12
    assert found == {
        "fetched from a shared folder": 0,
        "fetched from another": 2,
        "shared": True,
        "other": True,
        "models": True,
    }
