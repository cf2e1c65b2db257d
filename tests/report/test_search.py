"""The page of a search by `gossamer tune`, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.browser import Opened

import gossamer as gs
from gossamer.report.page import page
from gossamer.report.page_search import search_content
from gossamer.results.search import Search, Tried, read_search

VERDICT = "D-PSGD η=0.1 reached 80 % after 20 rounds."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a search with two confirmed settings of six."""
    folder = tmp_path_factory.mktemp("tune")
    tried = []
    for k, eta in enumerate((0.1, 0.2, 0.05, 0.3, 0.01, 0.001)):
        settings = {"eta": eta} | ({"beta": 0.9} if k % 2 else {})
        tried.append(
            {
                "label": f"D-PSGD η={eta}",
                "method": "D-PSGD",
                "settings": settings,
                "rounds": 20 if k < 3 else 5,
                "seeds": 1,
                "last": None if k == 5 else 0.9 - k / 10,
                "to_target": 20 if k == 0 else None,
            }
        )
    confirmed = []
    for eta in (0.1, 0.2):
        study = gs.Study(gs.DPSGD(eta), gs.Ring(6), rounds=20, name="cell")
        gs.run(study, folder / "cells" / f"dpsgd-{eta}")
        confirmed.append({"runs": [f"dpsgd-{eta}"]})
    content: dict[str, Any] = {
        "name": "made",
        "verdict": VERDICT,
        "metric": "accuracy",
        "unit": "rounds",
    }
    content |= {"target": "accuracy >= 0.8", "tried": tried, "confirmed": confirmed}
    (folder / "result.json").write_text(json.dumps(content))
    return folder


def test_all_settings_are_drawn_and_listed(folder: Path, open_page: Opened) -> None:
    page([folder], folder / "report.html")
    watched = open_page((folder / "report.html").as_uri())
    page_ = watched.page
    assert page_.locator(".answer").text_content() == VERDICT
    assert page_.locator("h1").text_content() == "made: search"
    assert page_.locator("#result tbody tr").count() >= 2  # the confirmed ones
    assert page_.locator("#search .way").count() == 6
    rows = page_.locator("#search tbody tr")
    assert rows.count() == 6
    assert rows.first.locator("td").all_text_contents() == ["0.1", "", "20", "1", "90.00", "20"]
    assert rows.last.locator("td").all_text_contents()[-2:] == ["diverged", "–"]
    watched.check_accessible()
    watched.check_fits()
    watched.check()


def test_a_range_on_an_axis_selects_rows(folder: Path, open_page: Opened) -> None:
    page([folder], folder / "report.html")
    watched = open_page((folder / "report.html").as_uri())
    page_ = watched.page
    grip = page_.locator("#search .grip").last  # the results
    grip.scroll_into_view_if_needed()
    box = grip.bounding_box()
    x = box["x"] + box["width"] / 2
    page_.mouse.move(x, box["y"] + 2)
    page_.mouse.down()
    page_.mouse.move(x, box["y"] + box["height"] * 0.3, steps=3)
    page_.mouse.up()
    assert page_.locator("#search tbody tr").count() == 2
    page_.get_by_role("button", name="All settings").click()
    assert page_.locator("#search tbody tr").count() == 6
    watched.check()


def test_a_search_without_a_target_and_with_a_schedule(folder: Path) -> None:
    search = read_search(folder)
    assert search is not None
    p = {"kind": "switch", "first": 5.0, "rounds": 20}
    tried = (Tried("WPM", "WPM", {"p": p, "eta": 0.1}, 5, 1, 0.5, None),)
    one = Search("a", "", "rmse_merged", "bytes", "", tried, search.runs)
    content = search_content(one, [])
    assert [column["label"] for column in content["table"]["columns"]][-1] == "rmse merged"
    assert isinstance(content["table"]["rows"][0][1]["text"], str)
    json.dumps(content, allow_nan=False)
