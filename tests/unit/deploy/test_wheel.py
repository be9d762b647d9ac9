"""What the wheel packs besides code."""

from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

from runtime.model.shipped import SHIPPED

ROOT = Path(__file__).parents[3]


def test_the_wheel_holds_the_policy_that_ships() -> None:
    packed = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert "alerts/redline.yaml" in packed


def test_the_wheel_holds_the_shipped_checkpoints_whole() -> None:
    packed = {Path(file.path) for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    for folder in SHIPPED.values():
        shipped = set(folder.iterdir())
        assert folder / "model.safetensors" in shipped
        assert shipped <= packed
