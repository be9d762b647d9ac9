import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from runtime.model import checkpoint, requirements, weights
from runtime.model.checkpoint import Checkpoint
from runtime.model.requirements import ACTIVATION_FLOOR, Need
from runtime.model.weights import CheckpointError, Sizes
from tests.support.checkpoints import edit

GB = 10**9


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails the test where a weight is read."""
    monkeypatch.setattr(weights, "read", lambda shards: pytest.fail("weights were read"))


def _flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def _write(path: Path, header: dict[str, Any], data_bytes: int) -> Path:
    """A safetensors file whose data is a hole."""
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw)
    os.truncate(path, 8 + len(raw) + data_bytes)
    return path


def _one(dtype: str, size: int) -> dict[str, Any]:
    return {"w": {"dtype": dtype, "shape": [size], "data_offsets": [0, size]}}


# ---------------------------------------------------------------- integrity
def test_weights_of_the_declared_digest_load(loaded: Checkpoint, copy: Path) -> None:
    edit(copy / "redline.json", weights_digest=loaded.weights_digest)
    assert checkpoint.load(copy).weights_digest == loaded.weights_digest


@pytest.mark.usefixtures("untouched")
def test_a_flipped_bit_is_refused_before_a_weight_is_read(loaded: Checkpoint, copy: Path) -> None:
    edit(copy / "redline.json", weights_digest=loaded.weights_digest)
    path = copy / "model.safetensors"
    _flip(path, path.stat().st_size - 5)
    with pytest.raises(CheckpointError) as refused:
        checkpoint.load(copy)
    for part in (str(copy), loaded.weights_digest, weights.digest([path]), "download it again"):
        assert part in str(refused.value)


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("left", [4, 1000, -1])
def test_cut_weights_are_refused_by_their_digest(loaded: Checkpoint, copy: Path, left: int) -> None:
    edit(copy / "redline.json", weights_digest=loaded.weights_digest)
    path = copy / "model.safetensors"
    os.truncate(path, left if left > 0 else path.stat().st_size + left)
    with pytest.raises(CheckpointError, match=rf"digest is .*says {loaded.weights_digest}"):
        checkpoint.load(copy)


@pytest.mark.usefixtures("untouched")
def test_without_a_digest_a_cut_file_is_refused_by_its_header(copy: Path) -> None:
    path = copy / "model.safetensors"
    size = path.stat().st_size
    os.truncate(path, size - 1)
    with pytest.raises(CheckpointError, match=rf"cut off: it has {size - 1} bytes of {size}"):
        checkpoint.load(copy)
    os.truncate(path, 1000)
    with pytest.raises(CheckpointError, match="cut off inside its header"):
        checkpoint.load(copy)


def test_a_file_longer_than_its_header_says_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path / "w.safetensors", _one("F32", 8), 9)
    with pytest.raises(CheckpointError, match="too long"):
        weights.measure([path])


@pytest.mark.parametrize("header", [{"w": {}}, {"w": 1}, [], {"w": {"data_offsets": [0, 4]}}])
def test_a_header_that_makes_no_sense_is_refused(tmp_path: Path, header: Any) -> None:
    path = _write(tmp_path / "w.safetensors", header, 4)
    with pytest.raises(CheckpointError, match="header is damaged"):
        weights.measure([path])


def test_a_loaded_model_does_not_change_with_its_file(copy: Path) -> None:
    model = checkpoint.load(copy).model
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    path = copy / "model.safetensors"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\x11" * (size - size // 2))
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())


# ---------------------------------------------------------------- shards
def _index(folder: Path, *names: str) -> None:
    content = {"weight_map": {f"w{place}": name for place, name in enumerate(names)}}
    (folder / weights.INDEX).write_text(json.dumps(content), encoding="utf-8")


def test_missing_shards_are_named_and_counted(tmp_path: Path) -> None:
    names = [f"model-{number}.safetensors" for number in range(6)]
    _index(tmp_path, *names)
    (tmp_path / names[0]).touch()
    with pytest.raises(CheckpointError) as refused:
        weights.find(tmp_path)
    assert f"5 of 6 weight files are missing: {', '.join(names[1:4])} and 2 more" in str(
        refused.value
    )


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/x.safetensors", "a/x.safetensors", "..", "", "x.bin"]
)
def test_an_index_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (tmp_path / "x.safetensors").touch()
    _index(folder, "model.safetensors", name)
    with pytest.raises(CheckpointError, match="its own folder"):
        weights.find(folder)


def test_an_index_without_a_map_is_refused(tmp_path: Path) -> None:
    (tmp_path / weights.INDEX).write_text("{}", encoding="utf-8")
    with pytest.raises(CheckpointError, match="no weight_map"):
        weights.find(tmp_path)


def test_only_the_verified_files_are_loaded(copy: Path) -> None:
    """An index and a single file side by side: what was digested is what runs."""
    found = load_file(copy / "model.safetensors")
    save_file({n: w + 1 for n, w in found.items()}, copy / "shard.safetensors")
    _index(copy, "shard.safetensors")
    opened = checkpoint.load(copy)
    assert opened.weights_digest == weights.digest([copy / "shard.safetensors"])
    name = "talker.codec_head.weight"
    assert torch.equal(opened.model.state_dict()[name], (found[name] + 1).float())


# ---------------------------------------------------------------- sizes and precision
def test_sizes_follow_the_type_that_runs(tmp_path: Path) -> None:
    tensors = {
        "a": torch.zeros(5, 3, dtype=torch.bfloat16),
        "b": torch.zeros(2),
        "n": torch.zeros(4, dtype=torch.int64),
    }
    save_file(tensors, tmp_path / "w.safetensors", metadata={"format": "pt"})
    sizes = weights.measure([tmp_path / "w.safetensors"])
    assert sizes.stored is torch.bfloat16
    assert sizes.bytes_as(torch.bfloat16) == 17 * 2 + 32
    assert sizes.bytes_as(torch.float32) == 17 * 4 + 32


def test_a_type_that_the_engine_does_not_run_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path / "w.safetensors", _one("F8_E4M3", 8), 8)
    with pytest.raises(CheckpointError, match="F8_E4M3"):
        weights.measure([path])


def test_the_stored_type_is_that_of_most_bytes() -> None:
    assert Sizes({torch.float32: 3, torch.float16: 5}, 0).stored is torch.float32


@pytest.mark.parametrize(
    ("asked", "runs_in"), [(None, torch.float32), (torch.bfloat16, torch.bfloat16)]
)
def test_bfloat16_on_disk_runs_in_float32_on_a_cpu(
    tiny_checkpoint: Path, asked: torch.dtype | None, runs_in: torch.dtype
) -> None:
    opened = checkpoint.load(tiny_checkpoint, dtype=asked)
    stored = load_file(tiny_checkpoint / "model.safetensors")
    assert {weight.dtype for weight in stored.values()} == {torch.bfloat16}
    assert {weight.dtype for weight in opened.model.parameters()} == {runs_in}
    assert all(torch.equal(w.bfloat16(), stored[n]) for n, w in opened.model.state_dict().items())


def test_buffers_stay_exact_whatever_the_weights_are(
    loaded: Checkpoint, tiny_checkpoint: Path
) -> None:
    exact = dict(loaded.model.named_buffers())
    found = dict(checkpoint.load(tiny_checkpoint, dtype=torch.bfloat16).model.named_buffers())
    assert any("inv_freq" in name for name in found)
    for name, buffer in found.items():
        assert buffer.dtype == exact[name].dtype, name
        assert torch.equal(buffer, exact[name]), name


# ---------------------------------------------------------------- memory
@pytest.mark.usefixtures("untouched")
def test_too_big_a_checkpoint_is_refused_by_its_header(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "digest", lambda shards: pytest.fail("60 GB were read"))
    monkeypatch.setattr(requirements, "free_host_bytes", lambda: 8 * GB)
    path = _write(copy / "model.safetensors", _one("BF16", 60 * GB), 60 * GB)
    assert path.stat().st_size > 60 * GB
    with pytest.raises(CheckpointError) as refused:
        checkpoint.load(copy, pool_bytes=5 * GB)
    for part in ("128.60 GB", "120.00 GB weights as float32", "5.00 GB KV pool", "8.00 GB are"):
        assert part in str(refused.value)


@pytest.mark.parametrize("spare", [0, -1])
def test_what_just_fits_is_taken(spare: int) -> None:
    need = Need(weights=2 * GB, dtype=torch.float32, pool=GB)
    assert need.total == 3 * GB + ACTIVATION_FLOOR
    if spare < 0:
        with pytest.raises(CheckpointError, match="free some"):
            requirements.refuse_too_big(Path("m"), need, need.total + spare, "CPU")
    else:
        requirements.refuse_too_big(Path("m"), need, need.total + spare, "CPU")


def test_activations_are_a_share_of_the_weights_and_never_nothing() -> None:
    assert Need(0, torch.float32).activations == ACTIVATION_FLOOR
    assert Need(70 * GB, torch.bfloat16).activations == 2.1 * GB


def test_the_machine_has_some_memory_free() -> None:
    assert 0 < requirements.free_bytes(torch.device("cpu")) < 1e15


Group = Callable[..., None]


@pytest.fixture
def group(tmp_path: Path) -> Group:
    """Writes one control group: `group(path, limit, used, version=2, cache=...)`."""

    def write(path: str, limit: int | str, used: int, *, version: int = 2, cache: int = 0) -> None:
        folder = tmp_path / path
        folder.mkdir(parents=True, exist_ok=True)
        names = {1: ("limit_in_bytes", "usage_in_bytes"), 2: ("max", "current")}[version]
        (folder / f"memory.{names[0]}").write_text(f"{limit}\n")
        (folder / f"memory.{names[1]}").write_text(f"{used}\n")
        stat = "total_inactive_file" if version == 1 else "inactive_file"
        (folder / "memory.stat").write_text(f"anon 7\n{stat} {cache}\n")

    return write


def _left(tmp_path: Path, membership: str) -> int | None:
    (tmp_path / "cgroup").write_text(membership)
    return requirements.cgroup_free_bytes(tmp_path, tmp_path / "cgroup")


def test_the_tightest_control_group_counts(tmp_path: Path, group: Group) -> None:
    group("pod", 1000, 400, cache=100)
    group("pod/engine", 5000, 100)
    group("pod/engine/own", "max", 100)
    assert _left(tmp_path, "0::/pod/engine/own\n") == 700


def test_a_control_group_without_a_limit_sets_none(tmp_path: Path, group: Group) -> None:
    group("own", "max", 100)
    assert _left(tmp_path, "0::/own\n") is None
    assert requirements.cgroup_free_bytes(tmp_path, tmp_path / "nowhere") is None


def test_control_groups_of_the_first_version_count_too(tmp_path: Path, group: Group) -> None:
    group("memory", 1000, 900, version=1, cache=50)
    assert _left(tmp_path, "4:memory:/outside/of/us\n1:cpu:/x\n0::/\n") == 150


def test_a_group_over_its_limit_has_nothing_left(tmp_path: Path, group: Group) -> None:
    group("own", 100, 130)
    assert _left(tmp_path, "0::/own\n") == 0


# ---------------------------------------------------------------- devices
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_missing_accelerator_is_a_clear_sentence(tiny_checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match=r"finds 0 CUDA devices here.*or use the CPU"):
        checkpoint.load(tiny_checkpoint, "cuda")


@pytest.mark.parametrize("name", ["toaster", "meta"])
def test_a_device_of_another_kind_is_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match=name):
        requirements.open_device(name)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_an_accelerator_runs_the_stored_type(tiny_checkpoint: Path) -> None:
    model = checkpoint.load(tiny_checkpoint, "cuda").model
    assert {(w.dtype, w.device.type) for w in model.parameters()} == {(torch.bfloat16, "cuda")}
    free = requirements.free_bytes(torch.device("cuda"))
    with pytest.raises(CheckpointError, match="on the CUDA"):
        checkpoint.load(tiny_checkpoint, "cuda", pool_bytes=free)
