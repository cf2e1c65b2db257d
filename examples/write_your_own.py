"""Write your own method, run the conformance suite on it, and compare it with D-PSGD."""

from dataclasses import dataclass

import torch
from torch import Tensor

import gossamer as gs
from gossamer.algorithms import Gradient, Mix, State
from gossamer.testing import check


# Every tensor has one row per device. `mix` averages with the current neighbours; `grad` returns
# each device's own gradient.
@dataclass(frozen=True)
class SharedMomentum(gs.Algorithm):
    """Mix the momentum as well, at twice the bytes.

    m_i⁺ = Σ_j a_ij·(β·m_j + g_j),  w_i⁺ = Σ_j a_ij·w_j − η·m_i⁺
    """

    eta: float = 0.01
    beta: float = 0.9

    def init(self, w0: Tensor) -> State:
        return {"w": w0.clone(), "m": torch.zeros_like(w0)}

    def round(self, state: State, grad: Gradient, mix: Mix, t: int) -> State:
        w = state["w"]
        m = mix(self.beta * state["m"] + grad(w))
        return {"w": mix(w) - self.eta * m, "m": m}

    def halfway(self, state: State, grad: Gradient, mix: Mix, t: int) -> Tensor:
        return mix(state["w"])


# The conformance suite: equal results when repeated or resumed, no step by an absent device, …
print("conforms on:", ", ".join(check(SharedMomentum(eta=0.01))))

# Ten devices with one label each, on the same links, batches and initial model. Guards and faults
# work with every method.
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
        measure=gs.Measure(5, targets=("accuracy >= 0.8",)),
    )
    result = gs.run(study).summary
    rounds = result["rounds_to"]["accuracy >= 0.8"]
    print(
        f"{name:26}{result['accuracy']:9.3f}{rounds if rounds is not None else '–':>16}"
        f"{result['bytes'] / 1e6:9.1f}"
    )
