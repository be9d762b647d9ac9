"""Ways to get the modality masses of a decode step that the product does not take, and none.

All of them attend over pieces cut without regard to modality, as attention would without entropy.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import AttentionInterface

from runtime.kv.pieces import KINDS, Pieces, cut_batch
from runtime.kv.step import PagedStep, Read
from runtime.model.partial import attend, spread

_ALIGNED = 8  # a fused kernel wants head_dim to grow by this


class BlindStep(PagedStep):
    """Its pieces hold blocks of any modality. `nats` `(spans,)` layer by layer, of a way that
    finds them."""

    nats: list[Tensor]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.nats = []
        assert self.batch is not None, "the ways are for decode steps"
        self.onehot = [self._onehot(read) for read in self.batch.reads]

    def _cut(self) -> Pieces:
        return cut_batch(replace(self._blocks, modality=np.zeros_like(self._blocks.modality)))

    def _onehot(self, read: Read) -> Tensor:
        """Modalities of blocks, `(pieces, width, modalities)`."""
        codes = torch.from_numpy(self._blocks.modality[read.blocks])
        return torch.eye(KINDS)[codes].unflatten(0, (read.shape[0], -1))


# One read: query, keys, values, its bias, modalities, scale -> output, log-sum-exp, and the mass
# of each modality `(pieces, kv_heads, group, modalities)` within a piece.
Way = Callable[
    [Tensor, Tensor, Tensor, Tensor | None, Tensor, float], tuple[Tensor, Tensor, Tensor | None]
]


def none(
    query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, onehot: Tensor, scale: float
) -> tuple[Tensor, Tensor, None]:
    """Attention alone."""
    return *attend(query, keys, values, bias, scale), None


def columns(
    query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, onehot: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Modalities as columns behind V, zeros behind Q and K: the output's columns are masses."""
    dim = values.shape[-1]
    slots = onehot.repeat_interleave(keys.shape[2] // onehot.shape[1], 1).to(values.dtype)
    wide = pad(values, (0, _ALIGNED))
    wide[..., dim : dim + KINDS] = slots[:, None]
    out, lse = attend(pad(query, (0, _ALIGNED)), pad(keys, (0, _ALIGNED)), wide, bias, scale)
    return out[..., :dim].contiguous(), lse, out[..., dim : dim + KINDS].float()


def explicit(
    query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, onehot: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax written out: its weights summed by block, and those by modality."""
    scores = (query @ keys.transpose(-1, -2)).float() * scale
    scores = scores if bias is None else scores + bias
    lse = scores.logsumexp(-1)
    weights = (scores - lse[..., None]).exp()
    mass = weights.unflatten(-1, (onehot.shape[1], -1)).sum(-1) @ onehot[:, None]
    return weights.to(values.dtype) @ values, lse, mass


def again(
    query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, onehot: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """A pass of its own over the keys, behind fused attention."""
    out, lse = attend(query, keys, values, bias, scale)
    blocks, _ = spread(query, keys, bias, lse, scale)
    return out, lse, blocks @ onehot[:, None]


WAYS: dict[str, Way] = {"none": none, "columns": columns, "explicit": explicit, "again": again}


def register() -> None:
    """Make every way known to transformers, under `bench_` and its name."""
    for name, way in WAYS.items():
        AttentionInterface.register(f"bench_{name}", _attention(way))


def _attention(way: Way) -> Callable[..., tuple[Tensor, None]]:
    def attention(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float,
        paged: BlindStep,
        **_: Any,
    ) -> tuple[Tensor, None]:
        layer = module.layer_idx
        paged.write(layer, key[0].transpose(0, 1), value[0].transpose(0, 1))
        grouped = query[0].unflatten(0, (key.shape[1], -1))
        return _attend(way, paged, layer, grouped, scaling)[None], None

    return attention


def _attend(way: Way, step: BlindStep, layer: int, query: Tensor, scale: float) -> Tensor:
    """As the product attends, with the masses a way finds merged like its output."""
    batch = step.batch
    assert batch is not None
    asked = query.permute(2, 0, 1, 3).index_select(0, batch.asks)
    outs, lses, masses = [], [], []
    parts = zip(batch.reads, asked.split(batch.sizes), step.onehot, strict=True)
    for read, part, onehot in parts:
        keys, values = (half.transpose(1, 2) for half in step.read(layer, read))
        out, lse, mass = way(part, keys, values, read.bias, onehot, scale)
        outs.append(out.flatten(1, 2))
        lses.append(lse.flatten(1, 2))
        if mass is not None:
            masses.append(mass.flatten(1, 2))
    share = batch.unseat(batch.seat_lse(torch.cat(lses)).softmax(1))
    if masses:
        mass = torch.cat(masses).mul_(share[:, :, None])
        of_span = batch.summed(mass.flatten(1)).unflatten(1, mass.shape[1:])
        step.nats.append(torch.special.entr(of_span).sum(-1).mean(-1))
    out = torch.cat(outs) * share[:, :, None]
    return batch.summed(out.flatten(1)).unflatten(1, out.shape[1:]).to(query.dtype)
