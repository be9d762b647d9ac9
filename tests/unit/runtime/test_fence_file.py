"""The fence on disk: what was acknowledged is never forgotten, whatever happens in between."""

import errno
import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitors.contract import Route
from runtime.fence import FenceError, FenceFile
from runtime.router import Fence

NAMES = ("a", "b")


def a_fence(leader: int = 0, route: int = 0, **pools: int) -> Fence:
    routed = Route(leader_epoch=leader, route_epoch=route, stable="b", canary="a")
    return Fence(leader_epoch=leader, route=routed, min_pool_epochs=pools)


@given(
    fences=st.lists(
        st.builds(a_fence, st.integers(0, 9), st.integers(0, 9), a=st.integers(0, 9)), max_size=5
    )
)
@settings(max_examples=40, deadline=None)
def test_a_restart_finds_the_last_fence_that_was_stored(fences: list[Fence]) -> None:
    with TemporaryDirectory() as folder:
        file = FenceFile(Path(folder))
        for fence in fences:
            file.store(fence)
        found = FenceFile(Path(folder)).load(a_fence(), NAMES)
        assert found == (fences[-1] if fences else a_fence())
        assert {p.name for p in Path(folder).iterdir()} <= {"fence.json"}


def test_it_is_synced_before_store_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    file = FenceFile(tmp_path)
    file.store(a_fence(1))
    assert synced == [str(tmp_path / "fence.part"), str(tmp_path)]
    file.store(a_fence(1))
    assert len(synced) == 2, "a renewal that changes nothing costs no write"


def test_a_full_disk_is_an_error_and_leaves_the_fence_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = FenceFile(tmp_path)
    file.store(a_fence(1, 1))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            file.store(a_fence(2, 2))
    assert FenceFile(tmp_path).load(a_fence(), NAMES) == a_fence(1, 1)
    file.store(a_fence(2, 2))
    assert FenceFile(tmp_path).load(a_fence(), NAMES) == a_fence(2, 2)


def test_a_write_that_fails_half_way_is_done_again_before_anything_is_taken_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new fence may have its name already when the folder cannot be synced."""
    file = FenceFile(tmp_path)
    file.store(a_fence(1, 1))

    def fail_on_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail_on_folders)
        with pytest.raises(OSError, match="Input/output"):
            file.store(a_fence(2, 2))
    file.store(a_fence(1, 1))
    assert FenceFile(tmp_path).load(a_fence(), NAMES) == a_fence(1, 1)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"leader_epoch": -1}', b"\xff\x00"])
def test_a_broken_fence_stops_the_start_instead_of_being_guessed(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "fence.json").write_bytes(content)
    with pytest.raises(FenceError, match="restore it, or delete it"):
        FenceFile(tmp_path).load(a_fence(), NAMES)


def test_a_fence_of_other_residents_stops_the_start(tmp_path: Path) -> None:
    FenceFile(tmp_path).store(a_fence(1))
    with pytest.raises(FenceError, match=r"names \['a'\]"):
        FenceFile(tmp_path).load(a_fence(), ("b", "c"))
