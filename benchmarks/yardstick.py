"""The yardstick: D-PSGD softmax regression on MNIST with nothing in the way.

One process, every device's weights in one tensor, closed-form gradients by bmm into preallocated buffers, a fresh
random graph with Metropolis weights each round, mixing by one addmm. No metrics, no records. A framework's job is to
come close to this while doing everything else as well.
"""

from collections.abc import Callable

import torch
from torch import Tensor

BATCH, RATE, DEGREE = 128, 0.01, 4


def yardstick(x: Tensor, y: Tensor, m: int) -> Callable[[], None]:
    """A function that runs one round over m devices. x: pixels [samples, 784] and a column of ones."""
    columns = x.shape[1]
    generator = torch.Generator().manual_seed(0)
    share = len(x) // m
    owner = torch.randperm(len(x), generator=generator)[: share * m].view(m, share)
    w, spare = torch.zeros(m, 10, columns), torch.empty(m, 10, columns)
    xb, logits, grad = (
        torch.empty(m * BATCH, columns),
        torch.empty(m, 10, BATCH),
        torch.empty(m, 10, columns),
    )
    chance = min(1.0, DEGREE / (m - 1))

    def metropolis() -> Tensor:
        u = torch.rand(m, m, generator=generator).triu(1)
        a = ((u > 0) & (u < chance)).float()
        a = a + a.T
        degree = a.sum(1)
        a = a / (1 + torch.maximum(degree[:, None], degree[None, :]))
        return a + torch.diag(1 - a.sum(1))

    def step() -> None:
        nonlocal w, spare
        pick = owner.gather(1, torch.randint(share, (m, BATCH), generator=generator)).view(-1)
        torch.index_select(x, 0, pick, out=xb)
        batch = xb.view(m, BATCH, columns)
        torch.bmm(w, batch.transpose(1, 2), out=logits)
        p = torch.softmax(logits, 1)
        p.scatter_add_(1, y[pick].view(m, 1, BATCH), torch.full((m, 1, BATCH), -1.0))
        torch.bmm(p, batch, out=grad)
        torch.addmm(
            grad.view(m, -1), metropolis(), w.view(m, -1), beta=-RATE / BATCH, out=spare.view(m, -1)
        )
        w, spare = spare, w

    return step
