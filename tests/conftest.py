"""Fixtures of all tests, and the settings of the test process.

OpenMP's settings are read when torch is imported: one thread, and waiting threads that sleep.
"""

from __future__ import annotations

import os
import tempfile

os.environ["OMP_WAIT_POLICY"] = "passive"
os.environ["OMP_NUM_THREADS"] = "1"
# Hugging Face: no downloads, and no files in the home folder.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HOME"] = os.path.join(tempfile.gettempdir(), "gossamer-hugging-face")

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from gossamer import backend
from gossamer.backend import choice, loader
from gossamer.tasks.data import Data
from gossamer.tasks.download import cache_folder
from gossamer.tasks.image_sets import Cifar10, Mnist
from gossamer.tasks.originals import ORIGINALS

torch.set_num_threads(1)
# CI tries the same examples every time: only the change decides whether it passes.
settings.register_profile("gossamer", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("gossamer")

# No measurement decides between the backends: results and coverage are the same every time.
os.environ.setdefault(choice.VARIABLE, next(iter([*choice.KERNELS, choice.TORCH])))

if loader.is_stale():  # the tests of the kernels would be skipped without a word
    how = "install gossamer again, or run tools/compare_runs.py, which compiles it"
    pytest.exit(f"{loader.PATH} is older than its source: {how}", 1)


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run tests marked `no_cover` without a tracer.

    pytest-cov stops one of its two tracers only, if the test is run by a worker of pytest-xdist.
    """
    if item.get_closest_marker("no_cover") is None:
        yield
        return
    tracer = sys.gettrace()
    thread_tracer = threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]
    yield
    sys.settrace(tracer)
    threading.settrace(thread_tracer)  # type: ignore[arg-type]


def _folder(name: str) -> Path:
    folder = cache_folder() / ORIGINALS[name].folders[0]
    if not folder.is_dir():
        pytest.skip(f"the real {name} is not in {folder}: `gossamer data get {name}` brings it")
    return folder


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the cache folder with the real MNIST and CIFAR-10."""
    for name in ("mnist", "cifar10"):
        _folder(name)
    return cache_folder()


@pytest.fixture(scope="session")
def outside() -> Path:
    """Return the folder with data that others published: `traces` and `fashion-mnist`."""
    folder = os.environ.get("GOSSAMER_OUTSIDE")
    if not folder:
        pytest.skip("GOSSAMER_OUTSIDE is not set to the folder with published traces and data")
    for name in ("traces", "fashion-mnist"):
        if not (Path(folder) / name).is_dir():
            pytest.skip(f"GOSSAMER_OUTSIDE is {folder}, which has no folder {name}")
    return Path(folder)


@pytest.fixture(scope="session")
def mnist() -> Data:
    return Mnist(_folder("mnist")).load()


@pytest.fixture(scope="module")
def cifar10() -> Data:
    """Return CIFAR-10, which is kept only for a test module: it has 740 MB."""
    return Cifar10(_folder("cifar10")).load()


@pytest.fixture(params=[*choice.KERNELS, choice.TORCH])
def every_backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test with the kernels of every instruction set, and again with plain torch."""
    with backend.using(request.param):
        yield str(request.param)
