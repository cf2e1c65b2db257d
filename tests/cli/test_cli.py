"""Every subcommand and its output; imports of the command."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer
from support import processes
from support.command import assert_refused, files, gossamer, real
from support.interrupts import stop_after
from support.listing import column, names_in, times_of
from support.terminal import ANSI, COLOUR, SEVERAL, SPEC, in_a_terminal

import gossamer as gs
from gossamer.cli.app import app
from gossamer.cli.help import EXAMPLES, GROUPS
from gossamer.cli.template import DEMO, TEMPLATE
from gossamer.study import spec
from gossamer.tasks import download, originals


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.toml").write_text(SPEC)


def done(*words: object) -> str:
    """Run a command that must succeed without messages. Return what it prints."""
    result = gossamer(*words)
    assert (result.code, result.err) == (0, "")
    return result.out


def spec_of(folder: str) -> dict:
    return tomllib.loads((Path(folder) / "spec.toml").read_text())


# -- run -----------------------------------------------------------------------------------------


def test_run_without_a_spec_is_the_demo_with_its_first_method() -> None:
    out = done("run", "-q")
    assert "demo: 10 devices, 200 rounds" in out
    assert "WPM p=15" in out
    assert "everything is in runs/demo-wpm-p-15-seed0" in out
    assert spec_of("runs/demo-wpm-p-15-seed0")["split"]["kind"] == "one-label"
    first = spec.studies(spec.parse(DEMO), "demo")[0]
    assert spec.studies(spec_of("runs/demo-wpm-p-15-seed0")) == [first]


def test_run_a_spec_with_changes() -> None:
    words = [
        "--set",
        "algorithm.p=15",
        "--set",
        "network.density=0.1",
        "--seed",
        "3",
        "--out",
        "runs/deep/a",
    ]
    out = done("run", "a.toml", "-q", *words)
    assert "a: 10 devices, 12 rounds" in out
    assert "WPM p=15" in out
    table = spec_of("runs/deep/a")
    assert (table["algorithm"]["p"], table["network"]["density"]) == (15, 0.1)
    assert table["seed"] == table["network"]["seed"] == 3


def test_run_prints_what_it_measured() -> None:
    out = done(
        "run", "a.toml", "-q", "--out", "out", "--set", "measure.targets=['accuracy >= 0.05']"
    )
    summary = json.loads(Path("out/summary.json").read_text())
    row = next(line for line in out.splitlines() if line.strip().startswith("WPM")).split()
    assert row[2:] == [
        f"{100 * summary['accuracy']:.2f}",
        f"{100 * summary['accuracy_worst']:.2f}",
        f"{100 * summary['accuracy_best']:.2f}",
        f"{100 * summary['accuracy_merged']:.2f}",
        f"{100 * summary['accuracy_merged_power']:.2f}",
        f"{summary['loss']:.3f}",
        str(summary["rounds_to"]["accuracy >= 0.05"]),
        str(summary["rounds_to_merged"]["accuracy >= 0.05"]),
        f"{summary['distance']:.3f}",
        f"{summary['bytes'] / 1e6:.1f}",
    ]


def test_run_of_a_regression_prints_no_accuracy() -> None:
    Path("a.toml").write_text(
        'rounds = 5\ndata = "least-squares"\nmeasure = { targets = ["loss <= 50"] }\n'
    )
    out = done("run", "a.toml", "-q")
    assert "accuracy" not in out
    assert "%" not in out.split("measuring")[0].rsplit("\n", 1)[0]
    assert "loss 50" in out


def test_a_second_run_is_refused_and_a_resume_reads_it() -> None:
    first = done("run", "a.toml", "-q", "--out", "out")
    assert_refused(gossamer("run", "a.toml", "-q", "--out", "out"), "--resume")
    assert done("run", "a.toml", "-q", "--out", "out", "--resume") == first


def test_a_run_folders_spec_is_a_spec() -> None:
    done("run", "a.toml", "-q", "--out", "one")
    done("run", "one/spec.toml", "-q", "--out", "two")
    assert (
        Path("one/models.safetensors").read_bytes() == Path("two/models.safetensors").read_bytes()
    )


# -- compare -------------------------------------------------------------------------------------


def rows(out: str) -> dict[str, str]:
    """Return the rows of a comparison by method."""
    lines = [line.strip() for line in out.split("─\n")[-1].splitlines()] if "─" in out else []
    found = {}
    for line in lines:
        if match := re.match(r"(.+?)\s{2,}(\d.*)", line):
            found[match[1]] = match[2]
    return found


def test_compare_one_file_with_several_methods() -> None:
    Path("b.toml").write_text(SEVERAL)
    out = done("compare", "b.toml", "-q")
    assert rows(out).keys() == {"WPM p=3", "D-PSGD"}
    assert "runs: runs/b   curves: runs/b/curves.png" in out
    assert Path("runs/b/curves.png").read_bytes().startswith(b"\x89PNG")
    assert set(names_in("runs/b")) == {
        "wpm-p-3-seed0",
        "d-psgd-seed0",
        "comparison.json",
        "curves.png",
    }
    # The same links, batches and start: at round 0 nothing differs, and as much was sent by both.
    tables = []
    for name in ("wpm-p-3", "d-psgd"):
        tables.append(pq.read_table(f"runs/b/{name}-seed0/metrics.parquet").to_pylist())
    for name, value in tables[1][0].items():
        if name not in ("method", "power_distance"):
            assert tables[0][0][name] == value, name
    assert tables[0][-1]["bytes"] == tables[1][-1]["bytes"]
    assert tables[0][-1]["loss"] != tables[1][-1]["loss"]


def test_compare_two_files() -> None:
    Path("b.toml").write_text(SPEC.replace("p = 3", "p = 15"))
    out = done("compare", "a.toml", "b.toml", "-q", "--out", "both")
    assert rows(out).keys() == {"WPM p=3", "WPM p=15"}
    assert spec_of("both/wpm-p-3-seed0")["network"] == spec_of("both/wpm-p-15-seed0")["network"]


def test_compare_gives_equal_methods_distinct_labels() -> None:
    Path("b.toml").write_text(SPEC.replace("eta = 0.05", "eta = 0.01"))
    assert rows(done("compare", "a.toml", "b.toml", "-q")).keys() == {
        "WPM p=3 (eta=0.05)",
        "WPM p=3 (eta=0.01)",
    }


@pytest.mark.slow
def test_compare_over_seeds_and_again() -> None:
    Path("b.toml").write_text(SEVERAL)
    out = done("compare", "b.toml", "-q", "--seeds", "3", "--seed", "4")
    assert "3 seeds" in out
    for row in rows(out).values():
        assert row.count("±") >= 3
    summaries = sorted(Path("runs/b").glob("*/summary.json"))
    assert [path.parent.name for path in summaries] == [
        f"{m}-seed{s}" for m in ("d-psgd", "wpm-p-3") for s in (4, 5, 6)
    ]
    accuracies = []
    for path in summaries[3:]:
        accuracies.append(json.loads(path.read_text())["accuracy"])
    assert len(set(accuracies)) > 1
    assert f"{100 * sum(accuracies) / 3:.2f} ±" in rows(out)["WPM p=3"]
    links = []
    for seed in (4, 5, 6):
        links.append(spec_of(f"runs/b/wpm-p-3-seed{seed}")["network"]["seed"])
    assert links == [4, 5, 6]

    times = times_of(summaries)
    again = gossamer("compare", "b.toml", "--seeds", "3", "--seed", "4")
    assert again.out == out
    assert again.err.count("done before") == 6
    more = gossamer("compare", "b.toml", "-q", "--seeds", "4", "--seed", "4")
    assert "4 seeds" in more.out
    assert times_of(summaries) == times  # what was there was not run again


@pytest.mark.slow
def test_an_interrupted_compare_is_resumed_by_the_same_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = importlib.import_module("gossamer.study.run")
    Path("b.toml").write_text(SEVERAL)
    with monkeypatch.context() as patch:  # as if Ctrl-C had come in the middle of the second method
        stop = stop_after(20)
        patch.setattr(running, "stop_on_signal", lambda: stop)
        stopped = gossamer("compare", "b.toml", "-q")
    kept = "runs/b/d-psgd-seed0 is kept and the same command continues it"
    assert re.search(rf"D-PSGD, seed 0: stopped after round \d+ of 12; {kept}", stopped.err)
    assert_refused(stopped, code=130)
    first = Path("runs/b/wpm-p-3-seed0/summary.json").stat().st_mtime_ns
    assert (
        done("compare", "b.toml", "-q").split("runs:")[0]
        == done("compare", "b.toml", "-q", "--out", "whole").split("runs:")[0]
    )
    assert Path("runs/b/wpm-p-3-seed0/summary.json").stat().st_mtime_ns == first


def test_compare_refuses_a_folder_of_another_spec() -> None:
    done("compare", "a.toml", "-q")
    before = files("runs")
    result = gossamer("compare", "a.toml", "-q", "--set", "algorithm.eta=0.1")
    assert_refused(
        result,
        "cannot resume runs/a/wpm-p-3-seed0: algorithm.eta was 0.05 and is now 0.1",
        "--out",
    )
    assert files("runs") == before


@pytest.mark.slow
def test_compare_without_a_spec_is_the_demo_and_suggests_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every suggested command works."""
    out = done("compare", "-q", "--set", "rounds=3")
    assert rows(out).keys() == {"WPM p=15", "WPM p=3", "WPM p=1", "SwarmSGD"}
    suggested = []
    for line in out.split("Next:\n")[1].splitlines():
        suggested.append(line.split("  ")[1])
    assert suggested[0] == "gossamer report runs/demo"
    assert len(suggested) == 5
    for command in suggested:
        program, *words = command.split()
        assert program == "gossamer"
        quick = [] if words[0] in ("new", "report") else ["--set", "rounds=3"]
        assert gossamer(*words, *quick).code == 0, command


