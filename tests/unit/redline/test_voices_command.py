"""`redline voices`: its lines, its file, and sentences for finding nothing."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from monitors.detectors.speaking_time import Pace, VoiceModel
from monitors.detectors.syllables import Language
from redline import voices
from redline.cli import app
from runtime.model.voices import VOICES_FILE, Voices, load
from runtime.quality.speaking import VoiceReport, VoicesReport

run = CliRunner().invoke
PACE = Pace(
    start=0.1,
    syllable=0.2,
    word=0.0,
    minor=0.3,
    major=0.5,
    bias=0.0,
    spread=(None, 0.12, 0.1, 0.08, 0.05),
    kinds=frozenset(),
    rows=200,
)
KNOWN = VoiceModel(end_db=-38.2, tail_s=0.12, paces={Language.ENGLISH: PACE})


def report(model: VoiceModel, withdrawn: tuple[str, ...] = ()) -> VoicesReport:
    voice = VoiceReport(
        name="anna",
        model=model,
        verified=200,
        unfinished=1,
        withdrawn=withdrawn,
        half_found=197,
    )
    file = Voices(weights_digest="w" * 32, voices={"anna": model})
    return VoicesReport(version="v1", file=file, voices=(voice,))


def told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, found: VoicesReport, *options: str
) -> tuple[int, str]:
    monkeypatch.setattr(voices, "run", lambda *_: found)
    said = run(app, ["voices", "--model", str(folder), *options])
    return said.exit_code, " ".join(said.output.split())


def test_known_voices_are_written_and_said_in_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = told(tmp_path, monkeypatch, report(KNOWN), "--json", str(tmp_path / "all.json"))
    assert code == 0
    assert "anna en 0.200 0.000 - 12 10 8 5 -38 dB 120" in said
    assert "anna: of 200 other texts, cut in half, 197 are told; 1 never ended" in said
    assert load(tmp_path, "w" * 32) == {"anna": KNOWN}
    assert b'"half_found": 197' in (tmp_path / "all.json").read_bytes()


def test_a_dry_run_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(tmp_path, monkeypatch, report(KNOWN), "--dry-run")[0] == 0
    assert not (tmp_path / VOICES_FILE).exists()


def test_rules_that_whole_speech_broke_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = VoiceModel(end_db=-38.2)
    _, said = told(tmp_path, monkeypatch, report(some, ("no_tail", "short")))
    assert "given up, for whole ones broke it: no_tail, short" in said


def test_voices_that_follow_no_rule_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = told(tmp_path, monkeypatch, report(VoiceModel()))
    assert code == 1
    assert "no voice of v1 is regular enough" in said
    assert not (tmp_path / VOICES_FILE).exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--texts", "de"), "no texts are called de: choose from en, zh, words"),
        (("--texts", " "), "no texts are named"),
        (("--texts", "words", "--count", "3"), "3 texts are too few to know a voice by"),
    ],
)
def test_what_cannot_be_asked_is_said_in_a_sentence(
    shipped_checkpoint: Path, options: tuple[str, ...], sentence: str
) -> None:
    said = run(app, ["voices", "--model", str(shipped_checkpoint), "--dry-run", *options])
    assert said.exit_code == 2
    assert sentence in " ".join(said.output.split())
