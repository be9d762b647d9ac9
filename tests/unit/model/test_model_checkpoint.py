import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from runtime.model import checkpoint
from runtime.model.checkpoint import Checkpoint, CheckpointError


@pytest.fixture
def copy(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy"))


def test_version_and_figures_come_from_the_folder(loaded: Checkpoint) -> None:
    assert loaded.version == "tiny-test-1"
    assert loaded.figures.units_per_s == 13.0
    assert loaded.figures.cell == 40
    assert 2e6 < sum(p.numel() for p in loaded.model.parameters()) < 5e6


def test_the_same_seed_gives_the_same_weights(loaded: Checkpoint, tmp_path: Path) -> None:
    torch.set_num_threads(2)
    try:
        again = checkpoint.load(checkpoint.create(tmp_path / "a", version="other", seed=1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert again.weights_digest == loaded.weights_digest
    assert again.version == "other"


def test_another_seed_gives_other_weights(loaded: Checkpoint, tmp_path: Path) -> None:
    other = checkpoint.load(checkpoint.create(tmp_path / "b", version="tiny-test-1", seed=2))
    assert other.weights_digest != loaded.weights_digest


def test_creating_leaves_the_random_state_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    checkpoint.create(tmp_path / "c", version="v", seed=3)
    assert torch.equal(torch.rand(3), expected)


def test_a_sharded_folder_loads_the_same(loaded: Checkpoint, copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    names = sorted(weights)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for shard, members in shards.items():
        save_file({n: weights[n] for n in members}, copy / shard, metadata={"format": "pt"})
    index = {"weight_map": {n: shard for shard, members in shards.items() for n in members}}
    (copy / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, **index}))
    (copy / "model.safetensors").unlink()
    sharded = checkpoint.load(copy).model.state_dict()
    assert all((sharded[n] == w).all() for n, w in loaded.model.state_dict().items())
    (copy / "model-2.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"missing: model-2\.safetensors"):
        checkpoint.load(copy)


def test_a_folder_without_our_manifest_is_named_after_itself(copy: Path) -> None:
    (copy / "redline.json").unlink()
    assert checkpoint.load(copy).version == "copy"


def _edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such checkpoint folder"):
        checkpoint.load(tmp_path / "nowhere")


def test_another_kind_of_model_is_refused(copy: Path) -> None:
    _edit(copy / "config.json", model_type="llama")
    with pytest.raises(CheckpointError, match="'llama'"):
        checkpoint.load(copy)


def test_a_model_without_a_voice_is_refused(copy: Path) -> None:
    _edit(copy / "config.json", enable_audio_output=False)
    with pytest.raises(CheckpointError, match="Talker"):
        checkpoint.load(copy)


def test_broken_json_says_where(copy: Path) -> None:
    (copy / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json: is not JSON"):
        checkpoint.load(copy)


def test_missing_processor_figures_are_named(copy: Path) -> None:
    (copy / "preprocessor_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="sampling_rate"):
        checkpoint.load(copy)


def test_missing_weights_are_named(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    del weights["talker.codec_head.weight"]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"1 weights are missing.*codec_head"):
        checkpoint.load(copy)


def test_a_cut_weight_file_is_refused(copy: Path) -> None:
    path = copy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="do not load"):
        checkpoint.load(copy)


def test_a_missing_tokenizer_is_refused(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="tokenizer"):
        checkpoint.load(copy)
