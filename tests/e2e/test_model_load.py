"""A new model comes to traffic on a stack that serves: loaded, proved; or refused in a sentence."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.model.shipped import SHIPPED
from tests.support.stack import RunningStack, start_stack, stop_stack, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, lines_file: Path) -> Iterator[RunningStack]:
    running = start_stack(tmp_path_factory.mktemp("state"), lines_file, "--no-prometheus")
    yield running
    assert stop_stack(running) == []


def a_model(folder: Path, name: str) -> Path:
    return Path(shutil.copytree(SHIPPED["tiny-omni-2"], folder / name))


def test_a_damaged_model_is_a_sentence_and_leaves_a_as_it_was(
    stack: RunningStack, tmp_path: Path
) -> None:
    before = stack.resident("a")
    model = a_model(tmp_path, "tiny-omni-bad")
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    for path, words in ((model, "the weights are damaged"), (tmp_path / "no", "no checkpoint")):
        said = stack.cli("rollout", "start", "--yes", "--hurry", "--model", str(path), check=False)
        assert words in said
        assert "Traceback" not in said
    after = stack.resident("a")
    assert (after["version"], after["pid"]) == (before["version"], before["pid"])


def test_a_model_is_loaded_while_b_serves_and_gets_traffic(
    stack: RunningStack, tmp_path: Path, clip: Path
) -> None:
    model = a_model(tmp_path, "tiny-omni-3")
    said = stack.cli(
        "rollout", "start", "--yes", "--hurry", "--model", str(model), "--weight", "50", timeout=180
    )
    assert "starting: " in said
    wait_until(lambda: stack.resident("a")["weight"] == 50, 60)
    assert stack.resident("a")["version"] == "tiny-omni-3"
    shown = stack.cli("rollout", "status")
    assert "the alarm path is proved" in " ".join(shown.split())
    stack.cli("rollout", "rollback")
    wait_until(lambda: stack.resident("a")["weight"] == 0, 60)
