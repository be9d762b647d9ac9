"""Damaged and clean video against the detectors: who is found, who is wronged, what it costs.

Clips are drawn, encoded for real and decoded as the gateway decodes them. A clip counts as
visibly damaged when its decode, held against that of the whole clip, loses a frame or has one
under 32 dB of luma. Two processes would share a core's caches here: run it alone.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import cycle

from bench import detectors_pixels
from bench.board import Figure, options, show
from bench.proportions import recall, share, upper_bound
from monitors.contract import MediaRung
from monitors.labels import Detector, Grade
from monitors.redlines import LadderLines
from runtime.media.decode import DecodeReport, MediaError, decode
from runtime.media.fidelity import fidelity_of
from runtime.settings import MediaLimits
from tests.faults.bitstream import BitstreamFault, Luma, damage, inject, psnr
from tests.faults.encodings import Coding, decoded_luma, encoded
from tests.faults.pictures import Content, Footage, footage

OF_VIDEO = (Detector.BITSTREAM, Detector.PIXELS, Detector.OPERATIONS)
RECALL = {"h264": 0.95, "av1": 0.90, "vp9": 0.75}  # of what is visibly damaged
RED_LINE = 0.005  # of clean clips wronged, upper bound
BUDGET_MS = 5.0  # of processor time for a second of media, all video detectors together
SEEDS, QUICK_SEEDS = 35, 1  # each: nine contents in six codings; 630 clean clips a codec
FAULTS_A_CLIP = 2
LEAST_DB = 18.0  # of luma, against what was drawn: below it the encoder itself broke the clip
COST_SIZES = ((1280, 720), (640, 360))
COST_ROUNDS, QUICK_COST_ROUNDS = 5, 2


@dataclass
class Tally:
    """What became of one codec's clips."""

    unfit: int = 0  # broken by the encoder
    clean: int = 0
    wronged: Counter[Detector] = field(default_factory=Counter[Detector])  # hard, on clean
    wronged_clips: int = 0
    shown: int = 0  # clean clips with a soft fault
    shown_by_rule: Counter[str] = field(default_factory=Counter[str])  # of those
    visible: int = 0
    found: int = 0  # hard or soft, or the clip was refused
    found_hard: int = 0
    refused: int = 0
    faint: int = 0  # damaged, but not visibly
    faint_found: int = 0
    by_fault: defaultdict[BitstreamFault, list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0])
    )  # found and visible


def figures(*, quick: bool) -> list[Figure]:
    """Bitstream by codec, pixels and own operations by fault, and the cost of each detector."""
    os.environ.setdefault("SVT_LOG", "1")  # the AV1 encoder talks
    tallies = tally(range(QUICK_SEEDS if quick else SEEDS))
    rows = [row for codec, one in tallies.items() for row in _rows(codec, one)]
    rows += _wronged_by_detector(list(tallies.values()))
    rows += detectors_pixels.figures(quick=quick)
    return [*rows, *_costs(QUICK_COST_ROUNDS if quick else COST_ROUNDS)]


def tally(seeds: Iterable[int]) -> dict[str, Tally]:
    """Every content in every coding, clean and with some of the bitstream faults in turn."""
    tallies: dict[str, Tally] = {codec: Tally() for codec in RECALL}
    faults = cycle(BitstreamFault)
    for seed in seeds:
        for content in Content:
            shown = footage(content, seed)
            for coding in Coding:
                coded = encoded(shown, coding)
                whole = decoded_luma(coded.file)
                one = tallies[coding.codec]
                if not _whole(shown, whole):
                    one.unfit += 1
                    continue
                _count_clean(one, examined(coded.file))
                for _, fault in zip(range(FAULTS_A_CLIP), faults, strict=False):
                    broken = inject(coded, fault, seed)
                    seen = damage(whole, decoded_luma(broken)).visible
                    _count_damaged(one, fault, seen, examined(broken))
    return tallies


def _whole(shown: Footage, decoded: Luma) -> bool:
    """Whether an encoder's clip shows what was drawn."""
    luma = shown.frames[:, : shown.height]
    pairs = zip(luma, (decoded[at] for at in sorted(decoded)), strict=False)
    return len(decoded) == len(luma) and min(psnr(a, b) for a, b in pairs) >= LEAST_DB


