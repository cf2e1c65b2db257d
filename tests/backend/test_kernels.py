"""The compiled kernels against plain torch and closed forms, and the choice between them.

The tests of steps, mixing and simulator run with both backends too.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import gossamer as gs
from gossamer import backend, draws
from gossamer.backend import Batches, Samples, Scratch, compiled, limits, plain
from gossamer.backend.choice import KERNELS
from gossamer.backend.compiled import Kernels
from gossamer.backend.powers import root
from gossamer.engines.mixing import StackedMix, Traffic
from gossamer.mirror import power_map, power_mean, signed_power
from gossamer.tasks.image_sets import scaled_bytes

NONE = "there are no kernels here: no C compiler when gossamer was installed, or no AVX2"
pytestmark = pytest.mark.skipif(not KERNELS, reason=NONE)

each_set = pytest.mark.parametrize("kernels", KERNELS.values(), ids=KERNELS)

WHOLE = st.sampled_from([2, 3, 4, 7, 15, 16, 31, 35, 36, 64, 101, 255])


def numbers(*shape: int, seed: int = 0, decades: float = 3.0) -> Tensor:
    """Return float32 values of both signs over some orders of magnitude, a few of them zero."""
    n = np.arange(math.prod(shape))
    size = 10 ** (decades * (draws.uniform(seed, "size", n) - 0.9)) * (
        draws.uniform(seed, "zero", n) > 0.02
    )
    return torch.from_numpy(size * np.sign(draws.normal(seed, "sign", n))).float().reshape(shape)


def mean_of(kernels: Kernels, models: list[Tensor], csr: tuple[Any, Any, Any], p: float) -> Tensor:
    """Return the kernel's power means, one for each receiver."""
    first, sender, weight = csr
    out = torch.empty(len(first) - 1, models[0].shape[1])
    return kernels.power_mean(models, first, sender, weight, p, out)


def gradient(
    kernels: Kernels,
    w: Tensor,
    samples: Samples,
    y: Tensor,
    index: Tensor,
    classes: int,
    out: Tensor,
) -> None:
    """Write the kernel's gradient to `out`."""
    kernels.softmax_gradient(w, samples.x, samples.levels, y, index, classes, out)


@each_set
@given(
    WHOLE,
    st.integers(1, 9),
    st.integers(1, 300),
    st.integers(0, 99),
    st.sampled_from([0.1, 3.0, 40.0]),
)
@settings(max_examples=150)
def test_power_mean(
    kernels: Kernels, p: int, devices: int, columns: int, seed: int, decades: float
) -> None:
    """Equal to `mirror.power_mean` per receiver, in the dual, relative to the largest term."""
    w = numbers(devices, columns, seed=seed, decades=decades)
    links = (
        gs.Random(devices, density=0.5, seed=seed).links(0) if devices > 1 else gs.Full(1).links(0)
    )
    weights = gs.Metropolis()(links, 0, 0)
    result = mean_of(kernels, [w], weights.csr(), p)
    for row, a in zip(result, torch.from_numpy(weights.dense()), strict=True):
        scale = w[a != 0].double().abs().amax(0)
        scale = torch.where(scale == 0, 1.0, scale)
        got = signed_power(row.double() / scale, p)
        wanted = signed_power(power_mean(w, a, p).double() / scale, p)
        assert ((got - wanted).abs() <= 8 * p * torch.finfo(torch.float32).eps).all()


@each_set
@given(WHOLE, st.integers(2, 9), st.integers(0, 99), st.sampled_from([0.1, 3.0, 40.0]))
@settings(max_examples=60)
def test_the_mean_of_equal_models_is_equal_to_them(
    kernels: Kernels, p: int, devices: int, seed: int, decades: float
) -> None:
    """Bit for bit: equal models must not drift in thousands of rounds."""
    w = numbers(1, 500, seed=seed, decades=decades).repeat(devices, 1)
    weights = gs.Metropolis()(gs.Random(devices, density=0.5, seed=seed).links(0), 0, 0)
    assert torch.equal(mean_of(kernels, [w], weights.csr(), p), w)


