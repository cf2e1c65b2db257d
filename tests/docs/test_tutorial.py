"""The part of the tutorial that runs devices: its commands as one script, as a reader would."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from support.command import gossamer
from support.loopback import Script

from gossamer.fleet.namespaces import unavailable_reason

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
REHEARSAL, FLEET = (
    "\n".join(re.findall(r"^```bash\n(.*?)^```", section, re.M | re.S))
    for section in re.findall(r"^## 7\. Rehearse\n(.*?)^## 8\. (.*)", PAGE, re.M | re.S)[0]
)
# What the earlier steps of the page leave, with fewer rounds.
WINNER = "runs/tune-robots/winner.toml"

pytestmark = [pytest.mark.slow, pytest.mark.fleet]


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the page, the winner of its search, and `gossamer` and `python` to call."""
    monkeypatch.chdir(tmp_path)
    for title, text in re.findall(r'^```\w+ title="([^"]*)"\n(.*?)^```', PAGE, re.M | re.S):
        Path(title).write_text(text)
    Path(WINNER).parent.mkdir(parents=True)
    spec = Path("robots.toml").read_text().replace("rounds = 28", "rounds = 6")
    Path(WINNER).write_text(spec.replace("contacts.txt", "../../contacts.txt"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin")
    monkeypatch.setenv("GOSSAMER_DATA", "data")


def run(script: str, folder: Path) -> str:
    with Script(["bash", "-e", "-c", script], folder) as running:
        code, out, err = running.wait()
        assert code == 0, err
        running.assert_no_processes()
    return out


@pytest.mark.usefixtures("_folder")
def test_devices_run_and_their_model_is_used(tmp_path: Path) -> None:
    out = run(FLEET, tmp_path)
    assert re.search(r"^n0 is done: its model is .*/fleet/n0/model.safetensors$", out, re.M)
    assert re.search(r"^device +doing +round ", out, re.M)
    assert re.search(r"^carl's robot recognises \d+\.\d% of 360 digits$", out, re.M)
    assert gossamer("report", "fleet/run", "-o", "fleet.html").code == 0


@pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
@pytest.mark.usefixtures("_folder")
def test_the_rehearsal_is_repeated_by_the_simulator(tmp_path: Path) -> None:
    """Line by line, since a rehearsal makes its own network namespaces."""
    ends = []
    for line in filter(None, REHEARSAL.splitlines()):
        done = gossamer(*line.split()[1:])
        assert done.code == 0, done.err
        ends.append(re.findall(r"^ *D-PSGD +([\d.]+)", done.out, re.M))
    rehearsed, simulated = ends
    assert len(rehearsed) == 1
    assert rehearsed == simulated
