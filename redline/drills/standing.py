"""How things stand, for whoever asks why the system did not answer."""

from monitors.rungs import shown
from redline.control.ladder_api import LadderStatus
from redline.drills.watch import Sight


def seen_instead(sight: Sight) -> tuple[str, ...]:
    """Who decides and what fires, then who serves at which level, in sentences."""
    return (*_decided(sight), *_served(sight))


def _decided(sight: Sight) -> list[str]:
    control = sight.control
    if control is None:
        return ["the control plane does not answer"]
    told = [
        f"the ladder is {control.ladder_mode}, the rules are evaluated by {control.rule_source}"
    ]
    told += [sentence for ladder in control.ladders for sentence in _held(ladder)]
    if control.firing is None:
        return [*told, "nobody can tell what fires"]
    fires = ", ".join(f"{one.alert} {one.version or ''}".strip() for one in control.firing)
    return [*told, f"fires: {fires or 'nothing'}"]


def _held(ladder: LadderStatus) -> list[str]:
    by_hand = [] if ladder.override is None else [f"{ladder.version} is held by hand"]
    return by_hand + [
        f"{ladder.version}: {part.part} stays at {part.word}: {part.holds[0]}"
        for part in ladder.parts
        if part.rung and part.holds
    ]


def _served(sight: Sight) -> list[str]:
    if sight.observed is None:
        return ["the data plane does not answer"]
    return [
        f"{one.version}: {one.state}, {one.weight} % of new sessions, level {shown(one.level)}"
        for one in sight.observed.residents
    ]
