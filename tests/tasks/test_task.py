"""Tasks and workers: batches drawn by name, rows in any order, invalid tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gossamer import draws
from gossamer.errors import InputError
from gossamer.tasks import (
    Accuracy,
    Cnn,
    Data,
    Dirichlet,
    Iid,
    Learner,
    Metric,
    Mlp,
    Model,
    Module,
    OneLabel,
    Scores,
    Softmax,
    Svm,
    Task,
    Worker,
    from_arrays,
    from_lists,
    splits,
)
from gossamer.tasks.split_rules import SplitRule

# BatchNorm with momentum=None cannot run stacked.
pytestmark = pytest.mark.filterwarnings("ignore::gossamer.SpeedWarning")

CPU = torch.device("cpu")
DEVICES = np.arange(6)


class Seen(Learner):
    """A learner that records its batches."""

    draws = True

    def __init__(self) -> None:
        self.shapes = {"w": (1,)}
        self.x = self.y = self.keys = torch.empty(0)

    def init(self, seed: int) -> Tensor:
        return torch.full((1,), float(seed))

    def gradient(
        self, w: Tensor, x: Tensor, y: Tensor, buffers: dict[str, Tensor], keys: Tensor, out: Tensor
    ) -> None:
        self.x = x.clone()
        self.y = y.clone()
        self.keys = keys.clone()

    def loss(
        self, w: Tensor, x: Tensor, y: Tensor, buffers: dict[str, Tensor], keys: Tensor
    ) -> Tensor:
        self.gradient(w, x, y, buffers, keys, w)
        return w[:, 0]

    def scores(
        self,
        w: Tensor,
        x: Tensor,
        y: Tensor,
        buffers: dict[str, Tensor],
        metrics: Sequence[Metric] = (),
    ) -> Scores:
        self.x = x.clone()
        self.y = y.clone()
        return Scores(w[:, 0], {})


class Shown:
    """The model of `Seen`."""

    def learner(self, data: Data) -> Learner:
        return Seen()


def numbered(samples: int = 60) -> Data:
    """Return samples that are their own numbers, so that batches can be identified."""
    x = np.arange(samples)[:, None] * [1.0, -1.0]
    return from_arrays(x, np.arange(samples) % 3, x + 1000, np.arange(samples) % 3)


def images(samples: int = 60) -> Data:
    x = draws.normal(0, "images", np.arange(samples)[:, None], np.arange(32)).reshape(
        samples, 2, 4, 4
    )
    return from_arrays(x, np.arange(samples) % 3, x, np.arange(samples) % 3)


def task(
    model: Model | None = None,
    data: Data | None = None,
    batch: int = 5,
    split: SplitRule | None = None,
) -> Task:
    data = data or numbered()
    return Task(
        data, (split or Dirichlet(1.0)).make(data.y.numpy(), 6, seed=0), model or Shown(), batch
    )


def worker(
    task: Task,
    devices: np.ndarray = DEVICES,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    test: int = 0,
) -> Worker:
    return task.worker(devices, seed, dtype, CPU, test)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 3), st.lists(st.integers(0, 5), unique=True)),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 5),
)
def test_batches_do_not_depend_on_earlier_calls(
    calls: list[tuple[int, int, list[int]]], seed: int
) -> None:
    """Rounds, local steps and rows in any order; an empty list of rows means all."""
    shared = task()
    one = worker(shared, seed=seed)
    for t, step, rows in calls:
        chosen = torch.tensor(rows) if rows else None
        devices = np.array(rows) if rows else DEVICES
        one.gradient(torch.zeros(len(devices), 1), t, step, chosen)
        index = splits.batch(shared.split, seed, t, step, 5, devices)
        seen = one.learner
        assert isinstance(seen, Seen)
        assert seen.x[..., 0].tolist() == index.tolist()
        assert seen.x[..., 1].tolist() == (-index).tolist()
        assert seen.y.tolist() == (index % 3).tolist()
        assert (
            seen.keys.tolist()
            == draws.bits(seed, f"module/{step}", t, devices).view(np.int64).tolist()
        )


def test_the_loss_is_of_the_gradients_own_batch() -> None:
    one = worker(task())
    assert isinstance(one.learner, Seen)
    one.gradient(torch.zeros(6, 1), t=3, step=1)
    x = one.learner.x
    keys = one.learner.keys
    one.loss(torch.zeros(6, 1), t=3, step=1)
    assert torch.equal(one.learner.x, x)
    assert torch.equal(one.learner.keys, keys)


def test_keys_differ_between_devices_rounds_steps_and_seeds() -> None:
    keys = []
    for seed in (0, 1):
        for t in (0, 1):
            for step in (0, 1):
                keys += draws.bits(seed, f"module/{step}", t, DEVICES).tolist()
    assert len(set(keys)) == len(keys)


def test_batch_zero_takes_every_sample_each_time() -> None:
    whole = task(batch=0, split=Iid())
    one = worker(whole)
    assert isinstance(one.learner, Seen)
    for t in (0, 7):
        one.gradient(torch.zeros(6, 1), t)
        assert one.learner.x[..., 0].tolist() == [whole.split.of(i).tolist() for i in range(6)]
    one.gradient(torch.zeros(2, 1), 1, rows=torch.tensor([4, 1]))
    assert one.learner.x[..., 0].tolist() == [whole.split.of(i).tolist() for i in (4, 1)]


MODELS: dict[str, tuple[Model, Data]] = {
    "softmax": (Softmax(0.01), numbered()),
    "svm": (Svm(), numbered()),
    "mlp with dropout": (Mlp((4,), dropout=0.5), numbered()),
    "cnn with batch norm": (Cnn((3, 4), norm=True), images()),
    "one after another": (
        Module(
            lambda: nn.Sequential(nn.BatchNorm2d(2, momentum=None), nn.Flatten(), nn.Linear(32, 3))
        ),
        images(),
    ),
}


def spread(one: Worker, devices: np.ndarray = DEVICES) -> Tensor:
    """Return a different model for each device, independent of the other devices."""
    start = one.start()
    noise = draws.normal(1, "spread", devices[:, None], np.arange(start.shape[1]))
    return start + 0.1 * torch.from_numpy(noise).to(start.dtype)


@pytest.mark.parametrize("kind", MODELS)
def test_any_rows_equal_those_rows_of_the_whole_stack(kind: str) -> None:
    """Gradients and buffers agree to 1e-12, as rows and in a worker of their own (a shard)."""
    model, data = MODELS[kind]
    shared = task(model, data)
    whole = worker(shared)
    parts = worker(shared)
    w = spread(whole)
    shard = np.array([4, 1, 5])
    alone = worker(shared, shard)
    pieces = [[4, 1, 5], [0], [2, 3]]
    for t in range(3):
        expected = whole.gradient(w, t).clone()
        for rows in pieces:
            found = parts.gradient(w[rows], t, rows=torch.tensor(rows))
            torch.testing.assert_close(found, expected[rows], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            alone.gradient(w[shard], t), expected[shard], rtol=1e-12, atol=1e-12
        )
    for name, b in whole.buffers.items():
        torch.testing.assert_close(parts.buffers[name], b, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(alone.buffers[name], b[shard], rtol=1e-12, atol=1e-12)
    metrics = (Accuracy(),)
    scores = whole.scores(w, metrics)
    own = alone.scores(w[shard], metrics)
    torch.testing.assert_close(own.loss, scores.loss[shard], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(own.metrics["accuracy"], scores.metrics["accuracy"][shard])


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("at_once", [1, 50, 400])
@pytest.mark.parametrize("threads", [1, 2])
def test_chunks_of_devices_equal_all_at_once(
    kind: str, at_once: int, threads: int, request: pytest.FixtureRequest
) -> None:
    """Chunks of one device, two devices and more, one after the other or in threads."""
    shared = task(*MODELS[kind])
    whole = worker(shared)
    parts = worker(task(*MODELS[kind]))
    parts.learner.at_once = at_once
    w = spread(whole)
    rows = torch.tensor([5, 0, 3])
    if threads == 2:
        request.getfixturevalue("two_threads")
    for t in range(2):
        torch.testing.assert_close(
            parts.gradient(w, t), whole.gradient(w, t), rtol=1e-12, atol=1e-12
        )
        torch.testing.assert_close(parts.loss(w, t), whole.loss(w, t), rtol=1e-12, atol=1e-12)
        found = parts.gradient(w[rows], t, 1, rows)
        expected = whole.gradient(w[rows], t, 1, rows)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for name, b in whole.buffers.items():
        torch.testing.assert_close(parts.buffers[name], b, rtol=1e-12, atol=1e-12)


def test_buffers_of_other_rows_are_unchanged() -> None:
    one = worker(task(*MODELS["cnn with batch norm"]))
    w = spread(one)
    one.gradient(w[[2, 5]], 0, rows=torch.tensor([2, 5]))
    assert one.buffers["1.num_batches_tracked"].tolist() == [0, 0, 1, 0, 0, 1]
    untouched = one.buffers["1.running_mean"][[0, 1, 3, 4]]
    assert (untouched == 0).all()
    assert (one.buffers["1.running_mean"][[2, 5]] != 0).any(1).all()
    kept = one.buffers["1.running_mean"].clone()
    one.loss(w, 0)
    one.scores(w)
    assert torch.equal(one.buffers["1.running_mean"], kept)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", MODELS)
def test_results_have_the_requested_dtype(kind: str, dtype: torch.dtype) -> None:
    one = worker(task(*MODELS[kind]), dtype=dtype)
    w = one.start().repeat(6, 1)
    assert (
        w.dtype
        == one.gradient(w, 0).dtype
        == one.loss(w, 0).dtype
        == one.scores(w).loss.dtype
        == dtype
    )
    assert {b.dtype for b in one.buffers.values() if b.is_floating_point()} <= {dtype}


def test_the_start_is_the_same_for_all_devices_and_another_for_another_seed() -> None:
    for model, data in MODELS.values():
        starts = []
        for seed in (0, 1):
            starts.append(worker(task(model, data), seed=seed).start())
        assert starts[0].shape == (1, task(model, data).learner.parameters)
        assert not torch.equal(starts[0], starts[1])


def test_the_test_samples_are_a_fixed_choice() -> None:
    chosen = []
    for seed in (0, 1):
        one = worker(task(), seed=seed, test=10)
        assert isinstance(one.learner, Seen)
        one.scores(torch.zeros(6, 1))
        chosen.append(one.learner.x[:, 0].tolist())
        assert one.learner.y.tolist() == [int(x - 1000) % 3 for x in chosen[-1]]
    assert chosen[0] == chosen[1] == sorted(set(chosen[0]))
    assert len(chosen[0]) == 10
    assert chosen[0] != [1000.0 + k for k in range(10)]
    for test in (0, 60, 61):  # all
        one = worker(task(), test=test)
        assert isinstance(one.learner, Seen)
        one.scores(torch.zeros(6, 1))
        assert len(one.learner.x) == 60


def test_the_data_are_not_changed() -> None:
    data = images()
    before = data.x.clone()
    one = worker(task(Cnn((3, 4)), data), dtype=torch.float32)
    for t in range(3):
        one.gradient(one.start().repeat(6, 1), t)
    assert torch.equal(data.x, before)


def test_invalid_tasks_are_refused() -> None:
    data = numbered()
    split = OneLabel().make(data.y.numpy(), 6, seed=0)
    for make, field in (
        (lambda: Task(data, split, Softmax(), batch=-1), "batch"),
        (lambda: Task(data, from_lists([[0, 1], [2]]), Softmax(), batch=0), "batch"),
        (lambda: Task(data, from_lists([[0, 60]]), Softmax()), "split"),
    ):
        with pytest.raises(InputError) as refusal:
            make()
        assert refusal.value.field == field
    assert Task(data, from_lists([[0, 59], [3, 3]]), Softmax(), batch=0).devices == 2


@pytest.mark.parametrize(("y", "field"), [([0, 1, 2], "y"), ([0, -1, 1], "y"), ([0, 1], "y")])
def test_targets_that_do_not_fit_the_samples(y: list[int], field: str) -> None:
    """They are not checked again when batches are read."""
    x = torch.zeros(3, 2)
    data = Data(x, torch.tensor(y), x, torch.tensor([0, 1, 0]), "mine", 2)
    with pytest.raises(InputError) as refusal:
        Task(data, from_lists([[0, 1], [2]]), Softmax())
    assert refusal.value.field == field