# -- network -------------------------------------------------------------------------------------

NETWORKS = {
    "random": "{kind='random',devices=10,density=0.5}",
    "full": "{kind='full',devices=5}",
    "ring": "{kind='ring',devices=10}",
    "random-ring": "{kind='random-ring',devices=10}",
    "erdos-renyi": "{kind='erdos-renyi',devices=10,probability=0.3}",
    "regular": "{kind='regular',devices=10,degree=3}",
    "star": "{kind='star',devices=10}",
    "mobility": "{kind='mobility',devices=10,radius=0.3}",
    "cycle": "{kind='cycle',networks=[{kind='ring',devices=10},{kind='full',devices=10}]}",
    "faulty": "{kind='ring',devices=10,faults=[{kind='gilbert-elliott',fail=0.1,recover=0.5}]}",
    "contacts": "{kind='contacts',path='log.txt',beyond='repeat'}",
    "positions": "{kind='positions',path='fixes.csv',radius=2.0,beyond='empty'}",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_network_show(name: str) -> None:
    Path("log.txt").write_text("0 0 1\n1 1 2\n2 2 0\n")
    Path("fixes.csv").write_text("0,0,0.0,0.0\n9,0,1.0,1.0\n0,1,0.5,0.5\n9,1,9.0,9.0\n")
    out = done(
        "network",
        "show",
        "a.toml",
        "--set",
        f"network={NETWORKS[name]}",
        "--rounds",
        "8",
        "--picture",
        "net.png",
    )
    for fact in (
        "density",
        "links per round",
        "neighbours",
        "smallest B (Assumption 1)",
        "spectral gap",
        "8 rounds",
    ):
        assert fact in out
    assert Path("net.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.filterwarnings("ignore::gossamer.NetworkWarning")
def test_network_show_prints_correct_values() -> None:
    ring = done("network", "show", "a.toml", "--set", "network.kind=ring")
    assert re.search(r"density +│ 0\.2222 ", ring)
    assert re.search(r"links per round +│ 10 \(10 to 10\)", ring)
    assert re.search(r"smallest B \(Assumption 1\) +│ 1 ", ring)
    assert Path("network.png").exists()
    apart = done("network", "show", "a.toml", "--set", "network.density=0")
    assert "none: never connected" in apart
    assert re.search(r"devices alone +│ 100\.0%", apart)


@pytest.mark.slow
def test_saved_links_are_the_network_bit_for_bit() -> None:
    Path("a.toml").write_text(
        SPEC.replace(
            "[measure]",
            '[[network.faults]]\nkind = "churn"\nleave = 0.2\ncome_back = 0.3\n[measure]',
        )
    )
    out = done("network", "show", "a.toml", "--save", "deep.parquet")
    assert 'kind = "file", path = "deep.parquet"' in out
    done("run", "a.toml", "-q", "--out", "drawn")
    done(
        "run", "a.toml", "-q", "--out", "read", "--set", "network={kind='file',path='deep.parquet'}"
    )
    assert (
        Path("drawn/models.safetensors").read_bytes()
        == Path("read/models.safetensors").read_bytes()
    )
    assert pq.read_table("drawn/metrics.parquet").equals(pq.read_table("read/metrics.parquet"))
    # The file itself can be shown, and says the same of the same rounds.
    first, *lines, last = done("network", "show", "deep.parquet").splitlines()
    assert lines == done("network", "show", "a.toml").splitlines()[1:]
    assert "deep: 10 devices, 12 rounds" in first
    assert last == "train on it: gossamer run deep.parquet"


# -- data ----------------------------------------------------------------------------------------


@pytest.fixture
def small_mnist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, bytes]:
    """Replace MNIST by a data set of two small files, with an empty cache."""
    contents = {"train": b"images" * 1000, "test": b"labels" * 100}
    packed = {}
    for name, content in contents.items():
        packed[f"{name}.gz"] = gzip.compress(content)

    def stamps(given: dict[str, bytes]) -> dict[str, originals.Stamp]:
        found = {}
        for name, c in given.items():
            found[name] = originals.Stamp(len(c), f"sha256:{hashlib.sha256(c).hexdigest()}")
        return found

    original = originals.Original(
        stamps(contents), stamps(packed), ("mnist",), ("https://mirror.invalid/",)
    )
    monkeypatch.setitem(originals.ORIGINALS, "mnist", original)
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path / "cache"))
    return contents | packed


