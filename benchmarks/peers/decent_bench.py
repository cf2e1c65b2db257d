"""Adapter of decent-bench: DGD on a P2PNetwork of agents, as in its peer-to-peer example."""

THREADS = (1, 2)
NOTES = (
    "DGD, Metropolis weights, a fixed random graph (it cannot change); the gradient is in closed "
    "form in NumPy, a subclass of its EmpiricalRiskCost (its own softmax is a PyTorch module); no "
    "snapshots, no metrics"
)


def run(x, y, devices, tick):
    import networkx as nx
    import numpy as np
    from decent_array import Array
    from decent_array.types import Devices, Frameworks
    from decent_bench.agents import Agent
    from decent_bench.algorithms.p2p import DGD
    from decent_bench.benchmark import configure
    from decent_bench.costs import EmpiricalRiskCost
    from decent_bench.networks import P2PNetwork

    class Softmax(EmpiricalRiskCost):
        """Softmax regression with a bias: mean cross-entropy over a batch; 785 × 10 weights."""

        shape = (7850,)
        m_smooth = float("nan")
        m_cvx = 0.0
        batch_size = 128

        def __init__(self, inputs, labels):
            self.inputs = np.hstack([inputs, np.ones((len(inputs), 1), np.float32)])
            self.targets = np.eye(10, dtype=np.float32)[labels]

        n_samples = property(lambda self: len(self.inputs))
        dataset = property(lambda self: list(zip(self.inputs, self.targets, strict=True)))

        def _get_batch_data(self, indices="batch"):
            picked = self._sample_batch_indices(indices)
            return self.inputs[picked], self.targets[picked]

        def gradient(self, x, indices="batch", reduction="mean", **kwargs):
            a, b = self._get_batch_data(indices)
            # The weights of decent-bench make x float64, which is slower.
            logits = a @ x.value.astype(np.float32).reshape(785, 10)
            p = np.exp(logits - logits.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            return Array((a.T @ (p - b)).ravel() / len(a))

        def function(self, x, indices="batch", **kwargs):
            raise NotImplementedError

        predict = hessian = function

    configure(Frameworks.NUMPY, Devices.CPU, seed=0)
    shares = np.random.default_rng(0).permutation(len(x)).reshape(devices, -1)
    agents = [Agent(Softmax(x[share], y[share]), state_snapshot_period=10**9) for share in shares]
    graph = nx.random_regular_graph(min(4, devices - 1), devices, seed=0)
    network = P2PNetwork(graph, agents)
    DGD(step_size=0.01).run(network, iterations=10**9, progress_callback=lambda _: tick(devices))
