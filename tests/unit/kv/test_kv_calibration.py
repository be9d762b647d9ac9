"""`reuse.json`: what it allows, what it forbids, and sentences for what it cannot mean."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from monitors.labels import Modality
from monitors.redlines import EntropyThresholds
from runtime.kv.calibration import (
    CALIBRATION_FILE,
    Calibration,
    CalibrationError,
    Cell,
    load_policy,
    write,
)
from runtime.kv.learned import INPUTS, Learned
from runtime.kv.reuse import SHADOW_BUDGET_NATS, LowEntropy, ReusePolicy, Sign, off
from runtime.kv.tokens import MODALITIES

LIMITS = EntropyThresholds()
A = Modality.AUDIO


def load(folder: Path) -> ReusePolicy:
    """Of weights "w" with 8 layers; 1 and 3 may alias."""
    return load_policy(folder, "w", 8, 5, LIMITS)


def loaded(folder: Path, **file: Any) -> ReusePolicy:
    (folder / CALIBRATION_FILE).write_bytes(msgspec.json.encode({"weights_digest": "w"} | file))
    return load(folder)


def cell(**changes: Any) -> dict[str, Any]:
    return {"layer": 1, "modality": "audio", "sign": "below", "threshold": 0.4} | changes


def test_a_checkpoint_without_calibration_runs_without_reuse_and_says_so(tmp_path: Path) -> None:
    found = load(tmp_path)
    assert (found.on, found.state) == (False, "off: uncalibrated")
    assert found.threshold(1, A) is None


def test_a_calibration_for_other_weights_is_not_used_and_says_so(tmp_path: Path) -> None:
    found = loaded(tmp_path, weights_digest="other")
    assert not found.on
    assert found.state.startswith("off: uncalibrated")
    assert "other weights" in found.state


def test_a_file_that_names_its_weights_alone_means_the_articles_thresholds(tmp_path: Path) -> None:
    found = loaded(tmp_path, thresholds={})
    article = ReusePolicy("on", LowEntropy({m: LIMITS.of(m) for m in MODALITIES}), (1, 3))
    assert found == article
    assert found.digest == article.digest != off("uncalibrated").digest


def test_a_calibration_overrides_the_articles_thresholds_one_by_one(tmp_path: Path) -> None:
    found = loaded(tmp_path, thresholds={"audio": 0.2})
    assert found.threshold(1, A) == 0.2
    assert found.threshold(3, Modality.TEXT) == LIMITS.text
    assert found.threshold(2, Modality.TEXT) is None


def test_cells_alias_what_they_name_and_nothing_else(tmp_path: Path) -> None:
    found = loaded(tmp_path, cells=[cell(sign="above", guard=0.5)], shadow_budget=0.1)
    assert found.state == "on"
    assert found.threshold(1, A) == 0.4
    assert found.threshold(1, Modality.VIDEO) is found.threshold(3, A) is None
    assert found.shadow_budget == 0.1
    assert loaded(tmp_path, cells=[cell()]).shadow_budget == SHADOW_BUDGET_NATS


def learned(**changes: Any) -> dict[str, Any]:
    """Nets of one hidden unit, whose weights are all the same."""
    cells = [{"layer": 1, "modality": "audio", "weights": [1.0] * (3 * INPUTS + 3)}]
    return {"limit": 0.001, "guard": 1.5, "cells": cells} | changes


def test_a_learned_rule_is_read_with_its_weights(tmp_path: Path) -> None:
    found = loaded(tmp_path, learned=learned())
    assert isinstance(found.rule, Learned)
    assert (found.rule.limit, found.rule.guard) == (0.001, 1.5)
    assert found.rule.nets[1, A].flat.tolist() == [1.0] * (3 * INPUTS + 3)
    assert found.threshold(1, A) is None
    assert found.digest != loaded(tmp_path, learned=learned(limit=0.002)).digest


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ({"learned": learned(), "cells": []}, "both cells and learned"),
        ({"learned": learned(guard=-1.0)}, "guard of -1.0 is no distance"),
        ({"learned": learned(cells=learned()["cells"] * 2)}, "layer 1, audio stands there 2 times"),
        (
            {"learned": learned(cells=[{"layer": 3, "modality": "text", "weights": [1.0] * 5}])},
            "layer 3, text: 5 weights make no net",
        ),
        ({"cells": [cell(layer=2)]}, "layer 2 may not alias on this checkpoint; .*: 1, 3"),
        ({"cells": [cell(), cell()]}, "layer 1, audio stands there 2 times"),
        ({"cells": [cell()], "thresholds": {"text": 0.1}}, "both thresholds and cells"),
        ({"cells": [cell(guard=-1.0)]}, "guard of -1.0 is no distance"),
        ({"cells": [cell(sign="beside")]}, "beside"),
        ({"cells": [cell(modality="smell")]}, "smell"),
        ({"cells": [cell(threshold=None)]}, "Expected `float`"),
        ({"shadow_budget": -0.1}, "no number of nats"),
        ({"epsilon": 1}, "epsilon"),
    ],
)
def test_a_file_that_cannot_be_meant_stops_the_load_and_says_where(
    tmp_path: Path, file: dict[str, Any], says: str
) -> None:
    with pytest.raises(CalibrationError, match=f"{CALIBRATION_FILE}: .*{says}.*calibrate again"):
        loaded(tmp_path, **file)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff\xfe", b'{"weights": 1}'])
def test_a_broken_file_stops_the_load_and_is_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / CALIBRATION_FILE).write_bytes(text)
    with pytest.raises(CalibrationError, match=CALIBRATION_FILE):
        load(tmp_path)


def test_what_is_written_is_read_again_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    path = tmp_path / CALIBRATION_FILE
    path.write_text("what stood there before")
    cells = (Cell(layer=3, modality=A, sign=Sign.ABOVE, threshold=0.123456, guard=1.5),)
    write(path, Calibration(weights_digest="w", cells=cells))
    assert load(tmp_path).threshold(3, A) == 0.123456
    assert [file.name for file in tmp_path.iterdir()] == [CALIBRATION_FILE]
    assert msgspec.json.decode(path.read_bytes(), type=Calibration).cells == cells