@pytest.mark.parametrize("end", ["", ".gz"])
def test_data_get_from_a_folder(small_mnist: dict[str, bytes], end: str) -> None:
    Path("mine").mkdir()
    for name in ("train", "test"):
        Path(f"mine/{name}{end}").write_bytes(small_mnist[name + end])
    for _ in range(2):
        assert (
            done("data", "get", "mnist", "--from", "mine")
            == f"mnist is in {Path.cwd()}/cache/mnist\n"
        )
    assert Path("cache/mnist/train").read_bytes() == small_mnist["train"]


def test_data_get_shows_what_it_downloads(
    small_mnist: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(
        name: str, file: str, folder: Path, progress: Callable[[str, int, int], None]
    ) -> None:
        (folder / file).write_bytes(small_mnist[file])
        for part in (0, 1, 2):
            progress(file, part * len(small_mnist[file]) // 2, len(small_mnist[file]))

    monkeypatch.setattr(download, "_fetch", fetch)
    result = gossamer("data", "get", "mnist")
    assert (result.code, result.out) == (0, f"mnist is in {Path.cwd()}/cache/mnist\n")
    assert [line.split()[0] for line in result.err.splitlines()] == ["train.gz", "test.gz"]
    Path("cache/mnist/train").unlink()
    assert gossamer("data", "get", "mnist", "--quiet").err == ""


# -- new -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_spec_of_new_can_be_run_and_compared() -> None:
    assert done("new", "fleet.toml") == "fleet.toml is written; `gossamer run fleet.toml` runs it\n"
    assert Path("fleet.toml").read_text() == TEMPLATE
    settings = (
        "--set",
        "algorithm.p=5",
        "--set",
        "network.density=0.1",
        "--seed",
        "3",
        "--out",
        "runs/a",
    )
    assert rows(done("run", "fleet.toml", *settings, "-q")).keys() == {"WPM p=5"}
    Path("fleet.toml").write_text(
        re.sub(r"(?m)^# (?=(\[\[algorithm|kind = .d-psgd|eta = 0.1))", "", TEMPLATE)
    )
    assert rows(done("compare", "fleet.toml", "-q")).keys() == {"WPM p=15", "D-PSGD"}
    assert "fleet: 10 devices, 200 rounds" in done("network", "show", "fleet.toml")


SECTIONS = ("data", "split", "model", "network", "faults")


@pytest.mark.parametrize("section", SECTIONS)
def test_every_kind_in_the_comments_of_the_template_exists(section: str) -> None:
    start = TEMPLATE.index("[[network.faults]]" if section == "faults" else f"[{section}]")
    block = re.split(r"\n\n", TEMPLATE[start:])[0]
    comments = []
    for line in block.splitlines():
        if "# " in line:
            comments.append(line.split("# ", 1)[1])
    listed: list[str] = []
    for comment in comments:
        if "|" in comment:
            listed += filter(str.strip, comment.split("# ")[-1].split("|"))
    files = ("arrays", "table", "hf")  # each has a line of its own
    listed += [comment.split("  ")[0] for comment in comments if comment.startswith(files)]
    named = {}
    for part in listed:
        match = re.match(r"\s*([a-z0-9-]+)\s*(?:\(([^)]*)\))?", part)
        assert match, part
        named[match[1]] = match[2] or ""
    kinds = spec.KINDS[section]
    assert named.keys() <= kinds.keys()
    # Only what comes with its own data needs no mention, and what `tune` makes by itself.
    assert kinds.keys() - named.keys() <= {"least-squares", "logistic", "validation"}
    for kind, keys in named.items():
        words = [] if "gossamer" in keys else re.split(r",\s*(?![^\[]*\])", keys)
        for key in {word.split("=")[0].strip() for word in words} - {"", "with replacement"}:
            assert key in vars(kinds[kind])["__dataclass_fields__"], (kind, key)


def test_commented_out_keys_of_the_template_work() -> None:
    """Uncomment every key."""
    text = re.sub(
        r"(?m)^# (?=(dtype|threads|\[\[network|kind = .gilb|fail|recover"
        r"|\[energy|step|byte|\[stream|rate = 2))",
        "",
        TEMPLATE,
    )
    assert text.count("[[network.faults]]") == 1
    text = text.replace("# [[network.faults]]", "[[network.faults]]").replace(
        "rounds = 200", "rounds = 2", 1
    )
    text = re.sub(r"(?m)^(p|eta) = \S+ +# or (?=\1 = \{)", "", text)
    Path("fleet.toml").write_text(text)
    table = tomllib.loads(text)
    assert (table["dtype"], table["network"]["faults"][0]["kind"]) == ("float32", "gilbert-elliott")
    assert table["algorithm"][0]["eta"]["kind"] == "cosine"
    assert table["algorithm"][0]["p"]["kind"] == "switch"
    done("compare", "fleet.toml", "-q")


# -- the command itself --------------------------------------------------------------------------


def test_version() -> None:
    assert done("--version") == f"gossamer {gs.__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["run"],
        ["compare"],
        ["new"],
        ["network"],
        ["network", "show"],
        ["data"],
        ["data", "get"],
    ],
)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help(words: list[str], option: str) -> None:
    out = done(*words, option)
    assert out.startswith(f"Usage: {' '.join(['gossamer', *words])} ")
    assert max(map(len, out.splitlines())) <= 80
    assert "<bool>" not in out


