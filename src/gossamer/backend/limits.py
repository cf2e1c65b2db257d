"""Sizes from which a way of computing pays, with the measurements that they come from.

They were measured on two cores with AVX-512, with softmax regression on MNIST.
"""

from __future__ import annotations

import torch

ELEMENTS_PER_THREAD = 50_000
"""Elements of a kernel call below which a further thread costs more than it gains.

Waking a thread takes about 0.1 ms.
"""

GRADIENT_WEIGHTS = 1 << 16
"""Elements of one model above which matrix products are faster than the gradient kernel.

The kernel reads all weights again for every eight samples, so they have to stay in cache: 256 KB.
"""

LEVEL_SAMPLES = 1 << 20
"""Elements of the training samples from which they are also kept as bytes.

Fewer (4 MB as float32) stay in the processor's cache, where reading bytes gains nothing.
"""

KERNEL_POWER = 256
"""Largest p of the kernels. Above it, few elements are within reach of their column's largest."""

BLOCK_ELEMENTS = 80_000
"""Elements that plain torch works on at a time, so that float64 copies (640 KB) stay in cache."""

LARGEST_PRODUCT_POWER = 31
"""Largest p whose float32 powers plain torch computes by products; log and exp are faster above."""

SPARSE_BELOW = {torch.float32: 6, torch.float64: 16}
"""Weights are sparse if less than one in this many may be nonzero, by the dtype of the rows.

In float32 sums of rows take up to half the time of torch's sparse product, and no memory besides
their result; in float64 they are slower.
"""

LEVEL_ROWS = 300
"""Samples in which the levels of bytes are looked for. More take longer and find no others."""

LEVEL_GROUPS = 64
"""Most groups of elements with levels of their own, such as colours. Fitting one takes 0.1 ms."""

CHOICE_TURNS = 9
"""Calls of each implementation when one is chosen. All of them together take half a second."""

CHOICE_MARGIN = 1.15
"""An implementation is replaced by a less preferred one that is faster by this factor.

Repeated measurements on a busy machine differ by less.
"""

CHOICE_ELEMENTS = 40_000
"""Elements of the small operations that are measured: 160 KB, which stay in the L2 cache."""

CHOICE_BYTES = 1 << 25
"""Size of the rows that `gather` and sums are measured with: more than the inner caches hold."""
