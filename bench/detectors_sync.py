"""How well the clocks and the lips of a clip are judged: recall, precision and cost (S4.3).

Every clip with a wrong clock is a real file, decoded as the gateway does; so is every film of a
talker. A share comes with its exact 95 % interval.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import av

from bench.board import Figure, options, show
from bench.proportions import recall, upper_bound
from monitors.contract import MediaRung
from monitors.detectors.finding import Finding, examine
from monitors.intervals import exact_interval
from monitors.labels import Detector, Judgement
from monitors.redlines import LadderLines
from runtime.media import sync
from runtime.media.fidelity import fidelity_of
from runtime.media.glimpses import Glimpses
from tests.faults import lips_corpus, meters, timing_corpus
from tests.faults.lips_corpus import Talk
from tests.faults.talking_head import Scene
from tests.support import media
from tests.unit.media.decoding import decoded

FULL = fidelity_of(MediaRung.FULL, LadderLines())

BUDGET_MS = 5.0  # of CPU a second of media, for all detectors together
RED_LINE = 0.005
_TOLERATED_MS = 60.0  # of an estimate, to call it right


@dataclass
class Tally:
    """Judgements of one detector over items of one kind."""

    judgements: list[Judgement] = field(default_factory=list[Judgement])
    cpu_s: float = 0.0
    media_s: float = 0.0

    def add(self, finding: Finding, seconds: float) -> None:
        self.judgements.append(finding.judgement)
        self.cpu_s += finding.cpu_s
        self.media_s += seconds

    def count(self, *wanted: Judgement) -> int:
        return sum(judgement in wanted for judgement in self.judgements)

    @property
    def items(self) -> int:
        return len(self.judgements)


def figures(quick: bool) -> list[Figure]:
    """All of this bench."""
    return [*timeline(quick), *lips(quick)]


# ---------------------------------------------------------------- time stamps
def timeline(quick: bool) -> Iterator[Figure]:
    """Recall of each kind of wrong clock, and what clean clips are taken for."""
    each = 4 if quick else 60
    faulty: list[Tally] = []
    for kind in timing_corpus.FAULTS:
        count = each if kind.seconds < 10.0 else each // 2
        told = _judged(timing_corpus.clips(kind, count), Detector.TIMELINE, kind.seconds)
        faulty.append(told)
        target = 1.0 if kind.desync else None
        yield _share(f"timeline: hard recall, {kind.name}", told, Judgement.HARD, target=target)
        any_grade = (Judgement.HARD, Judgement.SOFT)
        yield _share(f"timeline: hard or soft, {kind.name}", told, *any_grade, target=1.0)
    clean: list[Tally] = []
    for kind in timing_corpus.CLEAN:
        told = _judged(timing_corpus.clips(kind, 4 if quick else 80), Detector.TIMELINE, 8.0)
        clean.append(told)
        yield _share(f"timeline: soft on clean, {kind.name}", told, Judgement.SOFT)
    ragged = _judged(timing_corpus.clips(timing_corpus.RAGGED, each), Detector.TIMELINE, 8.0)
    yield _share(f"timeline: hard on {timing_corpus.RAGGED.name}", ragged, Judgement.HARD)
    yield from _clean("timeline", _together(clean))
    hits, wrong = (_together(part).count(Judgement.HARD) for part in (faulty, clean))
    yield _precision("timeline", hits, wrong)
    yield _cost("timeline", _together([*faulty, *clean]))


# ---------------------------------------------------------------- lips
def lips(quick: bool) -> Iterator[Figure]:
    """Recall on talkers by the length of the clip, and what clean clips are taken for."""
    scenes = lips_corpus.scenes(8 if quick else 160)
    apart = {seconds: Tally() for seconds in lips_corpus.LENGTHS}
    names = ("in step", "dubbed", "no mouth in the picture", "a level meter")
    clean = {name: Tally() for name in names}
    errors: list[float] = []
    for scene in scenes:
        for talk in lips_corpus.apart(scene):
            finding = _lips(talk)
            apart[scene.seconds].add(finding, scene.seconds)
            errors += [(fault.value or 0.0) - talk.offset_ms for fault in finding.faults]
        for name, talks in (("in step", lips_corpus.in_step), ("dubbed", lips_corpus.dubbed)):
            for talk in talks(scene):
                clean[name].add(_lips(talk), scene.seconds)
    for talk in lips_corpus.faceless(scenes):
        clean["no mouth in the picture"].add(_lips(talk), talk.scene.seconds)
    for screen in meters.screens(len(scenes)):
        finding = _judged_lips(_glimpses(screen.film()), screen.sound())
        clean["a level meter"].add(finding, screen.seconds)
    yield from _lips_told(apart, errors)
    yield from _lips_clean(clean)
    hits = sum(told.count(Judgement.HARD) for told in apart.values())
    wrong = sum(told.count(Judgement.HARD) for told in clean.values())
    yield _precision("lips", hits, wrong)
    yield _cost("lips", _together((*apart.values(), *clean.values())))


def _lips_told(apart: dict[float, Tally], errors: list[float]) -> Iterator[Figure]:
    for seconds, told in apart.items():
        yield _share(f"lips: hard recall, {seconds:g} s of a talker", told, Judgement.HARD)
        yield _share(f"lips: abstained, {seconds:g} s of a talker", told, Judgement.ABSTAINED)
    right = sum(abs(error) <= _TOLERATED_MS for error in errors)
    bar = f"lips: offsets told within {_TOLERATED_MS:g} ms, of {len(errors)}"
    yield recall(bar, right, len(errors), None, "")


def _lips_clean(clean: dict[str, Tally]) -> Iterator[Figure]:
    for name, told in clean.items():
        yield _share(f"lips: abstained on clean, {name}", told, Judgement.ABSTAINED)
        yield _share(f"lips: soft on clean, {name}", told, Judgement.SOFT)
    yield from _clean("lips", _together(clean.values()))


def _lips(talk: Talk) -> Finding:
    """As the gateway finds it. Each film is decoded once, for all sounds that it gets."""
    return _judged_lips(_seen(talk.scene, talk.film), talk.sound())


def _judged_lips(seen: Glimpses, pcm: media.Pcm) -> Finding:
    sound = FULL.sound(pcm, media.CLIP_HZ)
    return examine(Detector.LIP_SYNC, partial(sync.judge, seen, sound))


_SEEN: dict[Scene, Glimpses] = {}  # of the scene at hand


def _seen(scene: Scene, film: Callable[[], bytes]) -> Glimpses:
    if scene not in _SEEN:
        _SEEN.clear()
        _SEEN[scene] = _glimpses(film())
    return _SEEN[scene]


def _glimpses(film: bytes) -> Glimpses:
    glimpses = Glimpses()
    with av.open(io.BytesIO(film), "r") as container:
        for frame in container.decode(video=0):
            glimpses.feed(frame, (frame.time or 0.0) * 1000.0)
    return glimpses


# ---------------------------------------------------------------- in words
def _judged(clips: Iterable[bytes], detector: Detector, seconds: float) -> Tally:
    tally = Tally()
    for clip in clips:
        tally.add(_finding(clip, detector), seconds)
    return tally


def _finding(clip: bytes, detector: Detector) -> Finding:
    (finding,) = (f for f in decoded(clip).report.findings if f.detector is detector)
    return finding


def _together(tallies: Iterable[Tally]) -> Tally:
    parts = list(tallies)
    return Tally(
        [judgement for part in parts for judgement in part.judgements],
        sum(part.cpu_s for part in parts),
        sum(part.media_s for part in parts),
    )


def _share(bar: str, tally: Tally, *wanted: Judgement, target: float | None = None) -> Figure:
    return recall(f"{bar}, of {tally.items}", tally.count(*wanted), tally.items, target, "")


def _clean(name: str, tally: Tally) -> Iterator[Figure]:
    """Hard on clean items: the share, and the bound that it is under with 95 % confidence."""
    hits = tally.count(Judgement.HARD)
    low, high = exact_interval(hits, tally.items)
    yield Figure(
        f"{name}: hard on clean, of {tally.items}",
        hits / tally.items,
        "",
        0.0,
        "",
        low=low,
        high=high,
    )
    yield upper_bound(f"{name}: hard on clean", hits, tally.items, RED_LINE)


def _precision(name: str, hits: int, wrong: int) -> Figure:
    """Of what was called hard, how much was wrong; as many faulty as clean items went in."""
    return recall(f"{name}: precision of hard, of {hits + wrong}", hits, hits + wrong, 0.99, "")


def _cost(name: str, tally: Tally) -> Figure:
    value = tally.cpu_s * 1000.0 / tally.media_s
    return Figure(
        f"{name}: CPU a second of media", value, "ms", BUDGET_MS, "all detectors share it"
    )


def main() -> None:
    args = options(__doc__ or "")
    show(figures(args.quick), as_json=args.json)


if __name__ == "__main__":
    main()
