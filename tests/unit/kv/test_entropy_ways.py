"""The ways that the bench compares give the entropy that the product gives."""

from types import SimpleNamespace

import pytest
import torch
from transformers import AttentionInterface

from bench import entropy_ways
from bench.ragged import fill
from runtime.kv.formats import PageShape
from runtime.kv.step import PagedStep, Span
from runtime.model.attention import paged_attention

LAYER, SCALE = SimpleNamespace(layer_idx=0), 0.25
FILLED = PageShape(kv_heads=2, head_dim=16, dtype=torch.float32)


@pytest.mark.parametrize("name", ["columns", "explicit", "again"])
def test_every_way_agrees_with_the_product(name: str) -> None:
    entropy_ways.register()
    filled = fill(FILLED, 1, [50, 200, 700], 4)
    spans = [Span(sequence.table, 1) for sequence in filled.running]
    torch.manual_seed(1)
    query, (key, value) = torch.randn(1, 6, 3, 16), torch.randn(2, 1, 2, 3, 16)
    step = PagedStep(filled.kv.pool, spans, sampled=False)
    wanted, _ = paged_attention(LAYER, query, key, value, None, SCALE, step)
    blind = entropy_ways.BlindStep(filled.kv.pool, spans, sampled=False)
    way = AttentionInterface()[f"bench_{name}"]
    found, _ = way(LAYER, query, key, value, None, SCALE, blind)
    assert found == pytest.approx(wanted, abs=1e-5)
    exact = [seen.nats[0, 0] for seen in step.observations]
    assert blind.nats[0].numpy() == pytest.approx(exact, abs=1e-5)