@each_set
@given(WHOLE, st.integers(1, 300), st.integers(0, 99), st.sampled_from([0.1, 3.0, 60.0]))
@settings(max_examples=60)
def test_roots(kernels: Kernels, p: int, count: int, seed: int, decades: float) -> None:
    """Equal to the root in float64 to a few units in the last place; keeps signed zeros and NaN."""
    z = torch.cat(
        [
            numbers(count, seed=seed, decades=decades),
            torch.tensor([1e-40, -1e-45, 3e38, 0.0, -0.0, math.nan, math.inf]),
        ]
    )
    found = kernels.roots(z, p)
    torch.testing.assert_close(
        found, root(z.double(), p).float(), rtol=3e-7, atol=0, equal_nan=True
    )
    assert found.signbit().tolist()[-4:-2] == [False, True]


@each_set
@given(WHOLE, st.integers(1, 200), st.integers(0, 300))
@settings(max_examples=60)
def test_a_result_does_not_depend_on_its_position_in_memory(
    kernels: Kernels, p: int, columns: int, shift: int
) -> None:
    """Equal bit for bit at another address and among other columns, as shards and nodes need it."""
    w = numbers(3, shift + columns)
    d = numbers(3, shift + columns, seed=1)
    csr = gs.Metropolis()(gs.Full(3).links(0), 0, 0).csr()
    whole = mean_of(kernels, [w], csr, p)
    part = mean_of(kernels, [w[:, shift:]], csr, p)
    assert torch.equal(whole[:, shift:], part)
    received = [w[:1].clone(), w[1:].clone()]  # as if others had sent some rows
    assert torch.equal(mean_of(kernels, received, csr, p), whole)
    for safe in (False, True):
        stepped = kernels.matched_step(w, d, 0.01, p, 1e-2, safe)
        assert torch.equal(
            stepped[:, shift:],
            kernels.matched_step(w[:, shift:], d[:, shift:], 0.01, p, 1e-2, safe),
        )


