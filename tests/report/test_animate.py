"""Networks as GIFs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.command import assert_refused, gossamer
from support.listing import attribute

import gossamer as gs
from gossamer.report import animate

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _in_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def frames(path: str) -> list[Any]:
    found = []
    picture: Any
    with Image.open(path) as picture:
        for k in range(picture.n_frames):
            picture.seek(k)
            found.append(np.asarray(picture.convert("RGB")).astype(int))
    return found


def test_frames_differ_and_are_reproducible() -> None:
    words = (
        "network",
        "show",
        "--rounds",
        "5",
        "--set",
        "network={kind='random',devices=8,density=0.3}",
    )
    result = gossamer(*words, "--animate", "net.gif")
    assert result.code == 0
    assert "animation: net.gif" in result.out
    found = frames("net.gif")
    assert len(found) == 5
    for one, other in pairwise(found):
        changed = np.abs(one - other).sum(-1) > 60
        assert changed.sum() > 200  # pixels
    content = Path("net.gif").read_bytes()
    assert gossamer(*words, "--animate", "net.gif").code == 0
    assert Path("net.gif").read_bytes() == content


def test_only_a_gif_can_be_written() -> None:
    result = gossamer("network", "show", "--animate", "net.mp4")
    assert_refused(result, "animate = 'net.mp4' is not accepted: give a file that ends in .gif")
    assert not list(Path().iterdir())


def test_frames_and_devices_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(animate, "FRAMES", 4)
    monkeypatch.setattr(animate, "_MAX_DEVICES", 6)
    seen: list[Any] = []
    picture = animate._draw

    def noted(frames: Any, title: str) -> Any:
        seen.append((frames, title))
        return picture(frames, title)

    monkeypatch.setattr(animate, "_draw", noted)
    animate.animate(gs.Random(20, 0.3), 10, Path("a.gif"), "many {a} $b$")
    ((drawn, title),) = seen
    assert attribute(drawn, "t") == [0, 3, 6, 9]
    assert title(3) == "many {a} $b$: round 3 of 10, first 6 devices"
    for frame in drawn:
        links = gs.Random(20, 0.3).links(frame.t)
        assert frame.pairs.tolist() == [pair for pair in links.pairs.tolist() if max(pair) < 6]
        assert frame.degrees.tolist() == links.degrees[:6].tolist()
    assert len(frames("a.gif")) == 4


def test_devices_are_at_the_positions_of_the_network() -> None:
    net = gs.Mobility(6, radius=0.3, seed=2)
    np.testing.assert_array_equal((net & gs.Churn(0.3, 0.3)).layout(7), net.positions(7))
    circle = (gs.Ring(4) & gs.LinkFailure(0.5)).layout(3)
    np.testing.assert_allclose(circle, [[0, 1], [1, 0], [0, -1], [-1, 0]], atol=1e-12)
    Path("fixes.csv").write_text("0,0,50.0,8.0\n9,0,50.0,8.0\n0,1,51.0,9.0\n4,1,51.0,9.0\n")
    trace = gs.PositionTrace(Path("fixes.csv"), radius=2.0, beyond="repeat")
    assert np.isnan(trace.layout(8)[1]).all()
    np.testing.assert_array_equal(trace.layout(10 + 2), trace.layout(2))
    animate.animate(trace, 12, Path("a.gif"), "trace")
    assert len(frames("a.gif")) == 12


def test_inactive_devices_are_marked() -> None:
    away = gs.Random(8, 0.5) & gs.Churn(0.5, 0.5, seed=1)
    frame = animate._frame(away, 4)
    links = away.links(4)
    assert links.active is not None
    assert frame.active.tolist() == links.active.tolist()
    assert not frame.active.all()
