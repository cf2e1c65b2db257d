"""Settings of a whole process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gossamer._core.process import environment_defaults


def test_variables_are_set_only_in_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_TEST_SET", "by the user")
    monkeypatch.delenv("GOSSAMER_TEST_UNSET", raising=False)
    with environment_defaults(GOSSAMER_TEST_SET="ours", GOSSAMER_TEST_UNSET="ours"):
        assert os.environ["GOSSAMER_TEST_SET"] == "by the user"
        assert os.environ["GOSSAMER_TEST_UNSET"] == "ours"
    assert os.environ["GOSSAMER_TEST_SET"] == "by the user"
    assert "GOSSAMER_TEST_UNSET" not in os.environ


@pytest.mark.parametrize(("given", "expected"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "x"}, "x")])
def test_the_users_openmp_policy_has_precedence(given: dict[str, str], expected: str) -> None:
    code = (
        "import os; from gossamer._core.process import configure_own_process; "
        "configure_own_process(); print(os.environ['OMP_WAIT_POLICY'])"
    )
    environment = dict(os.environ)
    environment.pop("OMP_WAIT_POLICY", None)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment | given,
    )
    assert done.stdout.strip() == expected
