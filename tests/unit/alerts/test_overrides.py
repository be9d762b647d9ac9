"""Overrides that can be, and those that are refused with what to do instead."""

import pytest

from alerts.overrides import Override, OverrideError, check
from alerts.parts import Part
from monitors.contract import ALL_CLASSES, SessionClass


def override(**more: object) -> Override:
    given = {
        "at": 0.0, "until": 60.0, "version": "v1", "classes": ALL_CLASSES,
        "parts": {Part.MEDIA: 1}, "actor": "ann", "reason": "a fair",
    }  # fmt: skip
    return Override(**{**given, **more})


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"parts": {Part.MEDIA: 0, Part.KV: 1, Part.SHED: 1, Part.ADMISSION: 1}},
        {"classes": (SessionClass.BATCH,), "parts": {Part.MEDIA: 2, Part.ADMISSION: 1}},
    ],
)
def test_what_can_be_held_is_held(more: dict[str, object]) -> None:
    check(override(**more))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"parts": {}}, "at least one part"),
        ({"classes": ()}, "none is not all"),
        ({"until": 0.0}, "more than 0 s"),
        ({"parts": {Part.MEDIA: 3}}, "media has no rung 3"),
        ({"parts": {Part.KV: -1}}, "kv has no rung -1"),
        (
            {"classes": (SessionClass.BATCH,), "parts": {Part.KV: 1, Part.SHED: 1}},
            "kv and shed: the engine has one for all sessions",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(more: dict[str, object], why: str) -> None:
    with pytest.raises(OverrideError, match=why):
        check(override(**more))


def test_no_override_of_some_classes_holds_the_ladder_itself() -> None:
    assert override().holds(Part.MEDIA, now=59.0)
    assert not override().holds(Part.MEDIA, now=60.0)
    assert not override().holds(Part.KV, now=0.0)
    assert not override(classes=(SessionClass.BATCH,)).holds(Part.MEDIA, now=0.0)


@pytest.mark.parametrize(("ladder", "held"), [(2, 2), (0, 1)])
def test_some_classes_are_served_no_better_than_the_ladder_has_the_others(
    ladder: int, held: int
) -> None:
    batch = override(classes=(SessionClass.BATCH,), parts={Part.MEDIA: 1})
    rungs = {**dict.fromkeys(Part, 0), Part.MEDIA: ladder}
    assert batch.over(rungs, SessionClass.BATCH, now=0.0)[Part.MEDIA] == held
    assert batch.over(rungs, SessionClass.INTERACTIVE, now=0.0)[Part.MEDIA] == ladder
