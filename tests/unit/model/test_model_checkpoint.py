import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.utils import logging as transformers_logging

from runtime.model import checkpoint
from runtime.model.checkpoint import Checkpoint, CheckpointError
from runtime.model.thinker import Thinker
from tests.support.checkpoints import edit


def test_version_and_figures_come_from_the_folder(loaded: Checkpoint) -> None:
    assert loaded.version == "tiny-test-1"
    assert loaded.figures.units_per_s == 13.0
    assert loaded.figures.cell == 40
    assert 2e6 < sum(p.numel() for p in loaded.model.parameters()) < 5e6


def test_text_of_the_test_checkpoint_never_ends_by_itself(loaded: Checkpoint) -> None:
    thinker = Thinker(loaded)
    hidden = 5 * torch.randn(1000, loaded.config.thinker_config.text_config.hidden_size)
    logits = thinker.logits(hidden)
    end = logits[:, thinker.eos_id]
    words = logits.isfinite()
    words[:, thinker.eos_id] = False
    mean = logits.masked_fill(~words, 0.0).sum(1) / words.sum(1)
    assert end == pytest.approx(mean, abs=0.2)  # as exact as bfloat16 keeps the row
    assert (logits.argmax(1) != thinker.eos_id).all()


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
    with pytest.raises(CheckpointError, match=r"1 of 2 .* missing: model-2\.safetensors"):
        checkpoint.load(copy)


def test_a_folder_without_our_manifest_is_named_after_itself(copy: Path) -> None:
    (copy / "redline.json").unlink()
    assert checkpoint.load(copy).version == "copy"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such checkpoint folder"):
        checkpoint.load(tmp_path / "nowhere")


def test_another_kind_of_model_is_refused(copy: Path) -> None:
    edit(copy / "config.json", model_type="llama")
    with pytest.raises(CheckpointError, match="'llama'"):
        checkpoint.load(copy)


def test_a_model_without_a_voice_is_refused(copy: Path) -> None:
    edit(copy / "config.json", enable_audio_output=False)
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


def test_a_processor_figure_of_the_wrong_type_is_refused(copy: Path) -> None:
    edit(copy / "preprocessor_config.json", image_mean=None)
    with pytest.raises(CheckpointError, match=r"preprocessor_config\.json: cannot be used"):
        checkpoint.load(copy)


def test_missing_weights_are_named(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    del weights["talker.codec_head.weight"]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"1 weights are missing.*codec_head"):
        checkpoint.load(copy)


def test_weights_of_another_shape_are_refused_in_one_line(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    weights["talker.codec_head.weight"] = torch.zeros(3, 3)
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="do not load") as refused:
        checkpoint.load(copy)
    assert "\n" not in str(refused.value)


def test_a_quantised_checkpoint_is_refused(copy: Path) -> None:
    edit(copy / "config.json", quantization_config={"quant_method": "awq"})
    with pytest.raises(CheckpointError, match="quantised"):
        checkpoint.load(copy)


def test_a_value_of_the_wrong_type_in_the_configuration_is_refused(copy: Path) -> None:
    edit(copy / "config.json", im_end_token_id="end")
    with pytest.raises(CheckpointError, match=r"config\.json: cannot be used.*im_end_token_id"):
        checkpoint.load(copy)


def test_a_manifest_without_a_version_is_refused(copy: Path) -> None:
    (copy / "redline.json").write_text("{}")
    with pytest.raises(CheckpointError, match="names no version"):
        checkpoint.load(copy)


def test_opening_is_silent_and_leaves_the_libraries_as_they_were(
    tiny_checkpoint: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    checkpoint.load(tiny_checkpoint)
    after = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    assert after == before
    assert capfd.readouterr() == ("", "")


def test_weights_that_are_not_used_are_logged(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    weights = load_file(copy / "model.safetensors")
    weights["spare.weight"] = torch.zeros(3)
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    checkpoint.load(copy)
    assert "1 weights are not used: spare.weight" in caplog.text


def test_a_missing_tokenizer_is_refused(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="tokenizer"):
        checkpoint.load(copy)
