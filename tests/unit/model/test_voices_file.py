"""`voices.json`: what is known of the voices of these very weights, and sentences for the rest."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from monitors.detectors.speaking_time import VoiceModel
from monitors.detectors.syllables import Language
from runtime.model import checkpoint
from runtime.model.shipped import SHIPPED
from runtime.model.voices import VOICES_FILE, Voices, load, write
from runtime.model.weights import WEIGHTS, CheckpointError, digest

PACE = {
    "start": 0.1, "syllable": 0.2, "word": 0.0, "minor": 0.3, "major": 0.5, "bias": 0.0,
    "spread": [None, 0.1, 0.1, 0.1, 0.1], "kinds": ["minor_pause"], "rows": 40,
}  # fmt: skip


def written(folder: Path, pace: dict[str, Any], weights_digest: str = "w") -> Path:
    voices = {"Anna": {"end_db": -40.0, "paces": {"en": pace}}}
    file = {"weights_digest": weights_digest, "voices": voices}
    (folder / VOICES_FILE).write_bytes(msgspec.json.encode(file))
    return folder


def test_a_checkpoint_without_the_file_has_voices_that_nobody_knows(tmp_path: Path) -> None:
    assert load(tmp_path, "w") == {}


def test_a_voice_is_found_by_its_name_in_small_letters(tmp_path: Path) -> None:
    found = load(written(tmp_path, PACE), "w")
    assert list(found) == ["anna"]
    assert found["anna"].paces[Language.ENGLISH].syllable == 0.2


def test_voices_of_other_weights_are_not_used_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert load(written(tmp_path, PACE, "other"), "w") == {}
    assert "is of other weights" in caplog.text


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"weights_digest": "w"}'])
def test_a_file_that_cannot_be_read_is_refused_in_a_sentence(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / VOICES_FILE).write_bytes(content)
    with pytest.raises(CheckpointError, match="remove the file, then fit them again"):
        load(tmp_path, "w")


@pytest.mark.parametrize(
    "change", [{"spread": [0.1, 0.1, 0.1, 0.1, 0.0]}, {"spread": [0.1]}, {"word": 1e999}]
)
def test_a_voice_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError):
        load(written(tmp_path, PACE | change), "w")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    model = VoiceModel(end_db=-40.0, tail_s=0.1)
    write(tmp_path, Voices(weights_digest="w", voices={"anna": model}))
    assert load(tmp_path, "w") == {"anna": model}
    assert [path.name for path in tmp_path.iterdir()] == [VOICES_FILE]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_voice_that_ships_is_known(name: str) -> None:
    folder = SHIPPED[name]
    found = load(folder, digest([folder / WEIGHTS]))
    assert set(found) == {"aiden", "chelsie", "ethan"}
    for model in found.values():
        assert model.end_db is not None
        assert model.paces[Language.ENGLISH].word == pytest.approx(0.1, abs=0.005)


def test_a_loaded_checkpoint_knows_its_voices(shipped_checkpoint: Path) -> None:
    assert checkpoint.load(shipped_checkpoint).voices["ethan"].known
