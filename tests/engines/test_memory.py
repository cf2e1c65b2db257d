"""The memory of a run of many devices, per device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.plans import plan_of, run

from gossamer.algorithms import DPSGD
from gossamer.engines import Simulator, Snapshot, buffers
from gossamer.errors import DataError
from gossamer.network import Ring

# Bytes per device: models, mixed models and gradients of 650 parameters (7,800), the numbers of 32
# samples (264), links, weights and what sorting them takes (450).
LIMIT = 10_000

PROGRAM = """
import sys
from pathlib import Path
import torch
import gossamer as gs
from gossamer._core.process import configure_own_process
from gossamer.results.folder import RunFolder

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])

def everything(devices, folder):
    network = gs.Random(devices, density=8 / devices)
    study = gs.Study(gs.DPSGD(0.05), network, split=gs.Drawn(32), batch=0, threads=1)
    plan = study.plan()
    simulator = gs.Simulator(plan)
    simulator.advance(2)
    simulator.record()
    folder.write_snapshot(simulator.snapshot(copy=False))
    whole = simulator.models().sum().item()
    del simulator
    simulator = gs.Simulator(plan, folder.snapshot())
    assert simulator.models().sum().item() == whole
    simulator.advance(3)
    simulator.record()
    folder.write_models(simulator.state_dict())

folder = RunFolder(Path(sys.argv[1]))
everything(500, folder)
before = peak()
everything(int(sys.argv[2]), folder)
print((peak() - before) / int(sys.argv[2]))
"""


@pytest.mark.slow  # two seconds of a process of its own, which has no other memory
@pytest.mark.no_cover
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_memory_per_device_is_bounded(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), "20000"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) < LIMIT


def test_a_snapshot_without_a_copy_is_the_state_itself() -> None:
    simulator = run(plan_of(DPSGD(0.05)), 3)
    own = simulator.snapshot(copy=False)
    copied = simulator.snapshot()
    w = simulator.models()
    assert own.tensors["w"].data_ptr() == w.data_ptr()
    assert copied.tensors["w"].data_ptr() != w.data_ptr()
    assert torch.equal(own.tensors["w"], copied.tensors["w"])


def test_models_are_the_same_after_their_buffers_were_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(buffers, "_MIN_BYTES", 0)
    plan = plan_of(DPSGD(0.05), Ring(6), 4, dtype="float32")
    simulator = run(plan, 2)
    simulator.state_dict()
    simulator.advance(4)
    assert torch.equal(simulator.models(), run(plan, 4).models())


@pytest.mark.parametrize("shape", [(5, 5), (2, 5), ()])
def test_a_checkpoint_of_another_number_of_devices_is_refused(shape: tuple[int, ...]) -> None:
    plan = plan_of(DPSGD(0.05))
    with pytest.raises(DataError, match=r"the checkpoint holds w of shape .* 6 devices"):
        Simulator(plan, Snapshot(1, 0, 0, {"w": torch.zeros(shape)}))
