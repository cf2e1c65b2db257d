"""Compare rounds, bytes and simulated seconds: compression wins on slow links only."""

import gossamer as gs

METHODS = {
    "whole models": gs.DPSGD(eta=0.1, order="adapt-then-combine"),
    "compressed to a tenth": gs.Composition(
        eta=0.1, order="adapt-then-combine", compress=gs.TopK(0.1), pull=0.3
    ),
}
LINKS = {"slow radio": gs.LogUniform(1e3, 1e5), "cable": gs.LogUniform(1e6, 1e8)}  # bytes/s

print(f"{'to 80 % accuracy':24}{'rounds':>8}{'MB':>8}" + "".join(f"{name:>14}" for name in LINKS))
for name, method in METHODS.items():
    cells = []
    for rate in LINKS.values():
        timing = gs.Timing(compute=gs.LogUniform(0.01, 0.1), rate=rate, latency=0.005)
        study = gs.Study(
            method,
            gs.Ring(10),
            split=gs.Dirichlet(0.5),
            rounds=150,
            measure=gs.Measure(every=1),
            timing=timing,
        )
        result = gs.run(study).summary
        cells.append(f"{result['seconds_to']['accuracy >= 0.8']:12.1f} s")
    rounds = result["rounds_to"]["accuracy >= 0.8"]
    sent = result["bytes_to"]["accuracy >= 0.8"]
    print(f"{name:24}{rounds:8}{sent / 1e6:8.2f}" + "".join(cells))
