"""Copies on a stream of their own, on a real CUDA device."""

import pytest
import torch

from runtime.kv.prefetch import SideStream

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_what_lands_is_what_was_sent_and_is_known_to_be_there() -> None:
    device = torch.device("cuda")
    packed = torch.randint(0, 255, (64, 4096), dtype=torch.uint8)
    copy = SideStream(device).start(packed)
    assert torch.equal(copy.landed().cpu(), packed)
    torch.cuda.synchronize()
    assert copy.done()


def test_a_large_copy_is_not_done_as_it_sets_out_and_what_reads_it_waits() -> None:
    device = torch.device("cuda")
    packed = torch.ones(1 << 30, dtype=torch.uint8)
    copy = SideStream(device).start(packed)
    late = not copy.done()
    assert int(copy.landed()[-1024:].sum()) == 1024
    assert late


def test_the_memory_of_a_copy_in_use_is_not_handed_to_the_next() -> None:
    device = torch.device("cuda")
    stream = SideStream(device)
    for value in range(1, 50):
        landed = stream.start(torch.full((1 << 22,), value, dtype=torch.uint8)).landed()
        busy = torch.randn(1024, 1024, device=device)
        for _ in range(8):
            busy = busy @ busy / 1024
        total = landed.sum() + busy.sum().to(torch.int64) * 0
        del landed
        assert int(total) == value * (1 << 22)
