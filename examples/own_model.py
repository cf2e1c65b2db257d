"""Fit a curve with your own module and loss, and load one device's model into a torch module."""

import numpy as np
import torch
from torch import Tensor, nn

import gossamer as gs


class Waves(nn.Module):
    """A sum of eight waves with trainable amplitudes."""

    def __init__(self) -> None:
        super().__init__()
        self.share = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        angle = x * torch.arange(1, 5)
        return self.share(torch.cat([angle.sin(), angle.cos()], dim=-1))


def huber(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return one loss per sample; outliers count linearly, not quadratically."""
    return nn.functional.huber_loss(outputs.squeeze(-1), targets, reduction="none", delta=0.2)


def curve(x: np.ndarray) -> np.ndarray:
    return np.sin(3 * x[:, 0]) + 0.3 * x[:, 0]


# Noisy readings, one in ten of them far too high. Device i has samples of the i-th tenth of the
# range.
DEVICES = 10
rng = np.random.default_rng(0)
x = rng.uniform(-2, 2, size=(2000, 1)).astype(np.float32)
y = curve(x) + 0.05 * rng.normal(size=2000) + 3.0 * (rng.uniform(size=2000) < 0.1)
x_test = np.linspace(-2, 2, 200, dtype=np.float32)[:, None]
data = gs.from_arrays(x, y, x_test, curve(x_test), name="curve")
section = np.minimum((x[:, 0] + 2) / 4 * DEVICES, DEVICES - 1).astype(int)
split = gs.from_lists([np.flatnonzero(section == device) for device in range(DEVICES)])

print(f"{'loss':10}{'mean distance of device 0 from the curve':>42}")
for name, loss in (("squared", None), ("Huber", huber)):
    study = gs.Study(
        gs.DPSGD(eta=0.1), gs.RandomRing(DEVICES), data, split, gs.Module(Waves, loss), rounds=400
    )
    models = gs.run(study).models

    # Load the model of device 0: parameters by name, one row per device.
    module = Waves()
    module.load_state_dict({key: torch.as_tensor(rows)[0] for key, rows in models.items()})
    with torch.no_grad():
        error = np.abs(module(torch.from_numpy(x_test))[:, 0].numpy() - curve(x_test)).mean()
    print(f"{name:10}{error:42.3f}")
