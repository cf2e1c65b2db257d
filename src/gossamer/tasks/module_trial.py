"""What a trial of a module shows: errors as one sentence, obstacles, sizes of layers, outputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.errors import InputError

_NO_RULE = "not yet implemented the batching rule for "
_DROPOUT = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
# torch has no public way to ask whether a module has hooks.
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_CONVOLUTIONS = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)


def has_convolutions(module: nn.Module) -> bool:
    """Return True if a module has layers that convolve.

    Args:
        module: The module.
    """
    return any(isinstance(part, _CONVOLUTIONS) for part in module.modules())


def has_dropout(module: nn.Module) -> bool:
    """Return True if a module has layers of dropout, whether or not a pass uses them.

    Args:
        module: The module.
    """
    return any(isinstance(part, _DROPOUT) for part in module.modules())


def has_hooks(module: nn.Module) -> bool:
    """Return True if a module has hooks or a forward method of its own.

    Args:
        module: The module.
    """
    return "forward" in vars(module) or any(getattr(module, hooks) for hooks in _HOOKS)


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


def obstacle_of(trial: Callable[[], None]) -> str:
    """Try a module. Return why it must not run as it does, or "" if it may.

    Args:
        trial: A function that runs the module, and raises what `refusing` makes of an error.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            trial()
        except InputError as error:
            _, _, said = error.accepted.rpartition("torch says: ")
            return said.partition(". ")[0]
    for warning in caught:
        _, found, operation = str(warning.message).partition(_NO_RULE)
        if found:
            return f"torch has no batching rule for {operation.split('. ')[0]}"
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return ""


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
