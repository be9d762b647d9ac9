"""Ways in which a stream of generated speech arrives damaged: packets, their end, and the clock.

A `Stream` is what a gateway sees of one answer. Every injector returns a damaged copy. Cuts are
measured from the last sound: samples of a silent tail are nobody's loss.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from monitors.detectors.finding import Verdict
from monitors.detectors.speaking_time import Spoken, VoiceModel
from monitors.detectors.speech import SpeechAudit
from monitors.detectors.speech_sound import measure
from tests.faults.voices import HZ, Pcm

FRAME = 480  # samples of a codec frame, 20 ms
PACKET_FRAMES = 4
_SOFTEST_CUT = 0.02  # of the sound's length: random cuts keep this much of each end

Rng = np.random.Generator


@dataclass(frozen=True)
class Packet:
    frames: int
    pcm: Pcm


@dataclass(frozen=True)
class Stream:
    """One answer as it was sent. `made`: codec frames by the engine's count."""

    text: str
    packets: tuple[Packet, ...]
    reason: str | None
    made: int | None

    @property
    def pcm(self) -> Pcm:
        return np.concatenate([packet.pcm for packet in self.packets] or [np.zeros(0, np.int16)])


def stream(text: str, pcm: Pcm) -> Stream:
    """Whole speech in packets of four frames; the last frame is filled up with silence."""
    padded = np.concatenate((pcm, np.zeros(-len(pcm) % FRAME, np.int16)))
    size = FRAME * PACKET_FRAMES
    packets = tuple(
        Packet(len(piece) // FRAME, piece)
        for piece in (padded[start : start + size] for start in range(0, len(padded), size))
    )
    return Stream(text, packets, "stop", len(padded) // FRAME)


def judge(heard: Stream, voice: VoiceModel | None) -> Verdict:
    """What the detector says of it."""
    audit = SpeechAudit(FRAME, HZ, voice)
    for packet in heard.packets:
        audit.feed(packet.frames, packet.pcm.tobytes())
    return audit.close(heard.reason, heard.text, heard.made)


def spoken(text: str, pcm: Pcm) -> Spoken:
    """A row to fit a voice to."""
    sound = measure(pcm, HZ)
    return Spoken(text, sound.speech.seconds, sound.end_db, sound.tail_s)


# ---------------------------------------------------------------- the sound is cut, accounts agree
def cut_in_half(heard: Stream, rng: Rng) -> Stream:
    start, stop = _sounding(heard)
    return _ended(heard, (start + stop) // 2)


def cut_anywhere(heard: Stream, rng: Rng) -> Stream:
    start, stop = _sounding(heard)
    share = rng.uniform(_SOFTEST_CUT, 1.0 - _SOFTEST_CUT)
    return _ended(heard, start + round(share * (stop - start)))


def last_400_ms(heard: Stream, rng: Rng) -> Stream:
    return _ended(heard, _sounding(heard)[1] - round(0.4 * HZ))


def last_100_ms(heard: Stream, rng: Rng) -> Stream:
    return _ended(heard, _sounding(heard)[1] - round(0.1 * HZ))


# ---------------------------------------------------------------- the protocol is broken
def no_end(heard: Stream, rng: Rng) -> Stream:
    """The stream just stops, and no final event comes."""
    kept = int(rng.integers(1, len(heard.packets) + 1))
    return replace(heard, packets=heard.packets[:kept], reason=None, made=None)


def length(heard: Stream, rng: Rng) -> Stream:
    """The Talker ran into its limit, and said so."""
    return replace(cut_anywhere(heard, rng), reason="length")


def empty(heard: Stream, rng: Rng) -> Stream:
    return replace(heard, packets=(), made=0)


# ---------------------------------------------------------------- samples are lost or added
def lost_packet(heard: Stream, rng: Rng) -> Stream:
    at = int(rng.integers(len(heard.packets)))
    return replace(heard, packets=heard.packets[:at] + heard.packets[at + 1 :])


def lost_joints(heard: Stream, rng: Rng) -> Stream:
    """A codec decoded without its context: every packet lacks some samples at its end."""
    shorter = tuple(replace(p, pcm=p.pcm[: max(0, len(p.pcm) - 111)]) for p in heard.packets)
    return replace(heard, packets=shorter)


def one_sample_lost(heard: Stream, rng: Rng) -> Stream:
    at = int(rng.integers(len(heard.packets)))
    packet = heard.packets[at]
    shorter = replace(packet, pcm=packet.pcm[:-1])
    return replace(heard, packets=(*heard.packets[:at], shorter, *heard.packets[at + 1 :]))


def repeated_packet(heard: Stream, rng: Rng) -> Stream:
    at = int(rng.integers(len(heard.packets)))
    return replace(heard, packets=heard.packets[: at + 1] + heard.packets[at:])


# ---------------------------------------------------------------- the sound is flawed
def silent_tail(heard: Stream, rng: Rng) -> Stream:
    return _sounds(heard, np.concatenate((heard.pcm, np.zeros(round(1.5 * HZ), np.int16))))


def inserted_gap(heard: Stream, rng: Rng) -> Stream:
    at = _loud_place(heard, rng)
    silence = np.zeros(round(1.5 * HZ), np.int16)
    return _sounds(heard, np.concatenate((heard.pcm[:at], silence, heard.pcm[at:])))


def zero_run(heard: Stream, rng: Rng) -> Stream:
    """50 ms in the middle of a sound are zero, as when a buffer was not filled."""
    at, pcm = _loud_place(heard, rng), heard.pcm.copy()
    pcm[at - round(0.025 * HZ) : at + round(0.025 * HZ)] = 0
    return _sounds(heard, pcm)


def clipped(heard: Stream, rng: Rng) -> Stream:
    loud = heard.pcm.astype(np.float32) * 6.0
    return _sounds(heard, np.clip(loud, -32768, 32767).astype(np.int16))


def clicks(heard: Stream, rng: Rng) -> Stream:
    """The codec's state is lost at a joint: the wave jumps."""
    at = _loud_place(heard, rng) // (FRAME * PACKET_FRAMES) * FRAME * PACKET_FRAMES
    pcm = heard.pcm.astype(np.int32)
    pcm[at : at + 2400] = np.clip(pcm[at : at + 2400] + 9000, -32768, 32767)
    return _sounds(heard, pcm.astype(np.int16))


Injector = Callable[[Stream, Rng], Stream]
CUTS: tuple[Injector, ...] = (cut_in_half, cut_anywhere, last_400_ms, last_100_ms)
EXACT: tuple[Injector, ...] = (
    no_end, length, empty, lost_packet, lost_joints, one_sample_lost, repeated_packet,
)  # fmt: skip
FLAWS: dict[str, Injector] = {
    "silent_tail": silent_tail,
    "gap": inserted_gap,
    "zero_run": zero_run,
    "clipping": clipped,
    "click": clicks,
}


# ---------------------------------------------------------------- when packets come
def on_time(seconds: float, packet_s: float = 0.08, pace: float = 0.5) -> list[tuple[float, int]]:
    """(arrival, samples) of packets that come `pace` seconds for each second of speech."""
    count = round(seconds / packet_s)
    return [(i * packet_s * pace, round(packet_s * HZ)) for i in range(count)]


def stalled(
    arrivals: list[tuple[float, int]], at_s: float, seconds: float
) -> list[tuple[float, int]]:
    """Nothing comes for `seconds` once the listener has heard `at_s` seconds of speech."""
    packet_s = arrivals[0][1] / HZ
    place = round(at_s / packet_s)
    late = at_s + seconds + 0.1  # the prebuffer is used up first
    return [
        (at if i < place else max(at, late + (at - arrivals[place][0])), samples)
        for i, (at, samples) in enumerate(arrivals)
    ]


def slowing(seconds: float, packet_s: float = 0.08) -> list[tuple[float, int]]:
    """Twice real time at first, and slower and slower."""
    count = round(seconds / packet_s)
    steps = packet_s * np.linspace(0.5, 2.0, count)
    return [(float(at), round(packet_s * HZ)) for at in np.cumsum(steps)]


# ---------------------------------------------------------------- helpers
def _sounding(heard: Stream) -> tuple[int, int]:
    """First and last sample of the sound."""
    speech = measure(heard.pcm, HZ).speech
    return round(speech.at_s * HZ), round((speech.at_s + speech.seconds) * HZ)


def _ended(heard: Stream, at: int) -> Stream:
    """Only the first `at` samples were ever made: no account tells that there should be more."""
    return _sounds(heard, heard.pcm[: max(FRAME, at - at % FRAME)])


def _sounds(heard: Stream, pcm: Pcm) -> Stream:
    return replace(stream(heard.text, pcm), reason=heard.reason)


def _loud_place(heard: Stream, rng: Rng) -> int:
    """A sample in a loud place, not near the ends."""
    pcm = heard.pcm.astype(np.float32)
    hops = pcm[: len(pcm) // FRAME * FRAME].reshape(-1, FRAME)
    power = np.square(hops).mean(axis=1)
    start, stop = len(power) // 5, len(power) - len(power) // 5
    loud = start + np.flatnonzero(power[start:stop] >= np.percentile(power[start:stop], 80))
    return int(rng.choice(loud)) * FRAME + FRAME // 2
