"""Logs of contacts and positions in the place of a spec: show, run, compare."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from support.command import Result, assert_refused, gossamer

import gossamer as gs
from gossamer.cli.specs import read_studies

# Twelve people of two wards: those of a ward meet every minute, and once somebody of the other.
ROWS = []
for _minute in range(10):
    for _k in range(0, 12, 2):
        ROWS.append((1_700_000_000 + 60 * _minute, 100 + _k, 102 + (_k + 2 * _minute) % 10))
CONTACTS = ""
for _t, _a, _b in ROWS:
    if _a != _b:
        CONTACTS += f"{_t}\t{_a}\t{_b}\t{'EW'[_a % 4 // 2]}\t{'EW'[_b % 4 // 2]}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("ward.csv").write_text(CONTACTS)
    return tmp_path


def test_no_name_is_left_out_where_all_fit() -> None:
    Path("four.csv").write_text("0 anna bert 9\n5 carl dora 9\n9 anna carl 9\n")
    shown = gossamer("network", "show", "four.csv").out
    assert "device numbers and names: 0 = anna, 1 = bert, 2 = carl, 3 = dora\n" in shown


def shown(*words: object) -> str:
    done = gossamer("network", "show", *words)
    assert done.code == 0, done.err
    return done.out


def test_show_says_what_was_understood() -> None:
    lines = shown("ward.csv", "--seconds", "60").splitlines()
    network = gs.ContactTrace("ward.csv", seconds_per_round=60)
    assert tuple(lines[:2]) == network.describe()
    assert lines[2] == "device numbers and names: 0 = 100, 1 = 102, 2 = 104, …, 5 = 110"
    assert lines[3] == 'column "class": 3 E, 3 W'
    assert "ward: 6 devices, 10 rounds" in lines[4]
    assert lines[-1] == "train on it: gossamer run ward.csv --set network.seconds_per_round=60"
    assert Path("network.png").read_bytes().startswith(b"\x89PNG")


def test_show_as_json_has_the_names() -> None:
    document = json.loads(shown("ward.csv", "--seconds", "60", "--json"))
    assert document["names"] == ["100", "102", "104", "106", "108", "110"]
    assert document["groups"] == {"class": ["E", "W", "E", "W", "E", "W"]}
    assert document["understood"][0].startswith("6 devices, ")


def test_options_of_a_log() -> None:
    Path("gaps.txt").write_text("0 ann ben\n90 ben cas\n95 ann cas\n")
    words = "gaps.txt --seconds 10 --absent away --skip-empty --start 0 --columns time,a,b --json"
    document = json.loads(shown(*words.split()))
    assert document["rounds"] == 2
    assert document["links_mean"] == 1.5
    later = json.loads(shown("gaps.txt", "--start", "90", "--json"))
    assert later["rounds"] == 6
    assert_refused(gossamer("network", "show", "gaps.txt", "--absent", "gone"), "absent", "'gone'")
    assert_refused(gossamer("network", "show", "gaps.txt", "--start", "noon"), "start", "'noon'")


def test_a_run_and_a_comparison_in_one_command() -> None:
    words = ("--set", "network.seconds_per_round=60", "--set", "split=by-class", "-q")
    done = gossamer("run", "ward.csv", *words)
    assert done.code == 0, done.err
    assert done.err == ""
    (run,) = [gs.Run.read(path.parent) for path in Path("runs").glob("*/summary.json")]
    assert run.name == "ward"
    assert run.summary["rounds"] == 10
    compared = gossamer("compare", "ward.csv", *words, "--json")
    assert len(json.loads(compared.out)["methods"]) == 4


def test_a_run_says_what_was_understood() -> None:
    done = gossamer("run", "ward.csv", "--set", "rounds=2")
    assert tuple(done.err.splitlines()[:2]) == gs.ContactTrace("ward.csv").describe()


def test_a_class_is_a_part_of_the_labels() -> None:
    (study, *_), _ = read_studies(Path("ward.csv"), ["split=by-class"], None)
    plan = study.plan()
    labels = []
    for device in range(6):
        labels.append(set(plan.task.data.y[plan.task.split.of(device)].tolist()))
    assert labels == [{0, 2, 4, 6, 8}, {1, 3, 5, 7, 9}] * 3


def test_devices_of_a_fleet_get_the_samples_of_their_class() -> None:
    Path("ward.toml").write_text(
        'rounds = 2\nsplit = "by-class"\nalgorithm = { kind = "d-psgd" }\n'
        'network = { kind = "contacts", path = "ward.csv" }\nfleet = { insecure = true }\n'
    )
    done = gossamer("fleet", "init", "ward.toml")
    assert done.code == 0, done.err
    for device in range(6):
        y = load_file(f"fleet/n{device}/data.safetensors")["y"]
        assert set(y.tolist()) == set(range(device % 2, 10, 2))


def test_by_class_without_classes_is_refused() -> None:
    Path("plain.csv").write_text("0,ann,ben\n1,ben,cas\n2,ann,cas\n")
    refused: Result = gossamer("run", "plain.csv", "-q", "--set", "split=by-class")
    assert_refused(refused, "split.kind = 'by-class' is not accepted")
    refused = gossamer("run", "ward.csv", "-q", "--set", 'split={kind="by-class",column="ward"}')
    assert_refused(refused, "split.column = 'ward' is not accepted: give one of 'class'")


def test_positions_and_links_in_the_place_of_a_spec() -> None:
    Path("fixes.csv").write_text("time,device,lat,lon\n0,ann,45,5\n0,ben,45,5.0005\n9,ann,45,5\n")
    document = json.loads(shown("fixes.csv", "--json", "--save", "links.parquet"))
    assert (document["rounds"], document["links_max"]) == (10, 1)
    again = json.loads(shown("links.parquet", "--json"))
    assert (again["rounds"], again["links_max"], again["links_mean"]) == (10, 1, 0.1)
    Path("plane.csv").write_text("0 ann 0 0\n0 ben 3 4\n9 ann 3 4\n9 ben 3 4\n")
    assert json.loads(shown("plane.csv", "--radius", "4", "--json"))["links_mean"] == 0.8


def test_tracks_of_gps_receivers(folder: Path) -> None:
    walk = Path(__file__).parents[2] / "examples" / "walk.gpx"
    document = json.loads(shown(walk, "--radius", "50", "--seconds", "30", "--json"))
    assert document["names"] == ["Ada", "Bo", "Cem", "Dana", "Eli", "Fay"]
    assert document["rounds"] == 81
    Path("walks").mkdir()
    for name in ("ann", "ben"):
        Path("walks", f"{name}.gpx").write_bytes(walk.read_bytes())
    (study, *_), _ = read_studies(Path("walks"), ["network.seconds_per_round=60"], None)
    assert (study.name, study.network.names) == ("walks", ("ann", "ben"))
    assert study.rounds == 41


def test_a_log_that_is_missing_is_refused() -> None:
    assert_refused(gossamer("run", "none.csv"), "none.csv")
    assert_refused(gossamer("network", "show", "none.toml"), "there is no spec none.toml")


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "understood", "classes"),
    [
        ("Contacts_Hospital", "75 devices, 32,424 contacts, 6 Dec 2010 01:02 to 10 Dec", 4),
        ("Primary_School", "242 devices, 125,773 contacts, 1 Oct 2009 08:40 to 2 Oct", 11),
        ("thiers_2012", "180 devices, 45,047 contacts, 19 Nov 2012 05:36 to 27 Nov", 5),
    ],
)
def test_published_logs_are_a_study_in_one_command(
    outside: Path, name: str, understood: str, classes: int
) -> None:
    path = outside / "traces" / f"{name}.csv"
    (study, *_), _ = read_studies(path, ["split=by-class"], None)
    assert study.network.describe()[0].startswith(understood)
    assert len(set(study.network.groups["class"])) == classes
    assert study.plan().task.devices == study.network.devices
    done = gossamer("run", path, "--set", "rounds=20", "--set", "split=by-class", "-q")
    assert done.code == 0, done.err
