"""The theory as numbers: Assumption 1 of a network, and Lemma 1's bound beside the distance that a run really has."""

import numpy as np
import torch

import gossamer as gs
from gossamer.theory import check_assumption1, consensus_bound, mixing_constants

DEVICES, ROUNDS, ETA = 10, 200, 0.01
network = gs.Random(DEVICES, density=0.2)

found = check_assumption1(network, ROUNDS)
assert found.b is not None
mixing = mixing_constants(found.zeta, DEVICES, found.b.aligned)
print(
    f"Assumption 1 holds: {found.holds}. Smallest weight ζ = {found.zeta:.3f}; smallest B = {found.b.aligned} in the"
)
print(
    f"paper's blocks, {found.b.sliding} in any window; rows sum to 1 within {found.error:.0e}; 1 - κ = {mixing.gap:.1e}\n"
)

# Lemma 1 is about a constant step and about the models at which the gradients are taken: those after the mix.
print(f"the largest ‖w_i - power mean‖ of {ROUNDS} rounds:")
print(f"{'p':>3}{'steepest gradient':>19}{'measured':>10}{'bound':>8}")
for p in (1, 3, 5):
    study = gs.Study(
        gs.WPM(p, ETA, gs.Constant(), gradient_at="aggregate"),
        network,
        gs.LeastSquares(DEVICES),
        model=gs.LinearRegression(),
        batch=0,  # every sample in every step: the same losses in every round
        measure=gs.Measure(at="after_mix"),
        dtype="float64",
    )
    plan = study.plan()
    simulator = gs.Simulator(plan)
    worker = plan.task.worker(np.arange(DEVICES), study.seed, torch.float64, torch.device("cpu"))
    start, steepest, distance = simulator.models().clone(), 0.0, []
    for t in range(ROUNDS):
        distance.append(simulator.record().power_distance.max())
        weights = torch.from_numpy(gs.metropolis(network.links(t), t, study.seed).dense())
        mixed = gs.power_mean(simulator.models(), weights, p)
        steepest = max(steepest, float(worker.gradient(mixed, t).norm(dim=1).max()))
        simulator.advance(t + 1)

    # Least squares has no Lipschitz constant on all of space; on the way of this run, the steepest gradient is one.
    bound = consensus_bound(
        start, np.arange(ROUNDS), p=p, eta=ETA, lipschitz=steepest, mixing=mixing, euclidean=True
    )
    assert (np.array(distance) <= bound).all()
    print(f"{p:3}{steepest:19.2f}{max(distance):10.3f}{bound.max():8.0f}")
print("\nThe bound holds, and is far from tight: it knows of the network only ζ and B.")
