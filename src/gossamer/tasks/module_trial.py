"""What a module returns, how large its layers are, and errors inside it as one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.errors import InputError


@contextmanager
def refusing(name: str, shape: torch.Size, integers: bool) -> Iterator[None]:
    """Turn whatever fails inside a module into one sentence.

    Args:
        name: Name of the module.
        shape: Shape of the batch that it runs on.
        integers: True if the batch has whole numbers.

    Raises:
        InputError: If the block raises anything but an InputError or a lack of memory.
    """
    try:
        yield
    except Exception as error:
        # torch reports a lack of memory as a RuntimeError with this word.
        if isinstance(error, InputError | MemoryError) or "allocate" in str(error):
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        batch = "a batch of whole numbers (int64)" if integers else "a batch"
        accepted = f"one that runs on {batch} of shape {list(shape)}; torch says: {reason}"
        raise InputError("module", name, accepted) from error


@contextmanager
def output_sizes(module: nn.Module) -> Iterator[list[int]]:
    """Collect the elements of the outputs of all layers for the first sample of a batch.

    Args:
        module: The module, which runs inside the block.

    Yields:
        The list that the sizes are appended to.
    """
    sizes: list[int] = []

    def note(layer: nn.Module, inputs: Any, output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        for x in outputs:
            if isinstance(x, Tensor):
                sizes.append(x[:1].numel())

    hooks = [layer.register_forward_hook(note) for layer in module.modules()]
    try:
        yield sizes
    finally:
        for hook in hooks:
            hook.remove()


def output_tensor(outputs: Any, name: str) -> Tensor:
    """Return the tensor that the loss is computed from: the logits, or the first of several.

    Args:
        outputs: What the module returns.
        name: Name of the module.

    Raises:
        InputError: If there is no tensor.
    """
    while isinstance(outputs, tuple | list) and outputs:
        outputs = outputs[0]
    if isinstance(outputs, Mapping):
        outputs = outputs.get("logits")
    outputs = getattr(outputs, "logits", outputs)
    if not isinstance(outputs, Tensor):
        accepted = "a module that returns a tensor, a tuple that begins with one, or `logits`"
        raise InputError("module", f"{name} with outputs {type(outputs)}", accepted)
    return outputs
