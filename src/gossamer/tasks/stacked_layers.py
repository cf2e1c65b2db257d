"""Layers of a stack of devices under vmap, computed as one operation of the whole stack.

vmap would expand the weights of a linear layer for every row of a transposed input, and call
torch's kernel of attention once per device.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


class _AttentionByProducts:
    """Make torch compute attention by products, which vmap has rules for, in some threads.

    torch's setting is one for all threads: the first one that enters sets it, and the last one that
    leaves restores it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._kernel = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._kernel.enter_context(sdpa_kernel(SDPBackend.MATH))
            self._inside += 1

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._kernel.close()


ATTENTION_BY_PRODUCTS = _AttentionByProducts()


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute F.linear by a product whose gradient has the layout of the weights.

    For a stack of devices that is much faster than the gradient of F.linear itself.

    Args:
        input: Rows [rows, features], or any number of axes before the features.
        weight: [outputs, features].
        bias: [outputs], or None.
    """
    if input.dim() < 2 or weight.dim() != 2 or (bias is not None and bias.dim() != 1):
        return F.linear(input, weight, bias)
    if input.dim() == 2:
        if bias is None:
            return (weight @ input.mT).mT.contiguous()
        return torch.addmm(bias[:, None], weight, input.mT).mT.contiguous()
    rows = input.reshape(-1, input.shape[-1])
    product = rows @ weight.mT
    if bias is not None:
        product = product + bias
    return product.view(*input.shape[:-1], product.shape[-1])


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **more: Any,
) -> Tensor:
    """Compute F.scaled_dot_product_attention with torch's kernel for all devices at once.

    Args:
        query: [batch, …, length, width].
        key: As in torch, like the others.
        value: [batch, …, positions, width].
        attn_mask: Which positions are seen, or what is added to their weights.
        dropout_p: Probability of dropout; with it, torch computes attention by products.
        is_causal: True if a position sees those before it alone.
        more: Further arguments of torch's function.
    """
    if dropout_p or query.dim() < 4:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, **more
        )
    found: Tensor = _Attention.apply(query, key, value, attn_mask, is_causal, more)
    return found


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    is_causal: bool = False,
    **more: Any,
) -> tuple[Tensor, Tensor | None] | None:
    """Compute F.multi_head_attention_forward for the self-attention of a transformer.

    Args:
        query: [length, batch, width]. The arguments are those of torch's function.
        key: The same tensor.
        value: The same tensor.
        embed_dim_to_check: Width.
        num_heads: Number of heads.
        in_proj_weight: [3·width, width].
        in_proj_bias: [3·width].
        bias_k: None.
        bias_v: None.
        add_zero_attn: False.
        dropout_p: Probability of dropout of the weights.
        out_proj_weight: [width, width].
        out_proj_bias: [width].
        training: True if there is dropout.
        key_padding_mask: None.
        need_weights: False.
        attn_mask: [length, length].
        use_separate_proj_weight: False.
        is_causal: True if the mask is causal.
        more: None of the further arguments is used.

    Returns:
        What torch's function returns; None if it is not the self-attention of a transformer.
    """
    same = query is key and key is value and query.dim() == 3
    special = need_weights or add_zero_attn or use_separate_proj_weight
    unusual = (bias_k, bias_v, key_padding_mask, more.get("static_k"), more.get("static_v"))
    masked = attn_mask is not None and attn_mask.dim() != 2
    if special or masked or not same or in_proj_weight is None:
        return None
    if any(tensor is not None for tensor in unusual):
        return None
    length, batch, width = query.shape
    parts = linear(query.transpose(0, 1), in_proj_weight, in_proj_bias).chunk(3, -1)
    q, k, v = (part.view(batch, length, num_heads, -1).transpose(1, 2) for part in parts)
    if attn_mask is not None and attn_mask.is_floating_point():
        attn_mask = attn_mask.to(query.dtype)
    dropout = dropout_p if training else 0.0
    mixed = attention(q, k, v, attn_mask, dropout, is_causal and attn_mask is None)
    rows = mixed.transpose(1, 2).reshape(batch, length, width)
    outputs = linear(rows, out_proj_weight, out_proj_bias)
    return outputs.transpose(0, 1), None


class _Attention(torch.autograd.Function):
    """F.scaled_dot_product_attention; for a stack, one call with the devices in the batch."""

    @staticmethod
    def forward(
        query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, more: Any
    ) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, mask, 0.0, causal, **more)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: gradients are those of the operations in `vmap`."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> tuple[Tensor, int]:
        devices = info.batch_size
        query, key, value, mask = _leading(in_dims[:4], given[:4])
        causal, more = given[4:]
        q = _folded(query, in_dims[0], devices)
        k = _folded(key, in_dims[1], devices)
        v = _folded(value, in_dims[2], devices)
        if mask is not None and (in_dims[3] is not None or mask.dim() == query.dim() - 1):
            if in_dims[3] is None:
                mask = mask.expand(devices, *mask.shape)
            # One mask per device, or per device and sample.
            missing = query.dim() - mask.dim()
            mask = mask.reshape(devices, *[1] * missing, *mask.shape[1:])
            mask = mask.expand(devices, query.shape[1], *mask.shape[2:]).flatten(0, 1)
        found = F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, **more)
        return found.unflatten(0, (devices, -1)), 0


def _folded(tensor: Tensor, dim: int | None, devices: int) -> Tensor:
    """Return a tensor with the devices as part of the batch."""
    if dim is None:
        tensor = tensor.expand(devices, *tensor.shape)
    return tensor.flatten(0, 1)


def _leading(in_dims: Any, tensors: Any) -> list[Any]:
    """Return tensors with the devices as their first axis."""
    moved = []
    for dim, tensor in zip(in_dims, tensors, strict=True):
        moved.append(tensor if dim is None else tensor.movedim(dim, 0))
    return moved
