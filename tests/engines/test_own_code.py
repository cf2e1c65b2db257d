"""Own code on a Ray cluster: the same models as the simulator, and errors of workers at once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.loopback import python

pytest.importorskip("ray", reason="the extra gossamer[ray] is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.cluster]

OWN = Path(__file__).parents[1] / "support" / "own_code"


def test_own_code_on_two_shards(tmp_path: Path) -> None:
    """Equal to 1e-12 in float64; a file that is gone or changed on a worker is the message."""
    shutil.copytree(OWN, tmp_path / "own")
    code = """
from pathlib import Path
import gossamer as gs
from gossamer.engines import Simulator
from gossamer.engines.ray.cluster import connect

(study,) = gs.load_spec("own/study.toml", ["dtype=float64"], allow_code=True)
plan = study.plan()
connection = connect(gs.Ray(shards=2))
simulator = Simulator(plan)
engine = gs.Ray(shards=2).start(plan)
for each in (simulator, engine):
    each.advance(12)
models = simulator.models()
difference = float((engine.models() - models).abs().max() / models.abs().max())
losses = [each.record().loss.tolist() for each in (simulator, engine)]
missed = [each.record().metrics["missed"].tolist() for each in (simulator, engine)]
engine.close()

def refusal():
    try:
        gs.Ray(shards=2).start(plan).close()
    except gs.InputError as error:
        return str(error)

file = Path("own/own_layers.py")
text = file.read_text()
file.write_text(text + "# changed")
changed = refusal()
file.unlink()
gone = refusal()
file.write_text(text)
gs.Ray(shards=2).start(plan).close()
connection.close()
result = [difference, losses, missed, changed, gone]
"""
    difference, losses, missed, changed, gone = python(code, tmp_path)
    assert difference < 1e-12
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    assert missed[0] == missed[1]
    for sentence in (changed, gone):
        assert "own_layers.py" in sentence
        assert ".sources = " in sentence