@each_set
@given(st.integers(1, 30), st.integers(1, 2500), st.integers(0, 99), st.booleans())
@settings(max_examples=60)
def test_weighted_sums(kernels: Kernels, devices: int, columns: int, seed: int, more: bool) -> None:
    """Equal to a dense product in float64; some devices have no link."""
    x = numbers(devices, columns, seed=seed)
    out = numbers(devices, columns, seed=seed + 1)
    weights = gs.Metropolis()(
        gs.Random(devices, density=0.2, seed=seed).links(0) if devices > 1 else gs.Full(1).links(0),
        0,
        0,
    )
    wanted = torch.from_numpy(weights.dense()) @ x.double() + more * out.double()
    first, sender, value = (torch.from_numpy(part) for part in weights.csr())
    found = kernels.weighted_sums(first, sender, value.float(), x, out, more)
    assert found is out
    torch.testing.assert_close(found, wanted.float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    w = numbers(40, 5_001)
    d = numbers(40, 5_001, seed=1)
    index = torch.arange(40).flip(0)
    mix = StackedMix(gs.Metropolis()(gs.Ring(40).links(0), 0, 0), torch.arange(40), 4, Traffic())

    p15 = power_map(15)

    def results() -> tuple[Tensor, ...]:
        gathered = backend.gather(Samples(w), index, torch.empty_like(w))
        return mix(w), mix.mean(w, p15), gs.Safe()(w, d, 0.01, p15, lambda: w[:, 0]), gathered

    alone = results()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        shared = results()
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for a, b in zip(alone, shared, strict=True):
        assert torch.equal(a, b)


@given(
    st.sampled_from([torch.float32, torch.float64, torch.uint8, torch.bfloat16]),
    st.integers(1, 50),
    st.integers(0, 40),
)
@settings(max_examples=40)
def test_gather(dtype: torch.dtype, columns: int, rows: int) -> None:
    x = (torch.arange(13 * columns) % 251).to(dtype).view(13, columns)
    index = torch.from_numpy(draws.below(13, 0, "rows", np.arange(rows)))
    assert torch.equal(backend.gather(Samples(x), index, x.new_empty(rows, columns)), x[index])


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LEVEL_SAMPLES", 0)


def pixels(*shape: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return random bytes, the smallest and the largest in the first two rows of every column."""
    found = draws.below(256, 0, "levels", np.arange(math.prod(shape))).astype(np.uint8)
    found = found.reshape(shape)
    found[0] = 0
    found[1] = 255
    return found


def check_levels(kernels: Kernels, x: Tensor, levels: np.ndarray[Any, Any]) -> None:
    """Check that these levels of x are found, and that batches and gradients are equal to those
    of x, bit for bit."""
    with backend.using(kernels.name):
        rows = Samples.of(x)
        assert rows.levels is not None
        assert np.array_equal(rows.levels.bytes.numpy(), levels)
        index = torch.from_numpy(draws.below(len(x), 0, "rows", np.arange(60))).view(3, 20)
        gathered = backend.gather(rows, index.view(-1), torch.empty(60, *x.shape[1:]))
        assert torch.equal(gathered, x[index.view(-1)])
    y = torch.arange(len(x)) % 7
    w = numbers(3, 7 * (x[0].numel() + 1))
    found = torch.empty_like(w)
    wanted = torch.empty_like(w)
    for samples, out in ((rows, found), (Samples(x), wanted)):
        flat = Samples(samples.x.flatten(1), samples.levels)
        gradient(kernels, w, flat, y, index, 7, out)
    assert torch.equal(found, wanted)


@each_set
@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(
    ("mean", "std"), [(0.1307, 0.3081), (0.2860, 0.3530), (0.0, 1.0), (0.0, 1 / 255), (0.5, 0.5)]
)
@pytest.mark.parametrize("columns", [1, 16, 63, 784])
def test_images_are_read_from_bytes(
    kernels: Kernels, mean: float, std: float, columns: int
) -> None:
    levels = pixels(300, columns)
    check_levels(kernels, scaled_bytes(levels, mean, std), levels)


@each_set
@pytest.mark.usefixtures("any_size")
def test_each_colour_can_have_its_own_scale(kernels: Kernels) -> None:
    levels = pixels(300, 3, 5, 7)
    x = torch.empty(levels.shape)
    for colour, (mean, std) in enumerate([(0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616)]):
        x[:, colour] = scaled_bytes(levels[:, colour], mean, std)
    check_levels(kernels, x, levels)
    check_levels(kernels, x.permute(0, 2, 3, 1).contiguous(), levels.transpose(0, 2, 3, 1))


@each_set
@pytest.mark.usefixtures("any_size")
def test_elements_can_have_scales_of_their_own(kernels: Kernels) -> None:
    """And one of them only one value, as a pixel that is black in every image."""
    levels = pixels(400, 20)
    levels[:, 7] = 0
    x = torch.empty(levels.shape)
    for k in range(20):
        x[:, k] = scaled_bytes(levels[:, k], 0.1 + 0.01 * k, 0.3 + 0.013 * k)
    check_levels(kernels, x, levels)


@each_set
@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("top", [255, 16, 100, 7])
def test_bytes_that_were_divided_are_read_from_bytes(kernels: Kernels, top: int) -> None:
    """x / 255 in float32: no single float32 step gives all values."""
    levels = (pixels(300, 30).astype(np.int64) % (top + 1)).astype(np.uint8)
    levels[0] = 0
    levels[1] = top
    check_levels(kernels, torch.from_numpy(levels).float() / top, levels)


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(
    "wrong", ["last place", "nan", "inf", "beyond", "between", "noise", "float64"]
)
def test_samples_without_levels_are_read_unchanged(wrong: str) -> None:
    x = scaled_bytes(np.arange(256 * 20, dtype=np.uint8).reshape(-1, 20), 0.1307, 0.3081)
    assert Samples.of(x).levels is not None
    value = {"nan": math.nan, "inf": math.inf, "beyond": 256 / 255, "between": 100.5 / 255}.get(
        wrong
    )
    if wrong == "last place":
        x[77, 7] = x[77, 7].nextafter(torch.tensor(9.0))
    elif value is not None:
        x[77, 7] = (value - 0.1307) / 0.3081
    elif wrong == "noise":
        x += torch.from_numpy(draws.normal(0, "noise", np.arange(x.numel()))).float().view_as(x)
    else:
        x = x.double()
    rows = Samples.of(x)
    index = torch.arange(len(x)).flip(0)
    assert rows.levels is None
    torch.testing.assert_close(
        backend.gather(rows, index, torch.empty_like(x)), x.flip(0), equal_nan=True, rtol=0, atol=0
    )


@given(
    st.floats(2**-10, 1000, width=32),
    st.floats(-1000, 1000, width=32),
    st.lists(st.integers(0, 255), min_size=1, max_size=99),
)
def test_levels_lose_nothing(step: float, zero: float, levels: list[int]) -> None:
    """Whether or not levels are found, the samples that are read are x."""
    x = torch.tensor([step * level + zero for level in levels])[:, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LEVEL_SAMPLES", 0)
        rows = Samples.of(x)
    assert torch.equal(backend.gather(rows, torch.arange(len(x)), torch.empty_like(x)), x)


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(
    "values",
    [
        [0, math.nan],
        [0, 1, math.inf],
        [-math.inf, math.inf],
        [0, 1e-45],
        [-3e38, 3e38],
        [0, 1e-45, 1],
    ],
)
def test_special_values_are_read_unchanged(values: list[float]) -> None:
    x = torch.tensor(values).repeat(5, 1)
    found = backend.gather(Samples.of(x), torch.arange(5), torch.empty_like(x))
    torch.testing.assert_close(found, x, equal_nan=True, rtol=0, atol=0)


def test_few_samples_get_no_levels() -> None:
    """They stay in the processor's cache, where bytes gain nothing."""
    assert Samples.of((torch.arange(1000) % 2).float().view(100, 10)).levels is None


@each_set
@given(
    st.integers(1, 4),
    st.integers(1, 20),
    st.integers(1, 50),
    st.integers(1, 20),
    st.sampled_from([0.1, 1.0, 100.0]),
)
@settings(max_examples=80)
def test_softmax_gradient(
    kernels: Kernels, devices: int, batch: int, features: int, classes: int, size: float
) -> None:
    """Equal to the closed form in float64, for any padding; shares of 0 and 1 too."""
    x = numbers(30, features, decades=1)
    y = torch.arange(30) % classes
    index = torch.from_numpy(draws.below(30, 0, "rows", np.arange(devices * batch))).view(
        devices, batch
    )
    w = size * numbers(devices, classes * (features + 1), seed=1, decades=1)
    found = torch.full_like(w, math.nan)
    gradient(kernels, w, Samples(x), y, index, classes, found)
    weight = w.double().view(devices, classes, features + 1)
    samples = torch.cat([x, torch.ones(30, 1)], 1).double()[index]
    share = torch.softmax(samples @ weight.mT, 2) - torch.nn.functional.one_hot(y[index], classes)
    expected = (share.mT @ samples / batch).view_as(w)
    torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=2e-6 * size * features)


@each_set
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_softmax_gradient_of_values_that_are_not_finite(kernels: Kernels, wrong: float) -> None:
    w = numbers(3, 44)
    x = numbers(9, 10)
    y = torch.arange(9) % 4
    w[1, 5] = wrong
    found = torch.empty_like(w)
    gradient(kernels, w, Samples(x), y, torch.arange(9).expand(3, 9).contiguous(), 4, found)
    assert found.isfinite().all(1).tolist() == [True, False, True]


def test_where_the_gradient_kernel_does_not_serve() -> None:
    w = torch.ones(2, 8)
    x = torch.ones(5, 3)
    y = torch.zeros(5, dtype=torch.int64)
    index = torch.zeros(2, 4, dtype=torch.int64)
    accepts = compiled.accepts_gradient
    assert accepts(w, x, y, index, 2, w)
    assert not accepts(w.double(), x.double(), y, index, 2, w.double())
    meta = torch.device("meta")
    assert not accepts(w.to(meta), x.to(meta), y.to(meta), index.to(meta), 2, w.to(meta))
    assert not accepts(w, torch.ones(3, 5).T, y, index, 2, w)
    assert not accepts(w, x, y.int(), index, 2, w)
    large = torch.ones(5, limits.GRADIENT_WEIGHTS)
    assert not accepts(w, large, y, index, 2, w)


def test_the_backend_that_serves_computes_the_gradient(every_backend: str) -> None:
    x = numbers(30, 20, decades=1)
    y = torch.arange(30) % 4
    index = torch.from_numpy(draws.below(30, 0, "rows", np.arange(21))).view(3, 7)
    w = numbers(3, 4 * 21, seed=1, decades=1)
    batches = Batches(Samples(x), y, index, Scratch())
    found = torch.empty_like(w)
    backend.softmax_gradient(w, batches, 4, found)
    wanted = torch.empty_like(w)
    if every_backend in KERNELS:
        gradient(KERNELS[every_backend], w, Samples(x), y, index, 4, wanted)
    else:
        plain.softmax_gradient(w, x[index], y[index], 4, wanted, Scratch())
    assert torch.equal(found, wanted)


@each_set
@pytest.mark.parametrize("p", [3, 15, 101])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_stay_so(kernels: Kernels, p: int, wrong: float) -> None:
    w = numbers(3, 200).clamp_min(0.1)
    w[1, 7] = wrong
    csr = gs.Metropolis()(gs.Full(3).links(0), 0, 0).csr()
    result = mean_of(kernels, [w], csr, p)
    assert (~result.isfinite()).nonzero().tolist() == [[0, 7], [1, 7], [2, 7]]


def test_sizes_equal_those_of_the_source() -> None:
    """The sizes of scratch buffers depend on them."""
    source = Path(compiled.__file__).with_name("kernels_common.h").read_text()
    for name in ("LENGTH", "SLOPES", "SIXTEEN"):
        assert re.findall(rf"enum {{.*\b{name} = (\d+)", source) == [str(getattr(compiled, name))]


def test_where_the_kernels_do_not_serve() -> None:
    w = torch.ones(2, 3)
    assert compiled.accepts(w, p=15)
    assert compiled.accepts(w, p=15.0)
    assert not compiled.accepts(w, p=2.5)
    assert not compiled.accepts(w, p=512)
    assert not compiled.accepts(w, w.double(), p=15)
    assert not compiled.accepts(w.to("meta"), p=15)


@pytest.mark.parametrize("p", [1, 3, 15, 101])
def test_runs_with_and_without_kernels_agree(p: int) -> None:
    def models() -> Tensor:
        simulator = gs.Simulator(gs.Study(gs.WPM(p, eta=0.05), gs.Random(6, density=0.3)).plan())
        simulator.advance(20)
        return simulator.models()

    with backend.using("torch"):
        without = models()
    for name in KERNELS:
        with backend.using(name):
            # Near zero, a root amplifies the last bit of a gradient.
            torch.testing.assert_close(models(), without, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_run_without_built_kernels() -> None:
    """As after an installation without a compiler: there is no kernels.so."""
    code = """
import ctypes, torch
def absent(*_): raise OSError
ctypes.CDLL = absent
import gossamer as gs
from gossamer.backend import choice
assert not choice.KERNELS
print(gs.run(gs.Study(gs.WPM(15, eta=0.05), gs.Ring(4), rounds=3)).summary["loss"])
"""
    environment = dict(os.environ, GOSSAMER_BACKEND="auto")
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=environment,
    )
    assert 0 < float(done.stdout) < 10
