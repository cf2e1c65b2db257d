"""Check Assumption 1 for a network, and compare the bound of Lemma 1 with the distance in a run."""

import numpy as np
import torch

import gossamer as gs
from gossamer.theory import check_assumption1, consensus_bound, mixing_constants

DEVICES = 10
ROUNDS = 200
ETA = 0.01
network = gs.Random(DEVICES, density=0.2)

found = check_assumption1(network, ROUNDS)
assert found.b is not None
mixing = mixing_constants(found.zeta, DEVICES, found.b.aligned)
print(
    f"Assumption 1 holds: {found.holds}. Smallest weight ζ = {found.zeta:.3f}; "
    f"smallest B = {found.b.aligned} in the"
)
print(
    f"paper's blocks, {found.b.sliding} in any window; rows sum to 1 within {found.error:.0e}; "
    f"1 - κ = {mixing.gap:.1e}\n"
)

# Lemma 1 covers a constant step and the models at which gradients are taken: those after mixing.
print(f"the largest ‖w_i - power mean‖ of {ROUNDS} rounds:")
print(f"{'p':>3}{'largest gradient':>19}{'measured':>10}{'bound':>8}")
for p in (1, 3, 5):
    study = gs.Study(
        gs.WPM(p, ETA, gs.Constant(), gradient_at="aggregate", anchor=False),
        network,
        gs.LeastSquares(DEVICES),
        model=gs.LinearRegression(),
        batch=0,  # all samples in every step: the same losses in every round
        measure=gs.Measure(at="after_mix"),
        dtype="float64",
    )
    plan = study.plan()
    simulator = gs.Simulator(plan)
    worker = plan.task.worker(np.arange(DEVICES), study.seed, torch.float64, torch.device("cpu"))
    start = simulator.models().clone()
    steepest = 0.0
    distance = []
    for t in range(ROUNDS):
        distance.append(simulator.record().power_distance.max())
        weights = torch.from_numpy(gs.metropolis(network.links(t), t, study.seed).dense())
        mixed = gs.power_mean(simulator.models(), weights, p)
        steepest = max(steepest, float(worker.gradient(mixed, t).norm(dim=1).max()))
        simulator.advance(t + 1)

    # Least squares has no global Lipschitz constant; the largest gradient norm is one for this run.
    bound = consensus_bound(
        start, np.arange(ROUNDS), p=p, eta=ETA, lipschitz=steepest, mixing=mixing, euclidean=True
    )
    assert (np.array(distance) <= bound).all()
    print(f"{p:3}{steepest:19.2f}{max(distance):10.3f}{bound.max():8.0f}")
print("\nThe bound holds and is far from tight: it depends on the network only through ζ and B.")