@pytest.mark.parametrize("words", [[], ["network"], ["data"]])
def test_no_arguments_print_the_help(words: list[str]) -> None:
    result = gossamer(*words)
    assert "Usage: gossamer" in result.out + result.err
    assert result.code in (0, 2)  # versions of click differ


def _commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


def test_help_lists_every_command() -> None:
    out = done("--help")
    assert "..." not in out.split("Run:")[1]  # no summary is cut
    groups = {}
    for title, lines in re.findall(r"(?m)^([A-Z][a-z ]+):\n((?:  .*\n)+)", out):
        groups[title] = tuple(line.split()[0] for line in lines.splitlines())
    del groups["Options"]
    assert groups == GROUPS
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(_commands())


def test_every_command_has_an_example_with_its_own_options() -> None:
    commands = {}
    for name, command in _commands().items():
        for inner, one in getattr(command, "commands", {"": command}).items():
            commands[f"{name} {inner}".strip()] = one
    assert EXAMPLES.keys() == commands.keys()
    for name, command in commands.items():
        program, *words = shlex.split(EXAMPLES[name])
        assert program == "gossamer"
        count = len(name.split())
        assert words[:count] == name.split()
        command.make_context(name, words[count:])  # parses, and refuses what is not known
        out = done(*name.split(), "--help")
        assert out.endswith(f"Example:\n  {EXAMPLES[name]}\n")
        assert not re.search(r"<\w+>|[{}]", out)  # no types
        assert max(map(len, out.splitlines())) <= 80


