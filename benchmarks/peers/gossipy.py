"""Adapter of gossipy: a GossipSimulator over a fixed random graph, as in its README."""

THREADS = (1, 2)
NOTES = (
    "gossip learning: each device pushes its model to one random neighbour per round, and a device "
    "that receives one merges it and takes a step; a fixed random graph (it has no other); it "
    "shuffles all samples of a device for each batch; no evaluation"
)


def run(x, y, devices, tick):
    import networkx as nx
    import torch
    from gossipy.core import AntiEntropyProtocol, CreateModelMode, StaticP2PNetwork
    from gossipy.data import DataDispatcher
    from gossipy.data.handler import ClassificationDataHandler
    from gossipy.model.handler import TorchModelHandler
    from gossipy.model.nn import LogisticRegression
    from gossipy.node import GossipNode
    from gossipy.simul import GossipSimulator, SimulationEventReceiver

    class Rounds(SimulationEventReceiver):
        """Count the messages of a round: each one that arrives is one merge and one step."""

        messages = 0

        def update_message(self, failed, msg=None):
            self.messages += not failed

        def update_timestep(self, t):
            tick(self.messages)
            self.messages = 0

        def update_end(self):
            pass

    handler = ClassificationDataHandler(torch.from_numpy(x), torch.from_numpy(y), test_size=0)
    dispatcher = DataDispatcher(handler, n=devices, eval_on_user=False)
    graph = nx.random_regular_graph(min(4, devices - 1), devices, seed=0)
    model = TorchModelHandler(
        net=LogisticRegression(784, 10),
        optimizer=torch.optim.SGD,
        optimizer_params={"lr": 0.01},
        criterion=torch.nn.CrossEntropyLoss(),
        local_epochs=0,  # one batch
        batch_size=128,
        create_model_mode=CreateModelMode.MERGE_UPDATE,
    )
    nodes = GossipNode.generate(
        dispatcher,
        StaticP2PNetwork(devices, nx.to_numpy_array(graph)),
        model_proto=model,
        round_len=1,
        sync=True,
    )
    simulator = GossipSimulator(nodes, dispatcher, delta=1, protocol=AntiEntropyProtocol.PUSH)
    simulator.add_receiver(Rounds())
    simulator.init_nodes(seed=0)
    simulator.start(n_rounds=10**9)
