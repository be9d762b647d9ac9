"""Which models a data plane serves after a restart."""

import errno
import os
import stat
from pathlib import Path

import pytest

from runtime.models import ModelsFile
from runtime.settings import ResidentSpec

GIVEN = tuple(
    ResidentSpec(name=name, version=version, checkpoint=Path("/m") / version)
    for name, version in (("a", "v2"), ("b", "v1"))
)
NEW = GIVEN[0].model_copy(update={"version": "v3", "checkpoint": Path("/m/v3")})


def stored(folder: Path) -> None:
    models = ModelsFile(folder)
    models.specs(GIVEN)
    models.store(NEW, "l1")


def test_what_was_loaded_is_served_again(tmp_path: Path) -> None:
    stored(tmp_path)
    models = ModelsFile(tmp_path)
    assert models.specs(GIVEN) == {"a": NEW, "b": GIVEN[1]}
    assert models.loaded["a"].load == "l1"


def test_what_is_stored_is_on_the_disk_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []  # whether each was a folder
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(stat.S_ISDIR(os.fstat(file).st_mode))
    )
    stored(tmp_path)
    assert synced == [False, True]


def test_a_model_that_is_refused_for_a_disk_that_fails_half_way_is_not_served_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = ModelsFile(tmp_path)
    models.specs(GIVEN)
    failed: list[int] = []

    def fail_once_on_a_folder(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) and not failed:
            failed.append(descriptor)
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail_once_on_a_folder)
    with pytest.raises(OSError, match="Input/output"):
        models.store(NEW, "l1")
    assert ModelsFile(tmp_path).specs(GIVEN) == {spec.name: spec for spec in GIVEN}


@pytest.mark.parametrize("update", [{"pool_mb": 99.0}, {"checkpoint": Path("/m/other")}])
def test_settings_that_were_changed_since_win(tmp_path: Path, update: dict[str, object]) -> None:
    stored(tmp_path)
    changed = GIVEN[0].model_copy(update=update)
    assert ModelsFile(tmp_path).specs((changed, GIVEN[1]))["a"] == changed


def test_two_residents_never_get_one_version(tmp_path: Path) -> None:
    stored(tmp_path)
    other = GIVEN[1].model_copy(update={"version": "v3"})
    assert ModelsFile(tmp_path).specs((GIVEN[0], other))["a"] == GIVEN[0]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": {}}', '{"a": 1}'])
def test_a_file_that_cannot_be_read_leaves_the_settings(tmp_path: Path, text: str) -> None:
    (tmp_path / "models.json").write_text(text)
    assert ModelsFile(tmp_path).specs(GIVEN)["a"] == GIVEN[0]