def test_progress_without_a_terminal_is_plain_lines() -> None:
    result = gossamer("run", "a.toml")
    assert re.fullmatch(r"WPM p=3  round 12/12  \d+\.\d%  distance \d+\.\d+\n", result.err)
    assert not ANSI.search(result.out + result.err)
    Path("b.toml").write_text(SEVERAL)
    result = gossamer("compare", "b.toml", "--seeds", "2")
    assert [line.split("  round")[0] for line in result.err.splitlines()] == [
        "WPM p=3  1 of 2",
        "WPM p=3  2 of 2",
        "D-PSGD   1 of 2",
        "D-PSGD   2 of 2",
    ]
    assert not ANSI.search(result.out + result.err)


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    """Heavy packages are imported only when a command needs them."""
    script = (
        "import sys\nfrom gossamer.cli import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'scipy', 'pyarrow', 'matplotlib', 'sklearn', 'networkx', "
        "'pydantic_core', 'pooch'}\n"
        "print('loaded:', sorted(heavy & set(sys.modules)))"
    )
    for words in (["--help"], ["run", "--help"], ["--version"]):
        result = processes.run([sys.executable, "-c", script, *words])
        # typer itself brings pydantic in some of its versions
        assert result.stdout.splitlines()[-1] in ("loaded: []", "loaded: ['pydantic_core']"), (
            result.stdout + result.stderr
        )
    light = "import sys, gossamer; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    assert processes.run([sys.executable, "-c", light]).stdout == "[]\n"


