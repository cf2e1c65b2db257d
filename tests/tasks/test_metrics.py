"""Metrics: batches against the whole test set, against scikit-learn and against naive loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk
from torch import Tensor, nn

import gossamer as gs
from gossamer.errors import InputError
from gossamer.tasks import modules
from gossamer.tasks.metric import Metric
from gossamer.tasks.metrics import Meters, as_metrics, default_metrics
from gossamer.tasks.own_metrics import FunctionMetric

NAN = float("nan")


def value_of(metric: Metric, outputs: Tensor, targets: Tensor, batch: int = 0) -> float:
    """Return the value of a metric for one device, from batches of some size (0: the whole)."""
    meters = Meters([metric])
    size = batch or len(targets)
    for part, own in zip(outputs.split(size), targets.split(size), strict=True):
        meters.add(part[None], own)
    (value,) = meters.values(torch.zeros(1, dtype=torch.float64))[metric.name].tolist()
    return float(value)


@st.composite
def classified(draw: st.DrawFn) -> tuple[Tensor, Tensor, int]:
    """Outputs [samples, classes] without ties, labels, and a batch size."""
    samples = draw(st.integers(1, 30))
    classes = draw(st.integers(2, 6))
    seed = draw(st.integers(0, 1 << 30))
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    targets = torch.randint(classes, (samples,), generator=generator)
    return outputs, targets, draw(st.integers(1, samples))


@given(classified())
def test_metrics_of_classes_equal_scikit_learn(case: tuple[Tensor, Tensor, int]) -> None:
    outputs, targets, batch = case
    predicted = outputs.argmax(1).numpy()
    y = targets.numpy()
    classes = outputs.shape[1]
    k = min(3, classes)
    ranks = (-outputs).argsort(1)[:, :k]
    among = (ranks == targets[:, None]).any(1).double().mean().item()
    probabilities = outputs.softmax(1).numpy()
    entropy = sk.log_loss(y, probabilities, labels=list(range(classes)))
    expected: dict[Metric, float] = {
        gs.Accuracy(): sk.accuracy_score(y, predicted),
        gs.TopKAccuracy(k): among,
        gs.TopKAccuracy(1): sk.accuracy_score(y, predicted),
        gs.MacroF1(): sk.f1_score(y, predicted, average="macro", zero_division=0),
        gs.IoU(): sk.jaccard_score(y, predicted, average="macro", zero_division=0),
        gs.Perplexity(): math.exp(entropy),
    }
    for metric, value in expected.items():
        for size in (0, batch):
            assert value_of(metric, outputs, targets, size) == pytest.approx(value, rel=1e-9)


@given(
    st.integers(1, 30),
    st.integers(1, 3),
    st.integers(0, 1 << 30),
    st.integers(1, 30),
    st.floats(-1e3, 1e3),
)
def test_metrics_of_numbers_equal_scikit_learn(
    samples: int, width: int, seed: int, batch: int, offset: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(samples, width, generator=generator, dtype=torch.float64) + offset
    targets = torch.randn(samples, width, generator=generator, dtype=torch.float64) + offset
    y = targets.numpy()
    predicted = outputs.numpy()
    assert value_of(gs.MAE(), outputs, targets, batch) == pytest.approx(
        sk.mean_absolute_error(y, predicted), rel=1e-12
    )
    assert value_of(gs.RMSE(), outputs, targets, batch) == pytest.approx(
        math.sqrt(sk.mean_squared_error(y, predicted)), rel=1e-12
    )
    if samples > 1:
        expected = sk.r2_score(y, predicted)
        assert value_of(gs.R2(), outputs, targets, batch) == pytest.approx(expected, rel=1e-6)
    if width == 1:  # targets without an axis of outputs
        flat = value_of(gs.MAE(), outputs, targets.squeeze(1), batch)
        assert flat == pytest.approx(sk.mean_absolute_error(y, predicted), rel=1e-12)


def test_r2_of_constant_targets() -> None:
    y = torch.full((5,), 0.1, dtype=torch.float64)
    assert value_of(gs.R2(), y[:, None], y) == 1
    assert value_of(gs.R2(), y[:, None] + 1, y) == 0


@pytest.mark.parametrize("layout", ["classes first", "classes last"])
@given(seed=st.integers(0, 1 << 30), batch=st.integers(1, 5))
def test_ignored_positions_do_not_count(layout: str, seed: int, batch: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(5, 3, 4, generator=generator, dtype=torch.float64)
    if layout == "classes first":
        outputs = outputs.movedim(1, 2)  # [5, 4, 3] for targets [5, 3]
    targets = torch.randint(4, (5, 3), generator=generator)
    targets[torch.rand(5, 3, generator=generator) < 0.4] = -100
    targets[0, 0] = 2
    rows = outputs if layout == "classes last" else outputs.movedim(1, 2)
    counted = targets != -100
    flat_outputs = rows[counted]
    flat = targets[counted]
    for metric in (gs.Accuracy(), gs.TopKAccuracy(2), gs.MacroF1(), gs.IoU(), gs.Perplexity()):
        expected = value_of(metric, flat_outputs, flat)
        assert value_of(metric, outputs, targets, batch) == pytest.approx(expected, rel=1e-12)
    flat_errors = value_of(gs.MAE(), torch.tensor([1.0, 5.0]), torch.tensor([NAN, 3.0]))
    assert flat_errors == 2


def test_labels_that_are_true_or_false() -> None:
    outputs = torch.tensor([[1.0, -1.0], [2.0, 3.0], [-1.0, -2.0]])
    targets = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    predicted = (outputs > 0).int().numpy()
    true = targets.int().numpy()
    assert value_of(gs.Accuracy(), outputs, targets) == pytest.approx(4 / 6)
    expected = sk.f1_score(true, predicted, average="macro")
    assert value_of(gs.MacroF1(), outputs, targets, 2) == pytest.approx(expected)
    one = torch.tensor([[0.3], [-0.2], [0.1]])  # the output of logistic regression
    labels = torch.tensor([1, 1, 0])
    assert value_of(gs.Accuracy(), one, labels) == pytest.approx(1 / 3)
    expected = sk.f1_score([1, 1, 0], [1, 0, 1], average="macro")
    assert value_of(gs.MacroF1(), one, labels) == pytest.approx(expected)


# -- functions of one's own ----------------------------------------------------------------------


def auc(outputs: Tensor, targets: Tensor) -> float:
    return float(sk.roc_auc_score(targets.numpy(), outputs[:, 1].numpy()))


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    errors = outputs.squeeze(1) - targets
    return torch.stack([errors.square().sum(), errors.sum(), torch.tensor(float(len(errors)))])


def test_a_function_that_returns_a_number_sees_all_samples() -> None:
    """Also one that is no mean over the samples, and whose batches alone are refused."""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(40, 2, generator=generator)
    targets = (torch.arange(40) >= 20).long()
    metric = FunctionMetric(auc, "auc", "higher")
    whole = auc(outputs, targets)
    assert value_of(metric, outputs, targets) == whole
    shuffled = torch.randperm(40, generator=generator)
    for batch in (17, 39):
        assert value_of(metric, outputs[shuffled], targets[shuffled], batch) == whole


@given(st.integers(0, 1 << 30), st.integers(1, 12))
def test_a_function_that_returns_sums_is_added_up(seed: int, batch: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(12, 1, generator=generator, dtype=torch.float64)
    targets = torch.randn(12, generator=generator, dtype=torch.float64)
    errors = (outputs.squeeze(1) - targets).numpy()

    def deviation(sums: Tensor) -> Tensor:
        return (sums[0] / sums[2] - (sums[1] / sums[2]).square()).sqrt()

    metric = FunctionMetric(squares, "deviation", "lower", combine=deviation)
    assert value_of(metric, outputs, targets, batch) == pytest.approx(errors.std(), rel=1e-9)

    def total_and_count(outputs: Tensor, targets: Tensor) -> list[float]:
        found = (outputs.squeeze(1) - targets).abs()
        return [float(found.sum()), len(found)]

    mean = FunctionMetric(total_and_count, "mean", "lower")
    assert value_of(mean, outputs, targets, batch) == pytest.approx(abs(errors).mean(), rel=1e-9)


@pytest.mark.parametrize("model", [gs.Softmax(), gs.Mlp((8,)), gs.Cnn((2, 3))])
def test_own_metrics_equal_built_in_ones_in_a_run(model: Any) -> None:
    """For every kind of learner, for each device and for the merged model."""

    def accuracy(outputs: Tensor, targets: Tensor) -> float:
        return float((outputs.argmax(1) == targets).double().mean())

    def counts(outputs: Tensor, targets: Tensor) -> Tensor:
        correct = (outputs.argmax(1) == targets).sum()
        return torch.stack([correct, torch.tensor(len(targets))])

    measure = gs.Measure(
        every=2,
        metrics=(
            "accuracy",
            FunctionMetric(accuracy, "own", "higher"),
            FunctionMetric(counts, "sums", "higher"),
        ),
        targets=("own >= 0.1", "loss <= 100"),
    )
    run = gs.run(gs.Study(gs.DPSGD(0.1), gs.Ring(4), model=model, rounds=4, measure=measure))
    for ending in ("", "_worst", "_best", "_merged"):
        for name in ("own", "sums"):
            np.testing.assert_allclose(
                run.metrics[name + ending], run.metrics[f"accuracy{ending}"], rtol=1e-6
            )
    assert run.column.name == "accuracy"
    assert [column.name for column in run.columns] == ["accuracy", "own", "sums", "loss"]
    assert run.summary["rounds_to"]["loss <= 100"] == 0


def test_what_is_measured_by_default() -> None:
    x = np.zeros((4, 3), np.float32)
    labels = gs.from_arrays(x, [0, 1, 2, 0], x, [0, 1, 2, 0])
    numbers = gs.from_arrays(x, [0.5, 1, 2, 0], x, [0.5, 1, 2, 0])
    several = gs.from_arrays(x, np.ones((4, 2), bool), x, np.ones((4, 2), bool))
    tokens = np.zeros((4, 3), np.int64)
    text = gs.from_arrays(tokens, tokens, tokens, tokens)
    mask = gs.from_arrays(x, tokens, x, tokens)
    names = []
    for data in (labels, numbers, several, text, mask):
        names.append(default_metrics(data)[0].name)
    assert names == ["accuracy", "rmse", "accuracy", "perplexity", "accuracy"]


# -- refusals ------------------------------------------------------------------------------------


def regression(*metrics: Any, **changes: Any) -> gs.Study:
    x = np.arange(60.0).reshape(20, 3) % 7
    data = gs.from_arrays(x, x[:, 0], x, x[:, 0])
    measure = gs.Measure(every=1, metrics=metrics, **changes)
    return gs.Study(
        gs.DPSGD(1e-3),
        gs.Ring(3),
        data=data,
        model=gs.LinearRegression(),
        rounds=2,
        measure=measure,
    )


def refusal(make: Any) -> str:
    with pytest.raises(InputError) as refused:
        make()
    return str(refused.value)


def own(function: Any, **fields: Any) -> FunctionMetric:
    return FunctionMetric(function, "own", "lower", **fields)


def fails(outputs: Tensor, targets: Tensor) -> float:
    raise ZeroDivisionError("no samples\nmore")


def sometimes_nan(outputs: Tensor, targets: Tensor) -> float:
    return NAN if float(outputs.abs().max()) > 1e-9 else 0.0


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (fails, ("own", "it raised ZeroDivisionError: no samples", "[20, 1]")),
        (sometimes_nan, ("own = nan of device 0", "after round 0", "losses are finite")),
        (lambda o, y: o.squeeze(1) - y, ("own returning shape [20]", "returns a number")),
        (lambda o, y: torch.zeros(2, 2), ("own returning shape [2, 2]",)),
        (lambda o, y: "good", ("own returning 'good'", "returns a number")),
        (lambda o, y: None, ("own returning None",)),
    ],
)
def test_a_function_that_fails_is_one_sentence(function: Any, parts: tuple[str, ...]) -> None:
    text = refusal(lambda: gs.run(regression(own(function))))
    assert text.startswith("measure.metrics = ")
    assert "\n" not in text
    for part in parts:
        assert part in text


def test_a_combine_that_fails_is_one_sentence() -> None:
    text = refusal(lambda: gs.run(regression(own(squares, combine=lambda sums: sums[7]))))
    assert "a combine that runs on 3 sums; it raised IndexError" in text
    text = refusal(lambda: gs.run(regression(own(squares, combine=lambda sums: sums))))
    assert "which combine makes a number" in text


def test_a_metric_that_fails_is_found_before_a_long_run() -> None:
    """If it is measured only at the end, a mistake must not cost the whole run."""
    study = regression(own(fails))
    rounds: list[int] = []

    class Rounds(gs.Observer):
        def advanced(self, round: int) -> None:
            rounds.append(round)

    only_at_the_end = gs.Measure(every=0, metrics=study.measure.metrics)
    late = gs.Study(
        study.algorithm,
        study.network,
        data=study.data,
        model=study.model,
        rounds=50,
        measure=only_at_the_end,
    )
    with pytest.raises(InputError, match="ZeroDivisionError"):
        gs.run(late, observers=[Rounds()])
    assert max(rounds, default=0) == 0


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: as_metrics(["acuracy"]), ("metrics = 'acuracy'", "did you mean 'accuracy'?")),
        (lambda: as_metrics("accuracy"), ("a list of metrics",)),
        (lambda: as_metrics([fails]), ('FunctionMetric(fails, "fails", better="lower")',)),
        (lambda: as_metrics(["mae", "mae"]), ("metrics with different names",)),
        (lambda: own(3), ("function = 3", "a function of (outputs, targets)")),
        (lambda: own(fails, combine=3), ("combine = 3",)),
        (lambda: FunctionMetric(fails, "own"), ("better = ''", "'higher', 'lower'")),
        (lambda: FunctionMetric(fails, "", "lower"), ("name = ''",)),
        (lambda: FunctionMetric(fails, "a b", "lower"), ("name = 'a b'",)),
        (lambda: FunctionMetric(fails, "bytes", "lower"), ("no other column",)),
        (lambda: FunctionMetric(fails, "mae_worst", "lower"), ("does not end with _worst",)),
        (lambda: gs.Measure(targets="accuracy >= 1"), ("a list of targets",)),
        (lambda: gs.Measure(targets=("mae 4",)), ("targets = 'mae 4'", '"mae <= 40"')),
        (lambda: gs.Measure(targets=(4,)), ("targets = 4",)),
        (lambda: gs.Measure(targets=("mae <= inf",)), ("targets = 'mae <= inf'",)),
        (lambda: gs.Measure(accuracy_targets=(0.9,)), ('targets = ["accuracy >= 0.9"]',)),
        (lambda: gs.Measure(loss_targets=(0.9,)), ('targets = ["loss <= 0.1"]',)),
        (lambda: regression("accuracy").plan(), ("'accuracy'", "the targets are not classes")),
        (lambda: regression("rmse", targets=("mae <= 4",)).plan(), ("measured: rmse, loss",)),
        (lambda: regression("rmse", targets=("rmse >= 4",)).plan(), ('"rmse <= 4"', "lower")),
        (
            lambda: gs.Study(measure=gs.Measure(metrics=(gs.TopKAccuracy(11),))).plan(),
            ("top-k with k = 11", "k from 1 to 10"),
        ),
        (
            lambda: gs.Study(measure=gs.Measure(targets=("accuracy >= 90",))).plan(),
            ("a share from 0 to 1 for accuracy",),
        ),
    ],
)
def test_bad_input_is_refused(make: Any, parts: tuple[str, ...]) -> None:
    text = refusal(make)
    for part in parts:
        assert part in text


def test_outputs_that_do_not_fit_a_metric() -> None:
    outputs = torch.zeros(4, 5)
    text = refusal(lambda: value_of(gs.MAE(), outputs, torch.zeros(4)))
    assert "as many outputs as targets, of shape [4]" in text
    text = refusal(lambda: value_of(gs.Perplexity(), outputs, torch.zeros(4, 5, 6).long()))
    assert "outputs of shape [batch, classes, …]" in text
    text = refusal(lambda: value_of(gs.TopKAccuracy(6), outputs, torch.zeros(4).long()))
    assert "k from 1 to 5" in text


def test_a_metric_class_of_ones_own() -> None:
    """A subclass needs a column, sums and a value."""

    class Largest(Metric):
        @property
        def column(self) -> Any:
            from gossamer._core.columns import Column

            return Column("mean-error")

        def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
            errors = outputs.squeeze(1) - targets
            return torch.tensor([float(errors.sum()), len(errors)])

        def value(self, sums: Tensor) -> Tensor:
            return sums[0] / sums[1]

    outputs = torch.tensor([[1.0], [2.0], [5.0]])
    found = value_of(Largest(), outputs, torch.tensor([0.0, 0.0, 2.0]), 2)
    assert found == pytest.approx(2.0)


def test_an_evaluation_is_in_batches_that_the_outputs_fit_into(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A language model has few inputs, and a whole vocabulary of outputs for each."""
    x = np.arange(80).reshape(20, 4) % 7
    data = gs.from_arrays(x, x, x, x)

    class Vocabulary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(7, 1000)

        def forward(self, tokens: Tensor) -> Tensor:
            seen.append(tokens.shape[0])
            return self.embedding(tokens)  # type: ignore[no-any-return]

    seen: list[int] = []
    learner = gs.Module(Vocabulary).learner(data)
    w = learner.init(0)[None].expand(2, -1).contiguous()
    whole = learner.scores(w, data.x_test, data.y_test, {}, (gs.Perplexity(),))
    assert max(seen) == 20
    monkeypatch.setattr(modules, "_EVALUATION_ELEMENTS", 2 * 3 * 2 * 4000)
    seen.clear()
    parts = learner.scores(w, data.x_test, data.y_test, {}, (gs.Perplexity(),))
    assert max(seen) == 6
    torch.testing.assert_close(parts.metrics, whole.metrics, rtol=1e-5, atol=0)
