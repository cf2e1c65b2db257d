"""Adapter of p2pfl: nodes in one process with its in-memory protocol, as in its MNIST example."""

THREADS = (1,)
NOTES = (
    "federated averaging diffused to all over a fixed random graph; 128 samples per device, since "
    "it counts epochs and not steps; it votes, evaluates (on one sample here) and waits for all "
    "each round, which cannot be switched off"
)


def run(x, y, devices, tick):
    import os
    import time

    import lightning
    import networkx as nx
    import torch
    from datasets import Dataset, DatasetDict
    from p2pfl.communication.protocols.protobuff.memory import MemoryCommunicationProtocol
    from p2pfl.learning.dataset.p2pfl_dataset import P2PFLDataset
    from p2pfl.learning.frameworks.pytorch.lightning_model import LightningModel
    from p2pfl.management.logger import logger
    from p2pfl.node import Node
    from p2pfl.settings import Settings
    from p2pfl.utils.topologies import TopologyFactory
    from p2pfl.utils.utils import set_standalone_settings, wait_convergence

    class Softmax(lightning.LightningModule):
        lr_rate = 0.01

        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(784, 10)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.lr_rate)

        def training_step(self, batch, number):
            return torch.nn.functional.cross_entropy(self.linear(batch["image"]), batch["label"])

        def test_step(self, batch, number):
            self.log("test_loss", self.training_step(batch, number))

    set_standalone_settings()
    Settings.general.LOG_LEVEL = "ERROR"
    Settings.training.RAY_ACTOR_POOL_SIZE = os.cpu_count()
    # Models are sent at once, to all.
    Settings.gossip.MODELS_PERIOD = 0.05  # seconds
    Settings.gossip.MODELS_PER_ROUND = devices
    logger.set_level("ERROR")
    nodes = []
    for device in range(devices):
        own = slice(128 * device, 128 * (device + 1))
        train = Dataset.from_dict({"image": x[own], "label": y[own]})
        test = Dataset.from_dict({"image": x[:1], "label": y[:1]})
        data = P2PFLDataset(DatasetDict({"train": train, "test": test}), batch_size=128)
        node = Node(
            LightningModel(Softmax()),
            data,
            protocol=MemoryCommunicationProtocol(),
            addr=f"node-{device}",
        )
        node.start()
        nodes.append(node)
    graph = nx.random_regular_graph(min(4, devices - 1), devices, seed=0)
    TopologyFactory.connect_nodes(nx.to_numpy_array(graph), nodes)
    wait_convergence(nodes, devices - 1, wait=60)
    nodes[0].set_start_learning(rounds=10**6, epochs=1, trainset_size=devices)
    done = 0
    while True:
        time.sleep(0.02)
        if min(node.state.round or 0 for node in nodes) > done:
            done += 1
            tick(devices)