@pytest.mark.slow
def test_a_run_imports_only_what_it_needs(tmp_path: Path) -> None:
    """A run of one round takes little longer than an import of torch (benchmarks/speed.py)."""
    script = (
        "import sys\nfrom gossamer.cli import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "heavy = {'scipy', 'matplotlib', 'sklearn', 'networkx', 'pandas', 'pooch'}\n"
        "print('loaded:', sorted(heavy & set(sys.modules)))"
    )
    words = ["run", "-q", "--set", "rounds=1", "--out", str(tmp_path / "run")]
    result = processes.run([sys.executable, "-c", script, *words])
    assert result.stdout.splitlines()[-1] == "loaded: []", result.stdout + result.stderr


@pytest.mark.slow
def test_the_real_command() -> None:
    assert real("--version").out == f"gossamer {gs.__version__}\n"
    script = Path(sys.executable).with_name("gossamer")
    if script.exists():  # where the package is installed
        assert processes.run([script, "--version"]).stdout == real("--version").out
    result = real("run", "a.toml")
    assert result.code == 0
    assert not ANSI.search(result.out + result.err)
    again = gossamer("run", "a.toml", "--out", "again")
    assert again.err == result.err
    assert again.out.splitlines()[:-1] == result.out.splitlines()[:-1]  # the last line has times
    name = "runs/a-wpm-p-3-seed0/models.safetensors"
    assert Path(name).read_bytes() == Path("again/models.safetensors").read_bytes()


@pytest.mark.slow
def test_a_terminal_has_bars() -> None:
    Path("b.toml").write_text(SEVERAL)
    written = in_a_terminal("compare", "b.toml", "--seeds", "2")
    assert COLOUR.search(written)
    assert "━" in written
    plain = ANSI.sub("", written).replace("\r", "\n")
    assert re.search(r"WPM p=3 ━+ +24/24 +\d+\.\d%", plain)
    assert re.search(r"D-PSGD  ━+ +24/24 +\d+\.\d%", plain)
    assert "2 seeds" in plain
    after = plain.replace("loading …", "")
    assert "…" not in after  # 80 columns are enough for every heading
    assert max(len(line) for line in plain.splitlines()) <= 80


@pytest.mark.slow
def test_a_terminal_without_colour_has_none() -> None:
    written = in_a_terminal("run", "a.toml", NO_COLOR="1")
    assert "━" in written
    assert not COLOUR.search(written)


@pytest.mark.slow
def test_quiet_in_a_terminal() -> None:
    written = in_a_terminal("run", "a.toml", "--quiet")
    assert "━" not in written
    assert "WPM p=3" in written


# -- methods ---------------------------------------------------------------------------------------


def test_methods_lists_every_registered_method() -> None:
    out = done("methods")
    for name, method in gs.METHODS.items():
        row = next(line for line in out.splitlines() if line.split()[:1] == [name])
        assert method.make.__name__ in row
    listed = json.loads(done("methods", "--json"))["methods"]
    assert column(listed, "kind") == list(gs.METHODS)


@pytest.mark.parametrize(
    ("what", "section"), [("networks", "network"), ("splits", "split"), ("models", "model")]
)
def test_methods_lists_other_parts_too(what: str, section: str) -> None:
    listed = json.loads(done("methods", what, "--json"))[what]
    assert column(listed, "kind") == list(spec.KINDS[section])
    for row in listed:
        assert row["description"]


def test_methods_refuses_a_list_that_does_not_exist() -> None:
    assert_refused(gossamer("methods", "netwroks"), "list = 'netwroks'", "did you mean 'networks'?")
