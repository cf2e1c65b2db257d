"""500 damaged run folders: every reader reads them or says in a sentence why not, within bounds."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from support import processes

FOLDERS = 500


@pytest.mark.slow  # about 20 s of a core
@processes.needs_proc
def test_damaged_folders_are_read_or_refused_by_a_sentence(tmp_path: Path) -> None:
    done = processes.run(
        [sys.executable, "-m", "support.fuzz_folders", 0, FOLDERS],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["failures"] == []
    assert FOLDERS / 2 < found["refused"] < FOLDERS  # some damages leave a run that can be read
