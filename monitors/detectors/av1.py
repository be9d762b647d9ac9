"""Reads the headers of AV1 packets: is each unit whole, and is a shown frame missing?

Bytes in, anomalies out; no picture is decoded (AV1 Bitstream Specification, 5.5 and 5.9). The
usual encoders number frames in the order they are shown, so a step of two is a frame lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from monitors.detectors.syntax import Anomaly, Bits, OutOfBits

_SEQUENCE, _FRAME_HEADER, _FRAME = 1, 3, 6
_NO_PICTURE = frozenset({2, 5, 15})  # delimiters, metadata, padding
_KEY, _INTRA_ONLY, _SWITCH = 0, 2, 3
_CHOSEN_LATER = 2  # the frame header says
_ALL = 0xFF  # of the eight reference slots
_HEAD = 32  # bytes that surely hold all we read of a frame header or sequence header


@dataclass(frozen=True)
class _Sequence:
    """What a sequence header says that a frame header needs."""

    order_bits: int  # 0: frames are not numbered
    frame_id_bits: int  # 0: there are no frame ids
    screen_content: int
    integer_vectors: int


@dataclass(frozen=True)
class _Frame:
    """The start of a frame header."""

    key: bool
    shown: bool
    order: int
    refreshes: int  # reference slots, a bit each
    again: int | None = None  # the slot whose frame is shown, and nothing decoded


@dataclass
class Av1Reader:
    """Reads one stream's packets (temporal units) in order. Never raises, whatever the bytes.

    A stream with scalable layers, timing for decoder models or reduced still headers is not
    judged: its packets have no anomaly.
    """

    extradata: bytes | None
    padding: int = 0  # bytes of the latest packet that carry no picture
    _sequence: _Sequence | None = None
    _slots: dict[int, int] = field(default_factory=dict[int, int])  # order by reference slot
    _last: int | None = None  # order of the frame shown last
    _layered: bool = False

    def __post_init__(self) -> None:
        head = self.extradata or b""
        if head[:1] == b"\x81":  # the av1C box: four bytes, then units
            tuple(self._read(head[4:]))

    def feed(self, packet: bytes) -> tuple[Anomaly, ...]:
        """What is wrong with the next packet, each anomaly once."""
        self.padding = 0
        return tuple(dict.fromkeys(self._read(packet)))

    def _read(self, packet: bytes) -> Iterator[Anomaly]:
        for unit in _units(packet):
            if unit is None:
                yield Anomaly.BROKEN_UNIT
                return
            kind, layer, payload = unit
            self._layered |= layer
            self.padding += len(payload) if kind in _NO_PICTURE else 0
            try:
                if kind == _SEQUENCE:
                    self._sequence = _read_sequence(Bits(payload[:_HEAD]))
                elif kind in (_FRAME_HEADER, _FRAME) and self._sequence and not self._layered:
                    yield from self._take(_read_frame(Bits(payload[:_HEAD]), self._sequence))
            except OutOfBits:
                yield Anomaly.PARAMETER_SET if kind == _SEQUENCE else Anomaly.FRAME_HEADER

    def _take(self, frame: _Frame) -> Iterator[Anomaly]:
        if not self._sequence or not self._sequence.order_bits:
            return
        order: int | None = frame.order
        if frame.again is not None:
            order = self._slots.get(frame.again)
        if frame.shown and order is not None:
            if self._last is not None and not frame.key:
                step = (order - self._last) % (1 << self._sequence.order_bits)
                if step != 1:
                    yield Anomaly.FRAME_ORDER
            elif self._last is None and not frame.key:
                yield Anomaly.NO_KEY_FRAME
            self._last = order
        for slot in range(8):
            if frame.refreshes >> slot & 1:
                self._slots[slot] = frame.order


def _units(packet: bytes) -> Iterator[tuple[int, bool, bytes] | None]:
    """Type, whether it belongs to a layer above the base, and payload; None where broken."""
    at = 0
    while at < len(packet):
        head = packet[at]
        if head & 0x81:  # forbidden and reserved bits
            yield None
            return
        at += 1
        layered = False
        if head & 0x04:
            layered = bool(packet[at : at + 1].strip(b"\0"))
            at += 1
        size = len(packet) - at
        if head & 0x02:
            read = _leb128(packet, at)
            if read is None:
                yield None
                return
            size, at = read
        if at + size > len(packet):
            yield None
            return
        yield head >> 3 & 15, layered, packet[at : at + size]
        at += size


def _leb128(data: bytes, at: int) -> tuple[int, int] | None:
    """The number and where the next one begins."""
    value = 0
    for i, byte in enumerate(data[at : at + 8]):
        value |= (byte & 0x7F) << (7 * i)
        if not byte & 0x80:
            return value, at + i + 1
    return None


def _read_sequence(bits: Bits) -> _Sequence | None:
    """None for the kinds of stream that are not judged."""
    bits.take(4)  # profile, still picture
    if bits.flag() or bits.flag():  # reduced still header, timing info
        return None
    delays = bits.flag()
    if bits.take(5):  # more than one operating point
        return None
    bits.take(12)
    if bits.take(5) > 7:  # level
        bits.take(1)
    if delays and bits.flag():
        bits.take(4)
    width_bits, height_bits = bits.take(4) + 1, bits.take(4) + 1
    bits.take(width_bits)
    bits.take(height_bits)
    frame_id_bits = bits.take(4) + 2 + bits.take(3) + 1 if bits.flag() else 0
    bits.take(7)  # superblocks, intra tools, compound tools
    ordered = bits.flag()
    if ordered:
        bits.take(2)
    screen = _CHOSEN_LATER if bits.flag() else bits.take(1)
    vectors = _CHOSEN_LATER
    if screen and not bits.flag():
        vectors = bits.take(1)
    return _Sequence(bits.take(3) + 1 if ordered else 0, frame_id_bits, screen, vectors)


def _read_frame(bits: Bits, sequence: _Sequence) -> _Frame:
    if bits.flag():
        return _Frame(key=False, shown=True, order=0, refreshes=0, again=bits.take(3))
    kind, shown = bits.take(2), bits.flag()
    if not shown:
        bits.flag()  # may be shown later
    whole = kind == _SWITCH or (kind == _KEY and shown)
    resilient = whole or bits.flag()
    bits.flag()  # probabilities stay
    screen = bits.take(1) if sequence.screen_content == _CHOSEN_LATER else sequence.screen_content
    if screen and sequence.integer_vectors == _CHOSEN_LATER:
        bits.flag()
    bits.take(sequence.frame_id_bits)
    if kind != _SWITCH:
        bits.flag()  # another size
    order = bits.take(sequence.order_bits)
    if kind not in (_KEY, _INTRA_ONLY) and not resilient:
        bits.take(3)
    return _Frame(kind == _KEY, shown, order, _ALL if whole else bits.take(8))
