"""Cross-modal attention entropy, residency and the reuse policy, by hand-made numbers."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from monitors.labels import Modality
from monitors.redlines import EntropyThresholds
from runtime.kv.entropy import EntropyBuffer, cross_modal_entropy
from runtime.kv.residency import ResidencyTable, carriers, residency
from runtime.kv.reuse import (
    CALIBRATION_FILE,
    AtRandom,
    CalibrationError,
    LowEntropy,
    ReusePolicy,
    load_policy,
    off,
    upper_layers,
)
from runtime.kv.tokens import CODE

LIMITS = EntropyThresholds()


def test_entropy_is_ln_of_the_modalities_for_even_mass_and_zero_for_one() -> None:
    mass = torch.tensor([[[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]]])
    nats = cross_modal_entropy(mass, torch.tensor([4, 4]))
    assert nats.tolist() == pytest.approx([math.log(4), 0.0], abs=1e-6)


def test_entropy_is_averaged_over_heads_not_taken_of_their_mean() -> None:
    mass = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    assert cross_modal_entropy(mass, torch.tensor([2])).item() == pytest.approx(0.0, abs=1e-6)


def test_entropy_is_undefined_with_one_modality_in_view() -> None:
    assert cross_modal_entropy(torch.ones(1, 1, 4) / 4, torch.tensor([1])).isnan().all()


def test_the_buffer_grows_in_batch_and_sequence_and_forgets_closed_rows() -> None:
    buffer = EntropyBuffer(layers=2)
    rows = [buffer.open() for _ in range(3)]
    buffer.write(rows[2], 290, np.ones((2, 20), np.float32))
    assert buffer.values.shape[0] >= 3
    assert buffer.values.shape[2] >= 310
    assert np.nansum(buffer.values) == 40
    buffer.close(rows[2])
    assert np.isnan(buffer.values[buffer.open()]).all()


def test_carriers_are_the_fewest_blocks_with_95_percent() -> None:
    assert carriers(np.array([0.1, 0.6, 0.28, 0.02])).tolist() == [1, 2, 0]
    assert carriers(np.array([1.0, 0.0])).tolist() == [0]


def test_residency_weighs_misses_by_their_mass() -> None:
    hit, lookup = residency(
        np.array([0.6, 0.3, 0.08, 0.02]),
        np.array([0, 3, 3, 3]),
        np.array([True, False, True, False]),
    )
    assert lookup == pytest.approx([0.6, 0, 0, 0.38])
    assert hit == pytest.approx([0.6, 0, 0, 0.08])


def test_undefined_entropy_counts_nowhere() -> None:
    table = ResidencyTable(layers=1)
    zero = np.zeros((1, 4))
    nats = np.array([[0.5, np.nan, 0.25]], np.float32)
    table.add(zero, zero, nats, np.array([0, 0, 2], np.int8))
    assert table.entropy_sum.tolist() == [[0.5, 0, 0.25, 0]]
    assert table.entropy_count.tolist() == [[1, 0, 1, 0]]


def test_only_upper_layers_of_pairs_alias_but_not_the_last_nor_the_talkers() -> None:
    assert upper_layers(layers=8, talker_layer=5) == (1, 3)
    assert upper_layers(layers=6, talker_layer=3) == (1,)
    assert upper_layers(layers=2, talker_layer=None) == ()


def policy(**thresholds: float) -> ReusePolicy:
    rule = LowEntropy({Modality(m): t for m, t in thresholds.items()})
    return ReusePolicy("on", rule, layers=(1, 3))


def test_a_block_aliases_only_if_every_token_is_below_in_the_layer_below() -> None:
    nats = np.array([[0.1, 0.1], [0.9, 0.9], [0.1, 0.36], [0.0, 0.0]], np.float32)
    assert policy(audio=0.35).aliased_layers(CODE[Modality.AUDIO], nats, b"") == [1]


def test_undefined_entropy_never_permits_reuse() -> None:
    nats = np.full((4, 2), np.nan, np.float32)
    assert policy(audio=9.0).aliased_layers(CODE[Modality.AUDIO], nats, b"") == []
    assert off("uncalibrated").aliased_layers(0, np.zeros((4, 2), np.float32), b"") == []


def test_the_random_control_takes_its_share_of_entries_whatever_their_entropy() -> None:
    rule, n = AtRandom(0.5), 4000
    places = [index.to_bytes(8, "little") for index in range(n)]
    picks = {
        layer: [rule.picks(layer, Modality.VIDEO, 1.3, place) for place in places]
        for layer in (1, 3)
    }
    assert np.mean(picks[1]) == pytest.approx(0.5, abs=4 * 0.5 / n**0.5)
    assert np.mean(np.equal(picks[1], picks[3])) == pytest.approx(0.5, abs=4 * 0.5 / n**0.5)
    assert [rule.picks(1, Modality.AUDIO, 0.0, place) for place in places] == picks[1]
    assert [AtRandom(0.5, 1).picks(1, Modality.VIDEO, 1.3, p) for p in places] != picks[1]
    assert np.mean([AtRandom(0.1).picks(1, Modality.TEXT, 0.0, p) for p in places]) < 0.13


def test_the_random_control_too_needs_a_defined_entropy() -> None:
    nats = np.array([[0.1, np.nan], [0.1, 0.1], [1.3, 1.3], [0.0, 0.0]], np.float32)
    certain = ReusePolicy("on", AtRandom(1.0), layers=(1, 3))
    assert certain.aliased_layers(CODE[Modality.VIDEO], nats, b"") == [3]
    assert certain.on
    assert certain.threshold(1, Modality.VIDEO) is None


def test_no_two_rules_share_cached_blocks() -> None:
    rules = [
        LowEntropy(dict.fromkeys(Modality, 0.4)),
        LowEntropy(dict.fromkeys(Modality, 0.4 + 1e-9)),
        AtRandom(0.5),
        AtRandom(0.5, seed=1),
    ]
    policies = [off("native"), *(ReusePolicy("on", rule, layers=(1,)) for rule in rules)]
    policies.append(ReusePolicy("on", rules[0], layers=(1, 3)))
    assert len({policy.digest for policy in policies}) == len(policies)


def test_a_checkpoint_without_calibration_runs_without_reuse_and_says_so(tmp_path: Path) -> None:
    found = load_policy(tmp_path, "w", 8, 5, LIMITS)
    assert (found.on, found.state) == (False, "off: uncalibrated")
    assert found.threshold(1, Modality.AUDIO) is None


def test_a_calibration_for_other_weights_is_not_used(tmp_path: Path) -> None:
    (tmp_path / CALIBRATION_FILE).write_text(json.dumps({"weights_digest": "other"}))
    assert not load_policy(tmp_path, "w", 8, 5, LIMITS).on


def test_a_calibration_overrides_the_articles_thresholds_one_by_one(tmp_path: Path) -> None:
    calibration = {"weights_digest": "w", "thresholds": {"audio": 0.2}}
    (tmp_path / CALIBRATION_FILE).write_text(json.dumps(calibration))
    found = load_policy(tmp_path, "w", 8, 5, LIMITS)
    assert found.threshold(1, Modality.AUDIO) == 0.2
    assert found.threshold(3, Modality.TEXT) == LIMITS.text
    assert found.threshold(2, Modality.TEXT) is None
    assert found.digest != off("uncalibrated").digest


def test_a_broken_calibration_stops_the_load_and_names_the_file(tmp_path: Path) -> None:
    (tmp_path / CALIBRATION_FILE).write_text('{"weights": 1}')
    with pytest.raises(CalibrationError, match=CALIBRATION_FILE):
        load_policy(tmp_path, "w", 8, 5, LIMITS)
