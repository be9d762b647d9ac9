"""An engine process that refuses its checkpoint: its sentence arrives whole, and is no crash."""

import sys
from pathlib import Path

import pytest

from monitors.redlines import RedLines
from runtime.residents import local
from runtime.residents.local import LocalResident, ResidentLost, load_timeout_s
from runtime.residents.refusal import REFUSED_EXIT, ResidentRefused
from runtime.settings import ResidentSpec

LONG = "/".join(["", *["folder-with-a-long-name"] * 150])
SENTENCE = f"{LONG}: 1 of 2 weight files are missing: x; restore the folder"


def a_resident(folder: Path, script: str, device: str = "auto") -> LocalResident:
    lines = folder / "lines.json"
    lines.write_text(RedLines().model_dump_json())
    return LocalResident(
        ResidentSpec(name="a", version="v2", checkpoint=folder, device=device),
        state_dir=folder,
        lines=lines,
        min_epoch=0,
        on_snapshot=lambda _: None,
        worker=(sys.executable, "-c", f"import sys\n{script}"),
    )


def says(sentence: str, code: int) -> str:
    return f"sys.stderr.write('loading\\n' + {sentence!r} + '\\n'); sys.exit({code})"


async def test_a_refusal_is_the_engines_own_sentence_however_long_its_path(
    tmp_path: Path,
) -> None:
    with pytest.raises(ResidentRefused) as refused:
        await a_resident(tmp_path, says(SENTENCE, REFUSED_EXIT)).load()
    assert str(refused.value) == f"resident 'a' cannot serve: {SENTENCE}"


async def test_any_other_end_is_a_crash_that_quotes_the_log(tmp_path: Path) -> None:
    with pytest.raises(ResidentLost, match="ended with code 1; the end of its log: ") as lost:
        await a_resident(tmp_path, says(SENTENCE, 1)).load()
    assert not isinstance(lost.value, ResidentRefused)
    assert SENTENCE in str(lost.value)


async def test_a_line_without_end_keeps_its_front(tmp_path: Path) -> None:
    with pytest.raises(ResidentRefused) as refused:
        await a_resident(tmp_path, says("front" + "x" * 30_000, REFUSED_EXIT)).load()
    assert str(refused.value).startswith("resident 'a' cannot serve: frontxx")
    assert len(str(refused.value)) < 10_000


async def test_the_engine_is_told_its_device(tmp_path: Path) -> None:
    script = f"sys.stderr.write(' '.join(sys.argv)); sys.exit({REFUSED_EXIT})"
    with pytest.raises(ResidentRefused, match="--device cuda:1 "):
        await a_resident(tmp_path, script, device="cuda:1").load()


async def test_an_engine_that_hangs_at_its_start_is_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LOAD_FLOOR_S", 0.3)
    with pytest.raises(ResidentLost, match="not ready after 0 s"):
        await a_resident(tmp_path, "import time; time.sleep(60)").load()


def test_big_weights_have_more_time_to_load(tmp_path: Path) -> None:
    assert load_timeout_s(tmp_path / "nowhere") == local.LOAD_FLOOR_S
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "gone.safetensors").symlink_to(tmp_path / "nowhere")
    assert load_timeout_s(tmp_path) == local.LOAD_FLOOR_S
    for number in (1, 2):
        with (tmp_path / f"model-{number}.safetensors").open("wb") as shard:
            shard.truncate(35_000_000_000)  # sparse: no disk is used
    assert load_timeout_s(tmp_path) == pytest.approx(local.LOAD_FLOOR_S + 1400.0)
