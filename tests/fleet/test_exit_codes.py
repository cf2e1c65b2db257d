"""What a service manager should retry, and what it should not."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gossamer._core.files import os_errors
from gossamer.errors import DataError, Diverged, GossamerError, Unavailable
from gossamer.fleet import keys
from gossamer.fleet.transport.configuration import LinkSettings, configuration

UNIT = Path(__file__).parents[2] / "deploy" / "gossamer-node@.service"


def test_a_full_disk_is_tried_again_and_another_failure_is_not() -> None:
    with pytest.raises(Unavailable, match="No space left"), os_errors("write", "/dev/full"):
        Path("/dev/full").write_bytes(b"x")
    with pytest.raises(DataError) as found, os_errors("read", "missing"):
        Path("missing").read_bytes()
    assert found.value.exit_code == 2


@pytest.mark.parametrize(("begins_in", "kind"), [(5, Unavailable), (-300, DataError)])
def test_a_certificate_is_tried_again_only_if_it_begins_later(
    tmp_path: Path, begins_in: int, kind: type[GossamerError]
) -> None:
    pytest.importorskip("cryptography", reason="needs the extra gossamer[peer]")
    when = datetime.now(UTC) + timedelta(days=begins_in)
    keys.make_authority(tmp_path / "authority", "fleet", days=100, now=when)
    keys.make_certificate(tmp_path / "n0", tmp_path / "authority", "n0", days=50, now=when)
    with pytest.raises(kind) as found:
        configuration(0, LinkSettings("r", ("n0", "n1"), tmp_path / "n0"))
    assert type(found.value) is kind


def test_the_unit_retries_what_may_mend_itself() -> None:
    text = UNIT.read_text()
    found = re.search(r"^RestartPreventExitStatus=(.*)$", text, re.M)
    assert found is not None
    assert {int(code) for code in found[1].split()} == {DataError.exit_code, Diverged.exit_code}
    assert Unavailable.exit_code not in (0, DataError.exit_code, Diverged.exit_code)
    assert "\nRestart=on-failure\n" in text
    assert "\nStartLimitIntervalSec=0\n" in text
