"""Write a method of your own, hold it to what every method owes, and run it beside D-PSGD. Offline, in seconds."""

from dataclasses import dataclass

import torch
from torch import Tensor

import gossamer as gs
from gossamer.algorithms import Gradient, Mix, State
from gossamer.testing import check


# The method: every tensor has a row a device; `mix` averages with the neighbours of the round, `grad` is each device's own.
@dataclass(frozen=True)
class SharedMomentum(gs.Algorithm):
    """m_i⁺ = Σ_j a_ij·(β·m_j + g_j),  w_i⁺ = Σ_j a_ij·w_j − η·m_i⁺: neighbours share their momentum, for twice the bytes."""

    eta: float = 0.01
    beta: float = 0.9

    def init(self, w0: Tensor) -> State:
        return {"w": w0.clone(), "m": torch.zeros_like(w0)}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        w, m = state["w"], state["m"]
        m = mix(self.beta * m + grad(w))
        return {"w": mix(w) - self.eta * m, "m": m}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return mix(state["w"])


# What every method owes an engine: the same result when run again or resumed, no step by a device that is away, and so on.
print("conforms on:", ", ".join(check(SharedMomentum(eta=0.01))))

# Ten devices with one label each, on the same links, batches and start. What goes around a method goes around yours too.
mine = SharedMomentum(eta=0.02)
methods = {
    "D-PSGD": gs.DPSGD(eta=0.1),
    "mine": mine,
    "mine, one device broken": gs.Broken(mine, devices=(0,), sends="large", size=10.0),
    "mine, broken, clipped": gs.Broken(
        gs.Guarded(mine, gs.Clip(radius=1.0)), devices=(0,), sends="large", size=10.0
    ),
}
print(f"\n{'method':26}{'accuracy':>9}{'rounds to 80 %':>16}{'MB sent':>9}")
for name, method in methods.items():
    study = gs.Study(
        method,
        gs.RandomRing(10),
        split=gs.OneLabel(),
        rounds=100,
        measure=gs.Measure(5, accuracy_targets=(0.8,)),
    )
    result = gs.run(study).summary
    rounds = result["rounds_to_accuracy"]["0.8"]
    print(
        f"{name:26}{result['accuracy']:9.3f}{rounds if rounds is not None else '–':>16}{result['bytes'] / 1e6:9.1f}"
    )
