"""Install the wheel of a folder into an empty folder and run it from there.

python tests/support/check_wheel.py dist
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

CHECK = Path(__file__).with_name("check_installed.py").resolve()


def main(folder: Path) -> None:
    (wheel,) = folder.glob("gossamer-*.whl")
    check_contents(wheel)
    with tempfile.TemporaryDirectory() as target:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
        subprocess.run([*install, "--target", target, str(wheel)], check=True)
        subprocess.run(
            [sys.executable, "-P", str(CHECK)],
            check=True,
            cwd=target,
            env={**os.environ, "PYTHONPATH": target},
        )
    print(f"{wheel.name} installs and runs")


def check_contents(wheel: Path) -> None:
    """Check that the wheel has what it must have, and nothing else."""
    names = zipfile.ZipFile(wheel).namelist()
    assert "gossamer/py.typed" in names, "the wheel lacks its typing marker"
    assert any(name.endswith("licenses/LICENSE") for name in names), "the wheel lacks its licence"
    outside = []
    for name in names:
        if not name.startswith(("gossamer/", "gossamer-")):
            outside.append(name)
    assert not outside, f"the wheel has files outside the package: {outside}"
    has_kernels = "gossamer/backend/kernels.so" in names
    is_pure = wheel.name.endswith("-any.whl")
    assert has_kernels != is_pure, f"{wheel.name}: kernels {has_kernels}, pure {is_pure}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
