"""SIGTERM while a device computes: it does not wait for the end of a step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.fleet_commands import DEVICES_RUN
from support.loopback import python

pytest.importorskip("zenoh", reason="needs the extra gossamer[peer]")

pytestmark = [pytest.mark.slow, pytest.mark.fleet]

MODEL = """
from pathlib import Path
import torch


class Slow(torch.nn.Linear):
    def forward(self, x):
        if Path("fleet/n0/log.jsonl").exists():  # the node has started
            Path("computes").touch()
            while True:  # a step that takes for ever
                x.sum()
        return super().forward(x.flatten(1))


def make(data):
    return Slow(64, 10)
"""
SPEC = """
rounds = 4
batch = 4
data = "digits"
network = { kind = "full", devices = 2 }
algorithm = { kind = "d-psgd", eta = 0.1 }
measure = { every = 0 }
model = { kind = "python", object = "slow:make" }
fleet = { pace = "contacts", patience = 0.1, insecure = true }
"""
CODE = """
hosts = "127.0.0.1:7001,127.0.0.1:7002"
made = command("fleet", "init", "fleet.toml", "--allow-code", "--hosts", hosts)
assert made[0] == 0, made
process = node(0, "--insecure", "--allow-code")
until(Path("computes").exists)
process.terminate()
result = ended(process)
"""


def test_a_long_step_ends_with_the_signal(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(SPEC)
    (tmp_path / "slow.py").write_text(MODEL)
    code, out = python(DEVICES_RUN + CODE, tmp_path)
    err = (tmp_path / "fleet/n0.err").read_text()
    assert "Traceback" not in err
    assert (code, out) == (0, "n0 was stopped; the same command resumes it\n"), err
    assert json.loads((tmp_path / "fleet/n0/status.json").read_text())["doing"] == "stopped"
    assert (tmp_path / "fleet/n0/model.safetensors").exists()
