"""Host pages brought a layer ahead: exact whenever they arrive, hits only where in time."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import Tensor

from runtime.kv.cache import KvCache
from runtime.kv.formats import Format
from runtime.kv.prefetch import Copy, side_stream
from runtime.kv.sequence import Sequence
from tests.unit.kv.tiny_text import LAYERS, A, T, TinyText, V, cache, opened, prompt

MIXED = prompt((T, 20), (V, 100), (A, 40), (T, 50))


@dataclass
class Carried:
    """A copy of which the test says whether it has arrived."""

    name: int
    packed: Tensor
    on_time: bool
    log: list[tuple[str, int]]

    def done(self) -> bool:
        return self.on_time

    def landed(self) -> Tensor:
        self.log.append(("landed", self.name))
        return self.packed


@dataclass
class Carrier:
    """Copies are numbered as they set out; those of `late` are not there when asked for."""

    late: frozenset[int] = frozenset()
    log: list[tuple[str, int]] = field(default_factory=list)

    def start(self, packed: Tensor) -> Copy:
        name = sum(what == "started" for what, _ in self.log)
        self.log.append(("started", name))
        return Carried(name, packed.clone(), name not in self.late, self.log)


def half_away(tiny: TinyText, carrier: Carrier | None, **more: object) -> tuple[KvCache, Sequence]:
    """A prefilled sequence, every second movable block of it on the host."""
    kv = cache(transport=carrier, **more)
    running = opened(kv, MIXED)
    tiny.prefill(kv, running)
    kv.pool.moves.offload(np.unique(running.table.matrix()[:, 1:-1:2]))
    assert kv.pool.records.on_host.any()
    return kv, running


def answer(tiny: TinyText, carrier: Carrier | None, **more: object) -> tuple[Tensor, float]:
    """A step's hidden state, and the share of attention that it found in time."""
    kv, running = half_away(tiny, carrier, **more)
    (hidden,) = tiny.paged(kv, [(running, [5])], observed=True)
    return hidden, float(kv.residency.hit.sum() / kv.residency.lookup.sum())


def forms(tiny: TinyText) -> list[dict[str, object]]:
    subspace = {"storage": Format.SUBSPACE, "subspace": tiny.subspace(3.0)}
    return [{}, {"storage": Format.INT4}, subspace]


def test_brought_pages_of_any_form_read_as_those_on_the_host_and_count_as_hits(
    tiny: TinyText,
) -> None:
    for more in forms(tiny):
        plain, found = answer(tiny, None, **more)
        carrier = Carrier()
        brought, in_time = answer(tiny, carrier, **more)
        assert torch.equal(brought, plain)
        assert found < 0.9
        assert in_time == pytest.approx(1.0)
        assert ("started", LAYERS - 1) in carrier.log


def test_a_page_that_was_waited_for_is_a_miss_and_read_exactly(tiny: TinyText) -> None:
    plain, missed = answer(tiny, None)
    late, found = answer(tiny, Carrier(late=frozenset(range(LAYERS))))
    assert torch.equal(late, plain)
    assert found == pytest.approx(missed)
    some, between = answer(tiny, Carrier(late=frozenset({1})))
    assert torch.equal(some, plain)
    assert missed < between < 1.0


def test_each_layer_sets_out_before_the_one_below_reads(tiny: TinyText) -> None:
    carrier = Carrier()
    answer(tiny, carrier)
    first_landed = [carrier.log.index(("landed", layer)) for layer in range(LAYERS)]
    started = [carrier.log.index(("started", layer)) for layer in range(LAYERS)]
    assert all(started[n + 1] < first_landed[n] for n in range(LAYERS - 1))
    assert started[2] > first_landed[0]  # one ahead, not all at once


def test_with_nothing_on_the_host_nothing_is_brought(tiny: TinyText) -> None:
    carrier = Carrier()
    kv = cache(transport=carrier)
    running = opened(kv, MIXED)
    tiny.prefill(kv, running)
    tiny.paged(kv, [(running, [5])])
    assert carrier.log == []


def test_two_sequences_prefill_and_decode_over_brought_pages(tiny: TinyText) -> None:
    both = []
    for carrier in (None, Carrier()):
        kv, running = half_away(tiny, carrier)
        other = opened(kv, prompt((T, 60), seed=3))
        tiny.paged(kv, [(other, other.tokens.ids.tolist())])
        kv.pool.moves.offload(np.unique(other.table.matrix()[:, :-1]))
        both.append(torch.cat(tiny.paged(kv, [(running, [5]), (other, [6])])))
        both.append(tiny.paged(kv, [(running, [7, 8, 9])])[0])
        assert kv.check() == ()
    assert torch.equal(both[0], both[2])
    assert torch.equal(both[1], both[3])


def test_a_cpu_brings_nothing_ahead() -> None:
    assert side_stream(torch.device("cpu")) is None
