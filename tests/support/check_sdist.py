"""Install the sdist of a folder in a new virtual environment without a C compiler and run it.

    python tests/support/check_sdist.py dist

Dependencies are taken from the Python that runs this script, so that torch is not installed again.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

CHECK = Path(__file__).with_name("check_installed.py").resolve()


def main(folder: Path) -> None:
    (sdist,) = folder.glob("gossamer-*.tar.gz")
    with tempfile.TemporaryDirectory() as target:
        venv.create(target, with_pip=True)
        python = str(Path(target, "bin", "python"))
        # `false` fails as a missing compiler does.
        environment = {**os.environ, "CC": "false"}
        environment.pop("PYTHONPATH", None)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--no-deps", str(sdist)], check=True, env=environment)

        purelib = Path(
            sysconfig.get_path("purelib", vars={"base": target, "platbase": target}, scheme="venv")
        )
        # A line of a .pth file adds a folder to the import path, behind the environment's own, and
        # does not read the .pth files in it: gossamer itself is not found there.
        (purelib / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        done = subprocess.run(
            [python, "-P", str(CHECK)],
            check=True,
            cwd=target,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert target in done.stdout, done.stdout
        assert "without compiled kernels" in done.stdout, done.stdout
    print(f"{sdist.name} installs without a compiler and runs")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
