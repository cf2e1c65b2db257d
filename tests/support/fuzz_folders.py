"""Damaged run folders, and what all readers do with them, for `tests/results/test_fuzz_folders.py`.

    python -m support.fuzz_folders SEED COUNT

makes one small comparison with a run that is finished, one that was stopped and one that diverged,
and COUNT copies of its runs with damaged files. Each is read by every command that reads runs. The
process may take 2 GiB of memory beside what it has loaded, and each folder 10 s of the processor.
Folders that break one of these bounds, or raise anything but an error of gossamer, are printed as
JSON with the exception.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.fuzz_specs import MEMORY, SECONDS, TooLong, damaged, stop

_FIGURE_EVERY = 10  # folders; matplotlib takes most of the time
_JSON_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1e300, 2**70, "", "a"),
    *([], [1, "a"], {}, {"a": 1}),
)


def make_runs(folder: Path) -> list[Path]:
    """Make a finished run, a stopped one with a checkpoint, and one that diverged."""
    import gossamer as gs
    from gossamer.engines.observer import Observer

    study = gs.Study(
        gs.DPSGD(eta=0.1), gs.Ring(4), rounds=4, batch=8, measure=gs.Measure(every=2), name="a"
    )

    class Stop(Observer):
        """Stops a run after its second round."""

        def advanced(self, t: int) -> None:
            if t == 2:
                os.kill(os.getpid(), signal.SIGINT)

    gs.run(study, folder / "finished")
    with suppress(KeyboardInterrupt):
        gs.run(study, folder / "stopped", observers=[Stop()])
    with suppress(gs.Diverged):
        gs.run(replace(study, algorithm=gs.DPSGD(eta=1e30)), folder / "diverged")
    live = {"round": 2, "left": 1.0, "record": {"round": 2, "accuracy": 0.5, "loss": 1.0}}
    shutil.copytree(folder / "stopped", folder / "running")
    (folder / "running" / "live.jsonl").write_text(f"{json.dumps(live)}\n")
    return sorted(folder.iterdir())


def damage(folder: Path, rng: random.Random) -> str:
    """Damage one or two files of a run folder; return what was done."""
    done = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        files = sorted(file for file in folder.iterdir() if file.is_file() and file.stat().st_size)
        if not files:
            break
        file = rng.choice(files)
        how = rng.choice(_DAMAGES)
        done.append(f"{how.__name__} {file.name}")
        with suppress(ValueError, LookupError, TypeError, OSError):  # its format was damaged before
            how(file, files, rng)
    return ", ".join(done)


def _delete(file: Path, files: list[Path], rng: random.Random) -> None:
    file.unlink()


def _empty(file: Path, files: list[Path], rng: random.Random) -> None:
    file.write_bytes(b"")


def _damage_bytes(file: Path, files: list[Path], rng: random.Random) -> None:
    file.write_bytes(damaged(file.read_bytes(), rng))


def _swap(file: Path, files: list[Path], rng: random.Random) -> None:
    other = rng.choice(files)
    content = file.read_bytes()
    file.write_bytes(other.read_bytes())
    other.write_bytes(content)


def _replace_by_folder(file: Path, files: list[Path], rng: random.Random) -> None:
    file.unlink()
    file.mkdir()


def _change_values(file: Path, files: list[Path], rng: random.Random) -> None:
    """Change a value of a JSON or TOML file, so that its format stays right."""
    if file.suffix == ".toml":
        lines = file.read_text().splitlines()
        at = rng.randrange(len(lines))
        if " = " in lines[at]:
            value = json.dumps(rng.choice(_JSON_VALUES[1:5]))
            lines[at] = f"{lines[at].partition(' = ')[0]} = {value}"
        file.write_text("\n".join(lines))
    elif file.suffix in (".json", ".jsonl"):
        table = json.loads(file.read_text())
        holder = table
        while True:
            key = rng.choice(list(holder))
            if not (isinstance(holder[key], dict) and holder[key] and rng.random() < 0.7):
                break
            holder = holder[key]
        if rng.random() < 0.3:
            del holder[key]
        else:
            holder[key] = rng.choice(_JSON_VALUES)
        file.write_text(json.dumps(table) + "\n")
    elif file.suffix == ".parquet":
        _change_column(file, rng)
    else:
        _damage_bytes(file, files, rng)


def _change_column(file: Path, rng: random.Random) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    at = rng.randrange(table.num_columns)
    name = table.column_names[at]
    rows = table.num_rows
    how = rng.randrange(4)
    if how == 0:
        table = table.drop_columns([name])
    elif how == 1:
        value = rng.choice((None, "a", -1, 2**62, float("nan"), float("inf"), [1.0], []))
        table = table.set_column(at, name, pa.array([value] * rows))
    elif how == 2:
        table = table.slice(0, rng.randrange(rows + 1))
    else:
        table = table.append_column("another", pa.array(["a"] * rows))
    pq.write_table(table, file)


_DAMAGES: tuple[Callable[[Path, list[Path], random.Random], None], ...] = (
    _delete,
    _empty,
    _damage_bytes,
    _damage_bytes,
    _damage_bytes,
    _swap,
    _replace_by_folder,
    _change_values,
    _change_values,
    _change_values,
)


def readers(number: int) -> list[tuple[str, Callable[[Path], Any]]]:
    """Return what reads a folder, by name."""
    import gossamer as gs
    from gossamer.cli import export, pages, runs

    def use_runs(folder: Path) -> None:
        found = gs.read(folder)
        _ = str(found), found.settings, found._repr_html_()
        for run in found:
            _ = run._repr_html_() if not run.problem else run.problem
        found.to_arrow()

    found: list[tuple[str, Callable[[Path], Any]]] = [
        ("read", use_runs),
        ("Run.read", lambda folder: gs.Run.read(folder)),
        ("models", lambda folder: gs.Run.read(folder).models),
        ("runs", lambda folder: runs.runs(folder, as_json=False)),
        ("runs --json", lambda folder: runs.runs(folder, as_json=True)),
        ("export", lambda folder: export.export([folder], "csv", Path("a.csv"), True)),
        ("export latex", lambda folder: export.export([folder], "latex", Path("a.tex"), True)),
        ("report", lambda folder: pages.report([folder], Path("a.html"))),
    ]
    if number % _FIGURE_EVERY == 0:
        found.append(
            ("figure", lambda folder: runs.figure([folder], Path("a.svg"), "rounds", "", "column"))
        )
    return found


def resume(folder: Path) -> None:
    """Continue a run by its own spec, as `gossamer run --resume` does."""
    import gossamer as gs
    from gossamer.study import spec

    study = spec.studies(spec.read(folder / "spec.toml"), folder.name)[0]
    if study.rounds <= 4 and study.network.devices <= 10:
        gs.run(study, folder, resume=True)


def _read_all(folder: Path, number: int) -> list[str]:
    """Call every reader; return the sentences of those that refuse, and raise what is no error."""
    from gossamer.errors import GossamerError

    refused = []
    for name, reader in [*readers(number), ("resume", resume)]:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            reader(folder)
        except GossamerError as error:
            refused.append(f"{name}: {error}")
        except (Exception, TooLong) as error:
            error.add_note(f"reader: {name}")
            raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    return refused


def main(seed: int, count: int) -> None:
    """Read so many damaged folders; print how many were refused by a reader, and the failures."""
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGPROF, stop)
    failures = []
    refused = 0
    with tempfile.TemporaryDirectory() as temporary, chdir(temporary):
        originals = make_runs(Path(temporary) / "runs")
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY, most))
        for number in range(count):
            rng = random.Random(f"{seed} {number}")
            folder = Path("damaged")
            original = rng.choice(originals)
            shutil.copytree(original, folder)
            done = f"{original.name}: {damage(folder, rng)}"
            try:
                with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                    sentences = _read_all(folder, number)
                refused += bool(sentences)
                for sentence in sentences:
                    if len(sentence) > 2000:
                        raise ValueError(f"not a sentence: {sentence}")
            except (Exception, TooLong):
                failures.append(
                    {"number": number, "damage": done, "error": traceback.format_exc()[-3000:]}
                )
            shutil.rmtree(folder)
    print(json.dumps({"refused": refused, "failures": failures}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
