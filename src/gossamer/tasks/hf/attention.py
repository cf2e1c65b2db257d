"""Attention of transformers for a stack of devices.

The attention masks of transformers are left out where no token is masked, which is a branch on
values: `torch.func.vmap` cannot run it. Here a mask is always made, through the interfaces that
transformers has for attention of one's own. Matrix products and softmax are also faster stacked
than `scaled_dot_product_attention`, and their dropout is an ordinary `F.dropout`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gossamer.errors import InputError
from gossamer.tasks.hf import packages

NAME = "gossamer"
"""Name of the attention within transformers."""

_NOT_SUPPORTED = ("softcap", "s_aux", "position_bias")  # terms that few models add


def use(model: Any) -> None:
    """Let a model use this attention, or its own plain one if it takes no other.

    Args:
        model: A model of transformers.
    """
    _register()
    try:
        model.set_attn_implementation(NAME)
    except ValueError:  # a model with a fixed attention
        model.set_attn_implementation("eager")


@cache
def _register() -> None:
    transformers = packages.load("transformers")
    transformers.AttentionInterface.register(NAME, attention)
    transformers.AttentionMaskInterface.register(NAME, attention_mask)


def attention_mask(*args: Any, **kwargs: Any) -> Tensor:
    """Return the mask of transformers: 0 where a token is seen, a large negative number elsewhere.

    Args:
        args: As in `transformers.masking_utils.eager_mask`.
        kwargs: The same.
    """
    kwargs["allow_is_bidirectional_skip"] = False
    mask: Tensor = packages.load("transformers.masking_utils").eager_mask(*args, **kwargs)
    return mask


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Compute attention: softmax(scaling·q·kᵀ + mask)·v.

    Args:
        module: The layer.
        query: [batch, heads, length, size].
        key: [batch, heads or fewer, length, size]; a head of it serves several queries.
        value: Like key.
        attention_mask: What is added to the products.
        scaling: Factor of the products; default 1/√size.
        dropout: Probability of dropout of the weights in training.
        kwargs: What else transformers passes.

    Returns:
        The values [batch, length, heads, size] and the weights.

    Raises:
        InputError: If the layer asks for a term that is not supported.
    """
    for term in _NOT_SUPPORTED:
        if kwargs.get(term) is not None:
            raise InputError("model", f"attention with {term}", "a model without it")
    shared_by = query.shape[1] // key.shape[1]
    if shared_by > 1:
        key = key.repeat_interleave(shared_by, 1)
        value = value.repeat_interleave(shared_by, 1)
    if scaling is None:
        scaling = query.shape[-1] ** -0.5
    products = (query @ key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        products = products + attention_mask
    weights = F.dropout(torch.softmax(products, -1), dropout, module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights
