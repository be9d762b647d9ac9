"""How well the clocks and the lips of a clip are judged: recall, precision and cost (S4.3).

Every item is a real file, decoded as the gateway does. A share comes with its exact 95 % interval.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bench.board import Direction, Figure, options, show
from monitors.detectors.finding import Finding
from monitors.detectors.lip_sync import SLACK_MS
from monitors.detectors.timeline import ACCEPTABLE_MS, beyond
from monitors.intervals import exact_interval
from monitors.labels import Detector, Judgement
from tests.faults import lips_corpus, timing_corpus
from tests.faults.lips_corpus import Talk
from tests.unit.media.decoding import decoded

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
    each = 6 if quick else 60
    spent, hits, wrong = Tally(), 0, 0
    for kind in timing_corpus.FAULTS:
        told = _judged(timing_corpus.clips(kind, each), Detector.TIMELINE, kind.seconds)
        _merge(spent, told)
        hits += told.count(Judgement.HARD)
        target = 1.0 if kind.desync else None
        yield _share(f"timeline: hard recall, {kind.name}", told, Judgement.HARD, target=target)
        if not kind.desync:
            yield _share(
                f"timeline: told at all, {kind.name}", told, Judgement.HARD, Judgement.SOFT
            )
    clean = Tally()
    for kind in timing_corpus.CLEAN:
        told = _judged(timing_corpus.clips(kind, 5 if quick else 80), Detector.TIMELINE, 8.0)
        _merge(clean, told)
        wrong += told.count(Judgement.HARD)
        yield _share(f"timeline: soft on clean, {kind.name}", told, Judgement.SOFT)
    ragged = _judged(timing_corpus.clips(timing_corpus.RAGGED, each), Detector.TIMELINE, 8.0)
    yield _share(f"timeline: hard on {timing_corpus.RAGGED.name}", ragged, Judgement.HARD)
    yield from _clean("timeline", clean)
    yield _precision("timeline", hits, wrong)
    _merge(spent, clean)
    yield _cost("timeline", spent)


# ---------------------------------------------------------------- lips
def lips(quick: bool) -> Iterator[Figure]:
    """Recall on talkers by the length of the clip, and what clean clips are taken for."""
    scenes = lips_corpus.scenes(8 if quick else 160)
    spent, hits = Tally(), 0
    errors: list[float] = []
    for seconds in lips_corpus.LENGTHS:
        told = Tally()
        for talk in lips_corpus.apart(scenes, seconds):
            finding = _finding(talk.data(), Detector.LIP_SYNC)
            told.add(finding, seconds)
            errors += _errors(talk, finding)
        _merge(spent, told)
        hits += told.count(Judgement.HARD)
        yield _share(f"lips: hard recall, {seconds:g} s of a talker", told, Judgement.HARD)
        yield _share(f"lips: abstained, {seconds:g} s of a talker", told, Judgement.ABSTAINED)
    right = sum(abs(error) <= _TOLERATED_MS for error in errors)
    low, high = exact_interval(right, len(errors))
    yield Figure(
        f"lips: offsets told within {_TOLERATED_MS:g} ms, of {len(errors)}",
        right / len(errors), "", None, "", Direction.AT_LEAST, low, high,
    )  # fmt: skip
    clean = Tally()
    for name, talks in lips_corpus.clean(scenes):
        told = Tally()
        for talk in talks:
            told.add(_finding(talk.data(), Detector.LIP_SYNC), talk.seconds)
        _merge(clean, told)
        yield _share(f"lips: abstained on clean, {name}", told, Judgement.ABSTAINED)
        yield _share(f"lips: soft on clean, {name}", told, Judgement.SOFT)
    yield from _clean("lips", clean)
    yield _precision("lips", hits, clean.count(Judgement.HARD))
    _merge(spent, clean)
    yield _cost("lips", spent)


def _errors(talk: Talk, finding: Finding) -> Iterator[float]:
    assert beyond(talk.offset_ms, ACCEPTABLE_MS) is not None
    assert SLACK_MS < _TOLERATED_MS
    for fault in finding.faults:
        assert fault.value is not None
        yield fault.value - talk.offset_ms


# ---------------------------------------------------------------- in words
def _judged(clips: Iterable[bytes], detector: Detector, seconds: float) -> Tally:
    tally = Tally()
    for clip in clips:
        tally.add(_finding(clip, detector), seconds)
    return tally


def _finding(clip: bytes, detector: Detector) -> Finding:
    (finding,) = (f for f in decoded(clip).report.findings if f.detector is detector)
    return finding


def _merge(into: Tally, tally: Tally) -> None:
    into.judgements += tally.judgements
    into.cpu_s += tally.cpu_s
    into.media_s += tally.media_s


def _share(bar: str, tally: Tally, *wanted: Judgement, target: float | None = None) -> Figure:
    hits = tally.count(*wanted)
    low, high = exact_interval(hits, tally.items)
    return Figure(
        f"{bar}, of {tally.items}",
        hits / tally.items,
        "",
        target,
        "",
        Direction.AT_LEAST,
        low,
        high,
    )


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
    bound = exact_interval(hits, tally.items, confidence=0.90)[1]
    yield Figure(f"{name}: 95 % upper bound of hard on clean", bound, "", RED_LINE, "")


def _precision(name: str, hits: int, wrong: int) -> Figure:
    """Of what was called hard, how much was wrong; as many faulty as clean items went in."""
    low, high = exact_interval(hits, hits + wrong)
    share = hits / (hits + wrong)
    bar = f"{name}: precision of hard, of {hits + wrong}"
    return Figure(bar, share, "", 0.99, "", Direction.AT_LEAST, low, high)


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
