"""The yardstick: D-PSGD for softmax regression on MNIST in plain torch.

One process, the weights of all devices in one tensor, closed-form gradients by bmm into
preallocated buffers, a new random graph with Metropolis weights every round, mixing by one addmm.
No metrics and no records. The other benchmarks compare with it.
"""

from collections.abc import Callable

import torch
from torch import Tensor

BATCH = 128
RATE = 0.01
DEGREE = 4  # mean number of neighbours


def yardstick(x: Tensor, y: Tensor, m: int) -> Callable[[], None]:
    """Return a function that runs one round.

    Args:
        x: Pixels [samples, 784] and a column of ones.
        y: Labels [samples].
        m: Number of devices.
    """
    columns = x.shape[1]
    generator = torch.Generator().manual_seed(0)
    share = len(x) // m
    owner = torch.randperm(len(x), generator=generator)[: share * m].view(m, share)
    w = torch.zeros(m, 10, columns)
    w_next = torch.empty(m, 10, columns)
    xb = torch.empty(m * BATCH, columns)
    logits = torch.empty(m, 10, BATCH)
    grad = torch.empty(m, 10, columns)
    probability = min(1.0, DEGREE / (m - 1))

    def metropolis() -> Tensor:
        u = torch.rand(m, m, generator=generator).triu(1)
        a = ((u > 0) & (u < probability)).float()
        a = a + a.T
        degree = a.sum(1)
        a = a / (1 + torch.maximum(degree[:, None], degree[None, :]))
        return a + torch.diag(1 - a.sum(1))

    def step() -> None:
        nonlocal w, w_next
        pick = owner.gather(1, torch.randint(share, (m, BATCH), generator=generator)).view(-1)
        torch.index_select(x, 0, pick, out=xb)
        batch = xb.view(m, BATCH, columns)
        torch.bmm(w, batch.transpose(1, 2), out=logits)
        p = torch.softmax(logits, 1)
        p.scatter_add_(1, y[pick].view(m, 1, BATCH), torch.full((m, 1, BATCH), -1.0))
        torch.bmm(p, batch, out=grad)
        flat_grad = grad.view(m, -1)
        mixed = w_next.view(m, -1)
        torch.addmm(flat_grad, metropolis(), w.view(m, -1), beta=-RATE / BATCH, out=mixed)
        w, w_next = w_next, w

    return step
