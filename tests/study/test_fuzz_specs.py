"""5,000 mutated specs: each is accepted, or refused by one sentence, within 10 s and 2 GiB."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

import pytest
from support import fuzz_specs, processes
from support.command import real

TESTS = Path(__file__).parents[1]
SPECS = 5000
COMMANDS = 2


@pytest.mark.slow  # about 15 s of a core
@processes.needs_proc
def test_mutated_specs_are_refused_by_a_sentence(tmp_path: Path) -> None:
    done = processes.run(
        [sys.executable, "-m", "support.fuzz_specs", 0, SPECS],
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "GOSSAMER_DATA": str(tmp_path / "none")},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["failures"] == []
    # Most mutations are mistakes, but not all: what is behind the first checks is reached too.
    assert SPECS / 20 < found["refused"] < SPECS * 19 / 20


@pytest.mark.slow
def test_the_command_prints_one_sentence_for_mutated_specs(tmp_path: Path) -> None:
    """A sample of them by the real command, of those that the checks refuse."""
    make = fuzz_specs.bases()
    path = tmp_path / "mutated.toml"
    tried = 0
    number = 0
    while tried < COMMANDS:
        rng = random.Random(f"command {number}")
        number += 1
        path.write_bytes(fuzz_specs.mutated(make(rng), rng))
        sentence = fuzz_specs.check(path)
        if not sentence or "available" in sentence or "not in" in sentence:
            continue
        done = real("compare", path, "--out", tmp_path / "runs", cwd=tmp_path)
        assert (done.code, done.out) == (2, ""), done
        assert done.err.startswith("gossamer: "), done.err
        assert done.err.count("\n") == 1, done.err
        tried += 1


def test_a_long_key_is_named_in_a_short_sentence(tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    path.write_text(f"{'9' * 5000} = 1\n")
    assert len(fuzz_specs.check(path)) < 400
    path.write_text('"a\\nb" = 1\n')
    assert "'a\\nb' is not a known key" in fuzz_specs.check(path)
