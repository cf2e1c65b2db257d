"""Install the wheel of a folder into an empty place and run it from there: `python tests/support/check_wheel.py dist`."""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def main(folder: Path) -> None:
    (wheel,) = folder.glob("gossamer-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "gossamer/py.typed" in names, "the wheel lacks its typing marker"
    assert any(name.endswith("licenses/LICENSE") for name in names), "the wheel lacks its licence"
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names), (
        "the wheel carries tests"
    )
    with tempfile.TemporaryDirectory() as place:
        install = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--target",
            place,
            str(wheel),
        ]
        subprocess.run(install, check=True)
        code = f"import gossamer as gs; assert gs.__file__.startswith({place!r}), gs.__file__; gs.run(gs.Study(rounds=2))"
        if not wheel.name.endswith("-any.whl"):
            code += "; from gossamer import backend; assert backend.library, 'the kernels are not in the wheel, or not loaded'"
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            cwd=place,
            env={**os.environ, "PYTHONPATH": place},
        )
    print(f"{wheel.name} installs and runs")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
