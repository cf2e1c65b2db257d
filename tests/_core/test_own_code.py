"""Import of the user's own files: names, collisions, digests, and what fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gossamer._core.own_code import OwnCode
from gossamer.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module, and the interpreter as it was before."""
    (tmp_path / "mine.py").write_text("def make():\n    return 7\n")
    return tmp_path


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


def test_an_object_is_loaded_and_sys_path_stays(folder: Path) -> None:
    before = list(sys.path)
    assert OwnCode("mine:make", folder).load()() == 7
    assert sys.path == before
    assert "mine" not in sys.modules


def test_a_module_may_be_named_as_an_installed_one(folder: Path) -> None:
    write(folder, random="import math\nmake = math.floor\n")
    assert OwnCode("random:make", folder).load()(2.5) == 2
    import random

    assert random.__file__ != str(folder / "random.py")


def test_two_folders_may_have_modules_of_one_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, mine="import parts_17\nNAME = parts_17.NAME\n")
        write(tmp_path / name, parts_17=f"NAME = {name!r}\n")
    assert OwnCode("mine:NAME", tmp_path / "a").load() == "a"
    assert OwnCode("mine:NAME", tmp_path / "b").load() == "b"
    assert OwnCode("mine:NAME", tmp_path / "a").load() == "a"


def test_a_changed_file_is_loaded_again(folder: Path) -> None:
    write(folder, mine="import parts_18\nN = 1 + parts_18.N\n", parts_18="N = 1\n")
    first = OwnCode("mine:N", folder)
    assert first.load() == 2
    write(folder, parts_18="N = 2\n")
    second = OwnCode("mine:N", folder)
    assert second.load() == 3
    assert first.sources[0] == second.sources[0]
    assert first.sources[1] != second.sources[1]


def test_sources_are_all_files_that_are_imported(folder: Path) -> None:
    (folder / "kit" / "deep").mkdir(parents=True)
    (folder / "kit" / "__init__.py").write_text("")
    (folder / "kit" / "deep" / "end.py").write_text("from .. import side\nN = side.N\n")
    (folder / "kit" / "side.py").write_text("N = 5\n")
    (folder / "kit" / "unused.py").write_text("N = 6\n")
    write(
        folder,
        mine="def late():\n    from .other import N\n    return N\nfrom .kit.deep import end",
    )
    write(folder, other="N = 9\n", unrelated="N = 8\n")
    code = OwnCode("mine:late", folder)
    names = [source.split()[0] for source in code.sources]
    assert names == ["kit/__init__.py", "kit/deep/end.py", "kit/side.py", "mine.py", "other.py"]
    assert code.load()() == 9
    assert OwnCode("mine:end.N", folder).load() == 5


def test_a_file_that_hides_an_installed_module_is_refused(folder: Path) -> None:
    write(folder, mine="import colorsys\nN = colorsys.N\n", colorsys="N = 3\n")
    with pytest.raises(InputError, match=r"imported as colorsys, .* too; rename it") as refusal:
        OwnCode("mine:N", folder).load()
    assert "from . import colorsys" in str(refusal.value)
    write(folder, mine="from . import colorsys\nN = colorsys.N\n")
    assert OwnCode("mine:N", folder).load() == 3


@pytest.mark.parametrize(
    "name", ["mine", "mine:", ":make", "mine.make", "../mine:make", "a b:c", ""]
)
def test_a_name_of_another_form_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(InputError, match='"module:name"'):
        OwnCode(name, folder)


def test_missing_modules_and_names_are_named_with_the_nearest(folder: Path) -> None:
    with pytest.raises(InputError, match=r"no mime.py in it \(did you mean 'mine'\?\)"):
        OwnCode("mime:make", folder)
    with pytest.raises(InputError, match=r"mine.py defines; it has no mak .*'make'"):
        OwnCode("mine:mak", folder).load()
    with pytest.raises(InputError, match="there is no folder"):
        OwnCode("mine:make", folder / "none")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_package", "mine.py:1 raised ModuleNotFoundError: No module named"),
        (
            "x = 1\nraise RuntimeError('first\\nsecond')",
            "mine.py:2 raised RuntimeError: first second",
        ),
        ("import sys\nsys.exit(3)", "mine.py:2 raised SystemExit: 3"),
        ("def f(:\n    pass", "mine.py:1 is not Python: SyntaxError"),
        ("from . import broken", "broken.py:1 is not Python: SyntaxError"),
        ("x = '\0'", "null bytes"),
    ],
)
def test_what_an_import_raises_is_one_sentence(folder: Path, text: str, said: str) -> None:
    write(folder, mine=text, broken="x = )")
    with pytest.raises(InputError) as refusal:
        OwnCode("mine:x", folder).load()
    assert said in str(refusal.value)


def test_nothing_is_executed_before_it_is_loaded(folder: Path) -> None:
    mark = folder / "executed"
    write(folder, mine=f"from pathlib import Path\nPath({str(mark)!r}).touch()\nx = 1")
    code = OwnCode("mine:x", folder)
    assert code.sources
    assert not mark.exists()
    code.load()
    assert mark.exists()
