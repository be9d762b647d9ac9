"""The skeleton that training starts from."""

from pathlib import Path

import torch

from runtime.model import checkpoint, tiny, weights


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    try:
        one = checkpoint.load(tiny.create(tmp_path / "one", version="v1", seed=1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    again = checkpoint.load(tiny.create(tmp_path / "again", version="v2", seed=1))
    assert again.weights_digest == one.weights_digest
    assert (one.version, again.version) == ("v1", "v2")


def test_another_seed_gives_other_weights(tmp_path: Path) -> None:
    folders = [tiny.create(tmp_path / f"{seed}", version="v", seed=seed) for seed in (1, 2)]
    one, other = (weights.digest(weights.find(folder)) for folder in folders)
    assert one != other


def test_the_manifest_names_the_weights(tmp_path: Path) -> None:
    folder = tiny.create(tmp_path / "s", version="v", seed=3)
    manifest = weights.read_json(folder / checkpoint.MANIFEST)
    assert manifest["weights_digest"] == weights.digest([folder / checkpoint.WEIGHTS])


def test_creating_leaves_the_random_state_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    tiny.create(tmp_path / "s", version="v", seed=3)
    assert torch.equal(torch.rand(3), expected)


def test_what_ships_has_the_skeletons_shape(tmp_path: Path, shipped_checkpoint: Path) -> None:
    """Configuration, tokenizer and figures in the code are still those that were trained."""
    folder = tiny.create(tmp_path / "s", version="v", seed=1)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", checkpoint.FIGURES):
        assert weights.read_json(folder / name) == weights.read_json(shipped_checkpoint / name)
    template = "chat_template.jinja"
    assert (folder / template).read_text() == (shipped_checkpoint / template).read_text()