def examined(file: bytes) -> DecodeReport | None:
    """What the gateway's decoding finds in a clip; None where it refuses the clip in words."""
    try:
        return decode(
            file,
            kind="video",
            limits=MediaLimits(),
            fidelity=fidelity_of(MediaRung.FULL, LadderLines()),
            param="clip",
        ).report
    except MediaError:
        return None


def _count_clean(one: Tally, report: DecodeReport | None) -> None:
    assert report is not None, "a clean clip was refused"
    one.clean += 1
    found = [fault for fault in report.faults if fault.detector in OF_VIDEO]
    hard = {fault.detector for fault in found if fault.grade is Grade.HARD}
    one.wronged.update(hard)
    one.wronged_clips += bool(hard)
    soft = {fault.rule for fault in found if fault.grade is Grade.SOFT}
    one.shown_by_rule.update(soft)
    one.shown += bool(soft)


def _count_damaged(
    one: Tally, fault: BitstreamFault, visible: bool, report: DecodeReport | None
) -> None:
    grades = set[Grade]() if report is None else {f.grade for f in report.faults}
    told = report is None or bool(grades)
    if not visible:
        one.faint += 1
        one.faint_found += told
        return
    one.visible += 1
    one.found += told
    one.found_hard += Grade.HARD in grades
    one.refused += report is None
    one.by_fault[fault][0] += told
    one.by_fault[fault][1] += 1


def _rows(codec: str, one: Tally) -> Iterator[Figure]:
    wronged = one.wronged_clips
    by_fault = ", ".join(
        f"{fault} {hits}/{of}" for fault, (hits, of) in sorted(one.by_fault.items())
    )
    unfit = f"; {one.unfit} more were broken by their encoder" if one.unfit else ""
    yield upper_bound(f"{codec}: clean clips wronged, hard", wronged, one.clean, RED_LINE, unfit)
    by_rule = ", ".join(f"{rule} {hits}" for rule, hits in one.shown_by_rule.most_common())
    yield share(f"{codec}: clean clips called soft", one.shown, one.clean, by_rule)
    yield recall(
        f"{codec}: visibly damaged, hard, soft or refused",
        one.found,
        one.visible,
        RECALL[codec],
        by_fault,
    )
    refused = f"{one.refused} more were refused"
    yield recall(f"{codec}: visibly damaged, hard", one.found_hard, one.visible, None, refused)
    told = f"found besides: {one.faint_found} of {one.faint} that are damaged and do not show it"
    hard = one.found_hard
    yield recall(f"{codec}: precision of hard findings", hard, hard + wronged, None, told)


def _wronged_by_detector(tallies: list[Tally]) -> Iterator[Figure]:
    clean = sum(one.clean for one in tallies)
    for detector in OF_VIDEO:
        wronged = sum(one.wronged[detector] for one in tallies)
        yield upper_bound(f"{detector}: clean clips wronged, hard", wronged, clean, RED_LINE)


def _costs(rounds: int) -> Iterator[Figure]:
    """Processor time of each detector for a second of 25 frames, decoding not counted: the least
    of some rounds, for what other programs add by emptying the caches is not the detectors'."""
    for width, height in COST_SIZES:
        shown = footage(Content.MOTION, 1, width=width, height=height, count=100)
        seconds = len(shown.frames) / 25
        for coding in (Coding.H264, Coding.VP9, Coding.AV1):
            file = encoded(shown, coding).file
            examined(file)
            taken = [_spent_ms(file, seconds) for _ in range(rounds)]
            least = min(taken, key=lambda one: sum(one.values()))
            each = ", ".join(f"{detector} {ms:.2f}" for detector, ms in least.items())
            bar = f"cost at {height}p25, {coding.codec}"
            yield Figure(bar, sum(least.values()), "ms/s", BUDGET_MS, each)


def _spent_ms(file: bytes, seconds: float) -> dict[Detector, float]:
    report = examined(file)
    assert report is not None
    return {
        finding.detector: finding.cpu_s * 1000 / seconds
        for finding in report.findings
        if finding.detector in OF_VIDEO
    }


def main() -> None:
    args = options(__doc__ or "")
    show(figures(quick=args.quick), as_json=args.json)


if __name__ == "__main__":
    main()
