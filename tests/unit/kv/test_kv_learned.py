"""The learned rule: what it sees, what it refuses, and that its words name its weights."""

import math

import numpy as np
import pytest

from monitors.labels import Modality
from runtime.kv.learned import INPUTS, MOST_PARAMETERS, Learned, Net, inputs, unflatten
from runtime.kv.reuse import Candidate, Likeness

A, V = Modality.AUDIO, Modality.VIDEO
WIDTH = 3


def like(distance: float = 0.5) -> Likeness:
    return Likeness((distance, 0.2), (0.9, 0.8), (4.0, 3.0), (2.0, 0.0))


def entry(modality: Modality = A, nats: float = 0.1, distance: float = 0.5) -> Candidate:
    return Candidate(1, modality, nats, b"", lambda: like(distance), nats / 2, 2 * nats)


def net(level: float = 0.0, **changes: np.ndarray) -> Net:
    """Harm grows with the first input, the entropy."""
    hidden = np.zeros((INPUTS, WIDTH))
    hidden[0, 0] = 1.0
    parts = {
        "centre": np.zeros(INPUTS),
        "spread": np.ones(INPUTS),
        "hidden": hidden,
        "bias": np.zeros(WIDTH),
        "out": np.array([5.0, 0.0, 0.0]),
    }
    return Net(**(parts | changes), level=level)


def test_a_net_sees_entropies_and_how_like_k_and_v_are() -> None:
    seen = inputs(entry())
    assert seen.shape == (INPUTS,)
    assert seen[:3] == pytest.approx([0.1, 0.05, 0.2])
    assert seen[3:] == pytest.approx(
        [*np.log([0.5, 0.2]), 0.9, 0.8, *np.log([4.0, 3.0]), math.log(2.0), math.log(1e-6)]
    )


def test_the_harm_is_that_of_one_hidden_layer_by_hand() -> None:
    seen = np.linspace(-1.0, 1.0, INPUTS)
    shifted = net(0.5, centre=np.full(INPUTS, 0.25), spread=np.full(INPUTS, 2.0))
    raw = 5.0 * math.tanh((-1.0 - 0.25) / 2.0) + 0.5
    assert shifted.harm(seen) == pytest.approx(math.log1p(math.exp(raw)))


def test_what_is_foretold_to_harm_more_than_the_limit_never_aliases() -> None:
    mild, harmful = (net().harm(inputs(entry(nats=nats))) for nats in (0.1, 0.9))
    rule = Learned({(1, A): net()}, (mild + harmful) / 2)
    assert rule.picks(entry(nats=0.1))
    assert not rule.picks(entry(nats=0.9))


def test_a_cell_without_a_net_never_aliases() -> None:
    assert Learned({(1, A): net()}, 9.0).picks(entry(A))
    assert not Learned({(1, A): net()}, math.inf).picks(entry(V))


def test_the_guard_forbids_what_was_not_verified() -> None:
    rule = Learned({(1, A): net()}, 9.0, guard=0.6)
    assert rule.picks(entry(distance=0.6))
    assert not rule.picks(entry(distance=0.7))


@pytest.mark.parametrize("nats", [math.nan, math.inf])
def test_where_the_harm_is_no_number_nothing_aliases(nats: float) -> None:
    far = entry(distance=math.nan) if math.isnan(nats) else entry(nats=math.nan)
    assert not Learned({(1, A): net(hidden=np.ones((INPUTS, WIDTH)))}, 1e9).picks(far)


def test_inputs_beyond_all_training_move_the_harm_no_further() -> None:
    far, further = np.full(INPUTS, 1e3), np.full(INPUTS, 1e6)
    gentle = net(hidden=np.full((INPUTS, WIDTH), 1e-3))
    assert gentle.harm(far) == gentle.harm(further)


def test_weights_written_and_read_are_the_same_net() -> None:
    made = net(0.7, bias=np.arange(WIDTH, dtype=float))
    again = unflatten(made.flat)
    assert (again.flat == made.flat).all()
    assert again.harm(inputs(entry())) == made.harm(inputs(entry()))
    assert made.parameters == 2 * INPUTS + WIDTH * (INPUTS + 2) + 1 <= MOST_PARAMETERS


def test_weights_that_make_no_net_are_refused() -> None:
    flat = net().flat
    for broken in (flat[:-1], flat[: 2 * INPUTS + 1], np.full_like(flat, math.nan)):
        with pytest.raises(ValueError, match=r"net|numbers"):
            unflatten(broken)
    with pytest.raises(ValueError, match="above 0"):
        net(spread=np.zeros(INPUTS))
    wide = MOST_PARAMETERS // INPUTS
    with pytest.raises(ValueError, match="over 10000"):
        Net(
            np.zeros(INPUTS), np.ones(INPUTS), np.zeros((INPUTS, wide)), np.zeros(wide),
            np.zeros(wide), 0.0,
        )  # fmt: skip


def test_no_two_learned_rules_share_cached_blocks() -> None:
    cells = {(1, A): net()}
    rules = [
        Learned(cells, 0.1),
        Learned(cells, 0.2),
        Learned(cells, 0.1, guard=1.0),
        Learned({(1, V): net()}, 0.1),
        Learned({(1, A): net(1e-9)}, 0.1),
    ]
    assert len({rule.words for rule in rules}) == len(rules)
    assert Learned({(1, A): net()}, 0.1).words == rules[0].words
