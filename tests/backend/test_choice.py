"""Which implementation serves: forced, measured, kept, and told to other processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import gossamer as gs
from gossamer import backend
from gossamer.backend import choice, kept_choice, loader
from gossamer.backend.choice import KERNELS, OPERATIONS, TORCH, VARIABLE

NAMES = [*KERNELS, TORCH]
needs_kernels = pytest.mark.skipif(not KERNELS, reason="there is only plain torch here")


@pytest.fixture
def undecided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Forget the choice of this process; use an empty cache folder and no forced backend."""
    before = choice.choices()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "auto")
    monkeypatch.setattr(choice, "_table", None)
    yield tmp_path
    choice.use(before)


def measured(fast: str) -> Callable[[], dict[str, dict[str, float]]]:
    """Return a measurement in which one implementation takes half as long as the others."""

    def measure() -> dict[str, dict[str, float]]:
        seconds = {}
        for operation in OPERATIONS.values():
            for key in operation.keys:
                seconds[key] = {name: 1.0 - 0.5 * (name == fast) for name in NAMES}
        return seconds

    return measure


@needs_kernels
def test_the_fastest_serves_and_is_kept(undecided: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "measure", measured(TORCH))
    assert set(choice.choices().values()) == {TORCH}
    assert OPERATIONS["roots"].serving(3) is None
    (file,) = (undecided / "gossamer").iterdir()
    document = json.loads(file.read_text())
    assert document["choice"] == choice.choices()
    assert document["milliseconds"]["roots 3"][TORCH] == 500
    # Another measurement would choose otherwise; the first one decides.
    monkeypatch.setattr(choice, "_table", None)
    monkeypatch.setattr(choice, "measure", measured(NAMES[0]))
    assert set(choice.choices().values()) == {TORCH}


@needs_kernels
@pytest.mark.parametrize("content", ["", "{", "[]", '{"choice": {}}', '{"choice": {"roots 3": 7}}'])
def test_a_file_that_is_not_ours_is_replaced(
    content: str, undecided: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "measure", measured(TORCH))
    kept_choice.path().parent.mkdir()
    kept_choice.path().write_text(content)
    assert set(choice.choices().values()) == {TORCH}
    assert json.loads(kept_choice.path().read_text())["choice"] == choice.choices()


@needs_kernels
def test_of_two_processes_that_measure_the_first_decides(undecided: Path) -> None:
    keys = list(measured(TORCH)())
    first = kept_choice.keep(measured(TORCH)(), keys, NAMES)
    second = kept_choice.keep(measured(NAMES[0])(), keys, NAMES)
    assert first == second == dict.fromkeys(keys, TORCH)
    assert len(list((undecided / "gossamer").iterdir())) == 1


@needs_kernels
def test_without_a_cache_folder_the_choice_is_fixed(
    undecided: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes of a machine choose alike, though none can tell the others."""
    (undecided / "gossamer").write_text("a file where the folder should be")
    monkeypatch.setattr(choice, "measure", measured(TORCH))
    assert set(choice.choices().values()) == {NAMES[0]}


@needs_kernels
def test_every_operation_is_measured_with_every_implementation() -> None:
    seconds = choice.measure()
    assert list(seconds) == list(choice.choices())
    for by_name in seconds.values():
        assert list(by_name) == NAMES
        assert all(0 < value < float("inf") for value in by_name.values())


def test_a_faster_one_must_be_faster_by_the_margin() -> None:
    assert kept_choice.fastest({"avx512": 1.0, "avx2": 0.95, "torch": 2}, NAMES_OF_ALL) == "avx512"
    assert kept_choice.fastest({"avx512": 1.0, "avx2": 0.8, "torch": 0.79}, NAMES_OF_ALL) == "avx2"


NAMES_OF_ALL = ["avx512", "avx2", "torch"]


@pytest.mark.parametrize(("size", "key"), [(1, 0), (650, 0), (2200, 0), (2300, 1), (1e9, 2)])
def test_a_size_belongs_to_the_nearest_class(
    size: float, key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = OPERATIONS["gradient"]
    found: object = None
    for number, name in enumerate(operation.keys):
        monkeypatch.setitem(choice._serving, name, number)  # type: ignore[arg-type]
        found = operation.serving(size)
    assert found == key


def test_what_another_machine_chose_is_used_as_far_as_possible() -> None:
    told = choice.choices() | {"roots 3": TORCH, "roots 31": "avx1024"}
    with backend.using(told):
        assert choice.choices()["roots 3"] == TORCH
        assert choice.choices()["roots 31"] == NAMES[0]
    with backend.using({}):
        assert choice.choices() == dict.fromkeys(told, os.environ[VARIABLE])


@needs_kernels
def test_a_resumed_run_uses_the_implementations_of_its_checkpoint(tmp_path: Path) -> None:
    """The models are those of a run that never stopped, bit for bit."""
    study = gs.Study(gs.WPM(3, eta=0.05), gs.Ring(4), rounds=6)
    with backend.using(TORCH):
        whole = gs.run(study)

    class Stop(gs.Observer):
        def measured(self, row: object) -> None:
            os.kill(os.getpid(), 2)

    with backend.using(TORCH), pytest.raises(gs.Interrupted):
        gs.run(study, tmp_path / "run", observers=[Stop()])
    with backend.using(NAMES[0]):
        resumed = gs.run(study, tmp_path / "run", resume=True)
        assert set(choice.choices().values()) == {NAMES[0]}
    assert set(resumed.summary["backend"].values()) == {TORCH}
    for name, model in whole.models.items():
        assert torch.equal(model, resumed.models[name])


@pytest.mark.slow
@needs_kernels
@pytest.mark.parametrize("forced", NAMES)
def test_the_environment_variable_forces_a_backend(forced: str) -> None:
    code = "from gossamer.backend import versions; print(versions()['kernels'])"
    expected = {TORCH: "none: GOSSAMER_BACKEND = torch"} | loader.TITLES
    done = in_environment(forced, "-c", code)
    assert done.stdout.strip().removeprefix("compiled, ") == expected[forced]


@pytest.mark.slow
def test_a_backend_that_does_not_exist_is_refused() -> None:
    done = in_environment("fast", "-m", "gossamer", "bench", "--seconds", "0.1")
    assert done.returncode == 2
    assert done.stderr == (
        "gossamer: GOSSAMER_BACKEND = 'fast' is not accepted: give one of "
        "'auto', 'torch', 'avx512', 'avx2', 'neon'\n"
    )


@pytest.mark.slow
def test_a_backend_that_this_machine_does_not_have_is_refused() -> None:
    absent = next(name for name in loader.TITLES if name not in KERNELS)
    done = in_environment(absent, "-m", "gossamer", "run", "--set", "rounds=1")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        f"gossamer: GOSSAMER_BACKEND = '{absent}' is not accepted: give one that"
    )


def in_environment(value: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, GOSSAMER_BACKEND=value)
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, env=environment
    )
