"""Your own module and loss: devices learn a curve together, and one of them is taken home as an ordinary torch module."""

import numpy as np
import torch
from torch import Tensor, nn

import gossamer as gs


class Waves(nn.Module):
    """A sum of eight waves; only how much there is of each is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.share = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        angle = x * torch.arange(1, 5)
        return self.share(torch.cat([angle.sin(), angle.cos()], dim=-1))


def huber(outputs: Tensor, targets: Tensor) -> Tensor:
    """One number a sample; a reading that is far off counts by its distance, not by the square of it."""
    return nn.functional.huber_loss(outputs.squeeze(-1), targets, reduction="none", delta=0.2)


def curve(x: np.ndarray) -> np.ndarray:
    return np.sin(3 * x[:, 0]) + 0.3 * x[:, 0]


# Readings with noise, and one in ten that is far too high. Device i has seen the i-th tenth of the range only.
DEVICES = 10
rng = np.random.default_rng(0)
x = rng.uniform(-2, 2, size=(2000, 1)).astype(np.float32)
y = curve(x) + 0.05 * rng.normal(size=2000) + 3.0 * (rng.uniform(size=2000) < 0.1)
x_test = np.linspace(-2, 2, 200, dtype=np.float32)[:, None]
data = gs.from_arrays(x, y, x_test, curve(x_test), name="curve")
place = np.minimum((x[:, 0] + 2) / 4 * DEVICES, DEVICES - 1).astype(int)
split = gs.from_lists([np.flatnonzero(place == device) for device in range(DEVICES)])

print(f"{'loss':10}{'mean distance of device 0 from the curve':>42}")
for name, loss in (("squared", None), ("Huber", huber)):
    study = gs.Study(
        gs.DPSGD(eta=0.1), gs.RandomRing(DEVICES), data, split, gs.Module(Waves, loss), rounds=400
    )
    models = gs.run(study).models

    # Device 0's model, back in a module: parameters by their names, one row a device.
    mine = Waves()
    mine.load_state_dict({key: torch.as_tensor(rows)[0] for key, rows in models.items()})
    with torch.no_grad():
        off = np.abs(mine(torch.from_numpy(x_test))[:, 0].numpy() - curve(x_test)).mean()
    print(f"{name:10}{off:42.3f}")
