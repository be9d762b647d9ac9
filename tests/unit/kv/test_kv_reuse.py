"""Reuse rules and the policy over them, by hand-made numbers."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from monitors.labels import Modality
from runtime.kv.reuse import (
    AtRandom,
    Calibrated,
    Candidate,
    CellRule,
    Likeness,
    LowEntropy,
    ReusePolicy,
    Sign,
    likenesses,
    off,
    upper_layers,
)
from runtime.kv.tokens import CODE

A, V = Modality.AUDIO, Modality.VIDEO


def unread() -> Any:
    raise AssertionError("K and V were read though nothing asked for them")


def entry(layer: int, modality: Modality, nats: float, place: bytes = b"") -> Candidate:
    return Candidate(layer, modality, nats, place, unread)


def at_distance(distance: float, nats: float = 0.1) -> Candidate:
    return Candidate(1, V, nats, b"", lambda: like(distance))


def like(distance: float) -> Likeness:
    return Likeness((distance, 0.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0))


def relative_distances(keys: torch.Tensor, values: torch.Tensor) -> list[float]:
    found = likenesses(keys, values)
    return [math.nan if one is None else one.distance for one in found]


def aliased(policy: ReusePolicy, modality: Modality, nats: np.ndarray) -> list[int]:
    return policy.aliased_layers(CODE[modality], nats, b"", unread)


def policy(**thresholds: float) -> ReusePolicy:
    rule = LowEntropy({Modality(m): t for m, t in thresholds.items()})
    return ReusePolicy("on", rule, layers=(1, 3))


def test_only_upper_layers_of_pairs_alias_but_not_the_last_nor_the_talkers() -> None:
    assert upper_layers(layers=8, talker_layer=5) == (1, 3)
    assert upper_layers(layers=6, talker_layer=3) == (1,)
    assert upper_layers(layers=2, talker_layer=None) == ()


def test_a_block_aliases_only_if_every_token_is_below_in_the_layer_below() -> None:
    nats = np.array([[0.1, 0.1], [0.9, 0.9], [0.1, 0.36], [0.0, 0.0]], np.float32)
    assert aliased(policy(audio=0.35), A, nats) == [1]


def test_undefined_entropy_never_permits_reuse() -> None:
    nats = np.full((4, 2), np.nan, np.float32)
    assert aliased(policy(audio=9.0), A, nats) == []
    above = Calibrated({(layer, A): CellRule(Sign.ABOVE, -1.0) for layer in (1, 3)})
    assert aliased(ReusePolicy("on", above, (1, 3)), A, nats) == []
    assert aliased(off("uncalibrated"), A, np.zeros((4, 2), np.float32)) == []


def test_the_random_control_takes_its_share_of_entries_whatever_their_entropy() -> None:
    rule, n = AtRandom(0.5), 4000
    places = [index.to_bytes(8, "little") for index in range(n)]
    picks = {
        layer: [rule.picks(entry(layer, V, 1.3, place)) for place in places] for layer in (1, 3)
    }
    assert np.mean(picks[1]) == pytest.approx(0.5, abs=4 * 0.5 / n**0.5)
    assert np.mean(np.equal(picks[1], picks[3])) == pytest.approx(0.5, abs=4 * 0.5 / n**0.5)
    assert [rule.picks(entry(1, A, 0.0, place)) for place in places] == picks[1]
    assert [AtRandom(0.5, 1).picks(entry(1, V, 1.3, p)) for p in places] != picks[1]
    assert np.mean([AtRandom(0.1).picks(entry(1, Modality.TEXT, 0.0, p)) for p in places]) < 0.13


def test_the_random_control_too_needs_a_defined_entropy() -> None:
    nats = np.array([[0.1, np.nan], [0.1, 0.1], [1.3, 1.3], [0.0, 0.0]], np.float32)
    certain = ReusePolicy("on", AtRandom(1.0), layers=(1, 3))
    assert aliased(certain, V, nats) == [3]
    assert certain.on
    assert certain.threshold(1, V) is None


# ---------------------------------------------------------------- calibrated cells
def test_each_layer_and_modality_has_its_own_sign_and_threshold() -> None:
    rule = Calibrated({(1, A): CellRule(Sign.BELOW, 0.3), (3, A): CellRule(Sign.ABOVE, 0.3)})
    both = ReusePolicy("on", rule, layers=(1, 3))
    assert aliased(both, A, np.full((4, 2), 0.2, np.float32)) == [1]
    assert aliased(both, A, np.full((4, 2), 0.4, np.float32)) == [3]
    assert aliased(both, V, np.full((4, 2), 0.2, np.float32)) == []
    assert (both.threshold(1, A), both.threshold(1, V)) == (0.3, None)


def test_the_threshold_itself_belongs_to_above() -> None:
    for sign, takes in ((Sign.BELOW, False), (Sign.ABOVE, True)):
        assert CellRule(sign, 0.3).picks(entry(1, A, 0.3)) is takes


def test_the_guard_keeps_a_block_that_is_far_off_whatever_its_entropy() -> None:
    guarded = CellRule(Sign.BELOW, 0.5, guard=0.25)
    assert guarded.picks(at_distance(0.25))
    assert not guarded.picks(at_distance(0.26))
    assert not guarded.picks(at_distance(math.inf))
    assert not guarded.picks(at_distance(math.nan))
    assert CellRule(Sign.BELOW, 0.5).picks(at_distance(9.0))


def test_k_and_v_are_read_only_where_entropy_lets_pass() -> None:
    assert not CellRule(Sign.BELOW, 0.5, guard=0.25).picks(entry(1, A, 0.6))
    with pytest.raises(AssertionError):
        CellRule(Sign.BELOW, 0.5, guard=0.25).picks(entry(1, A, 0.4))


def test_k_and_v_of_a_block_are_read_once_for_all_layers() -> None:
    read = []

    def alike() -> list[Likeness | None]:
        read.append(1)
        return [None, like(0.1), like(9.0), like(0.3)]

    rule = Calibrated({(layer, A): CellRule(Sign.BELOW, 0.5, guard=0.2) for layer in (1, 3)})
    both, nats = ReusePolicy("on", rule, (1, 3)), np.zeros((4, 2), np.float32)
    assert both.aliased_layers(CODE[A], nats, b"", alike) == [1]
    assert len(read) == 1


def layers(*factors: float) -> torch.Tensor:
    return torch.tensor(factors)[:, None, None, None] * torch.ones(4, 2, 8)


def test_the_distance_is_the_worse_of_k_and_v_over_the_size_of_its_own() -> None:
    same = layers(1, 1, 1)
    assert relative_distances(same, same)[1:] == [0.0, 0.0]
    assert math.isnan(relative_distances(same, same)[0])
    assert relative_distances(same, layers(1, 2, 2))[1:] == pytest.approx([0.5, 0.0])
    assert relative_distances(layers(3, 1, 1), same)[1:] == pytest.approx([2.0, 0.0])
    assert relative_distances(layers(0, 0, 1), layers(1, 1, 0))[1:] == [0.0, math.inf]


def test_the_distance_of_what_is_no_number_is_none() -> None:
    found = relative_distances(layers(1, math.nan), layers(1, 1))[1]
    assert math.isnan(found)
    assert not CellRule(Sign.BELOW, 0.5, guard=1e9).picks(at_distance(found))


def test_no_two_rules_share_cached_blocks() -> None:
    rules = [
        LowEntropy(dict.fromkeys(Modality, 0.4)),
        LowEntropy(dict.fromkeys(Modality, 0.4 + 1e-9)),
        AtRandom(0.5),
        AtRandom(0.5, seed=1),
        Calibrated({}),
        Calibrated({(1, A): CellRule(Sign.BELOW, 0.4)}),
        Calibrated({(1, A): CellRule(Sign.ABOVE, 0.4)}),
        Calibrated({(1, A): CellRule(Sign.BELOW, 0.4 + 1e-9)}),
        Calibrated({(1, A): CellRule(Sign.BELOW, 0.4, guard=1.0)}),
        Calibrated({(1, V): CellRule(Sign.BELOW, 0.4)}),
        Calibrated({(3, A): CellRule(Sign.BELOW, 0.4)}),
    ]
    policies = [off("native"), *(ReusePolicy("on", rule, layers=(1,)) for rule in rules)]
    policies.append(ReusePolicy("on", rules[0], layers=(1, 3)))
    assert len({policy.digest for policy in policies}) == len(policies)
