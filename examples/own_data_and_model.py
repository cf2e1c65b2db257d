"""Train your own module on your own arrays, on moving robots with fading links. Runs in seconds."""

import numpy as np
from torch import nn

import gossamer as gs

# Your data as NumPy arrays: here, windows of 32 readings of a microphone near one of four machines.
rng = np.random.default_rng(0)
machine = rng.integers(4, size=3000)
pitch = 0.5 + 0.4 * machine[:, None]
x = np.sin(pitch * np.arange(32) + rng.uniform(0, 6.28, (3000, 1))) + 0.5 * rng.normal(
    size=(3000, 32)
)
data = gs.from_arrays(
    x[:2400, None], machine[:2400], x[2400:, None], machine[2400:], name="machines"
)

# Your model: a function that creates it, called once per seed. Running statistics of BatchNorm
# stay on their robot. Dropout masks are drawn by name, so that a run can be repeated exactly.
model = gs.Module(
    lambda: nn.Sequential(
        nn.Conv1d(1, 16, kernel_size=9),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(16, 4),
    )
)

# Twelve robots on a square of 1 km with a radio range of 300 m. A failed link stays down for some
# rounds.
network = gs.Mobility(12, radius=0.3) & gs.GilbertElliott(fail=0.1, recover=0.3)

studies = [
    gs.Study(
        algorithm=algorithm,
        network=network,
        data=data,
        split=gs.Dirichlet(alpha=1.0),  # label proportions differ between robots
        model=model,
        rounds=120,
        measure=gs.Measure(every=10, targets=("accuracy >= 0.8",)),
    )
    for algorithm in (gs.DPSGD(eta=0.2), gs.WPM(p=3, eta=0.2), gs.AllReduce(eta=0.2))
]
print(f"{'method':10}{'accuracy':>10}{'worst':>8}{'rounds to 80 %':>16}{'MB sent':>9}")
for method in gs.compare(studies):
    result = method.runs[0].summary
    rounds = result["rounds_to"]["accuracy >= 0.8"]
    print(
        f"{method.label:10}{result['accuracy']:10.3f}{result['accuracy_worst']:8.3f}"
        f"{rounds if rounds is not None else '–':>16}{result['bytes'] / 1e6:9.1f}"
    )
