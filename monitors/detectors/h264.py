"""Reads the headers of H.264 packets: is each unit whole, and is a reference frame missing?

Bytes in, anomalies out; no picture is decoded (ITU-T H.264, 7.3). A stream that uses memory
management operation 5 would look as if a frame were lost; the usual encoders never do.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from monitors.detectors.syntax import Anomaly, Bits, OutOfBits

_HIGH_PROFILES = frozenset({100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135})
_ANY_ORDER_PROFILES = frozenset({66, 88})  # baseline, extended: slices may come in any order
_SLICE, _IDR, _SPS, _PPS = 1, 5, 7, 8
_NO_PICTURE = frozenset({6, 9, 12})  # messages, delimiters, filler
_SLICE_HEAD = 24  # bytes that surely hold all we read of a slice header
_SET_HEAD = 512  # bytes that surely hold all we read of a sequence parameter set
_MOST_SETS = 64  # different ones; a stream with more is not judged, so that none costs much
_MOST_IN_CYCLE = 255  # frames whose order a sequence parameter set foretells
_INTRA = frozenset({2, 4})  # I and SI, slice type modulo 5
_START = re.compile(b"\0\0\1")
_INSIDE = re.compile(b"\0\0[\0-\2]")


@dataclass(frozen=True)
class _Sps:
    """What a sequence parameter set says that a slice header needs."""

    profile: int
    frame_num_bits: int
    colour_planes: bool
    gaps_allowed: bool
    frames_only: bool


@dataclass(frozen=True)
class _Slice:
    """The start of a slice header."""

    first_macroblock: int
    intra: bool
    frame_num: int
    field_of_frame: bool
    idr_id: int | None  # consecutive IDR pictures have different ones


@dataclass
class H264Reader:
    """Reads one stream's packets in decoding order. Never raises, whatever the bytes, and takes
    a time that grows with their number and no faster.

    `extradata`: the stream's parameter sets out of band, as AVCC (then every unit has its length
    in front) or as Annex B; empty or None where they are in the packets.
    """

    extradata: bytes | None
    padding: int = 0  # bytes of the latest packet that carry no picture
    _sets: dict[int, _Sps] = field(default_factory=dict[int, _Sps])
    _set_of: dict[int, int] = field(default_factory=dict[int, int])  # PPS to SPS
    _known: dict[bytes, tuple[int, _Sps] | None] = field(
        default_factory=dict[bytes, "tuple[int, _Sps] | None"]
    )  # sequence parameter sets by their bytes; None: not to be read
    _length_size: int = 0  # bytes; 0: Annex B
    _reference: int | None = None  # frame_num of the latest picture that others build on
    _idr_id: int | None = None  # of the picture before, where that was an IDR picture

    def __post_init__(self) -> None:
        head = self.extradata or b""
        if head[:1] == b"\1" and len(head) > 6:
            self._length_size = (head[4] & 3) + 1
            units = _avcc_units(head)
        else:
            units = _annex_b(head)
        for unit in units:
            self._parameters(unit)

    def feed(self, packet: bytes) -> tuple[Anomaly, ...]:
        """What is wrong with the next packet, each anomaly once."""
        found: dict[Anomaly, None] = {}
        first = True
        self.padding = 0
        for unit in self._units(packet):
            if unit is None or unit[0] & 0x80:
                found[Anomaly.BROKEN_UNIT] = None
                continue
            if _INSIDE.search(unit.rstrip(b"\0")):
                found[Anomaly.START_CODE] = None
            kind = unit[0] & 31
            self.padding += len(unit) + self._length_size if kind in _NO_PICTURE else 0
            if kind in (_SPS, _PPS) and not self._parameters(unit):
                found[Anomaly.PARAMETER_SET] = None
            if len(self._known) > _MOST_SETS:
                return ()
            if kind in (_SLICE, _IDR):
                found |= dict.fromkeys(self._slice(unit, first))
                first = False
        return tuple(found)

    def _units(self, packet: bytes) -> Iterator[bytes | None]:
        return _sized(packet, self._length_size) if self._length_size else _annex_b(packet)

    def _parameters(self, unit: bytes) -> bool:
        """Takes a parameter set; false where it cannot be read."""
        try:
            if unit[0] & 31 == _SPS:
                return self._sequence(unit[:_SET_HEAD])
            if unit[0] & 31 == _PPS:
                bits = Bits(_payload(unit[:_SLICE_HEAD]))
                self._set_of[bits.exp_golomb()] = bits.exp_golomb()
        except OutOfBits:
            return False
        return True

    def _sequence(self, head: bytes) -> bool:
        """Takes a sequence parameter set, which a stream may repeat."""
        if head not in self._known:
            if len(self._known) > _MOST_SETS:
                return False
            self._known[head] = None
            self._known[head] = _read_sps(Bits(_payload(head)))
        read = self._known[head]
        if read is None:
            return False
        self._sets[read[0]] = read[1]
        return True

    def _slice(self, unit: bytes, first: bool) -> Iterator[Anomaly]:
        """`first`: of its packet, and so of its picture."""
        if not self._sets:
            return  # the parameter sets are elsewhere: nothing can be told
        try:
            sps, head = self._read_slice(Bits(_payload(unit[:_SLICE_HEAD])), unit[0] & 31 == _IDR)
        except OutOfBits:
            yield Anomaly.FRAME_HEADER
            return
        if not first:
            return
        if head.first_macroblock and sps.profile not in _ANY_ORDER_PROFILES:
            yield Anomaly.FIRST_SLICE
        yield from self._order(sps, head)
        self._idr_id = head.idr_id
        if unit[0] & 0x60:
            self._reference = head.frame_num

    def _order(self, sps: _Sps, head: _Slice) -> Iterator[Anomaly]:
        if head.idr_id is not None:
            if head.frame_num:
                yield Anomaly.FRAME_HEADER
            if head.idr_id == self._idr_id and not head.field_of_frame:
                yield Anomaly.FRAME_ORDER
        elif self._reference is None:
            if not head.intra:
                yield Anomaly.NO_KEY_FRAME
        elif not sps.gaps_allowed:
            following = (self._reference + 1) % (1 << sps.frame_num_bits)
            second_field = head.field_of_frame and head.frame_num == self._reference
            if head.frame_num != following and not second_field:
                yield Anomaly.FRAME_ORDER

    def _read_slice(self, bits: Bits, idr: bool) -> tuple[_Sps, _Slice]:
        first_macroblock, kind, pps = bits.exp_golomb(), bits.exp_golomb(), bits.exp_golomb()
        sps = self._sets.get(self._set_of.get(pps, 0))
        if kind > 9 or sps is None:
            raise OutOfBits("no such slice type or parameter set")
        if sps.colour_planes:
            bits.take(2)
        frame_num = bits.take(sps.frame_num_bits)
        of_frame = not sps.frames_only and bits.flag()
        if of_frame:
            bits.flag()  # which
        idr_id = bits.exp_golomb() if idr else None
        return sps, _Slice(first_macroblock, kind % 5 in _INTRA, frame_num, of_frame, idr_id)


def _payload(unit: bytes) -> bytes:
    """A unit without its first byte and its emulation prevention bytes."""
    return unit[1:].replace(b"\0\0\3", b"\0\0")


def _sized(packet: bytes, size: int) -> Iterator[bytes | None]:
    """Units with their length in front; None where a length is wrong."""
    at = 0
    while at + size <= len(packet):
        end = at + size + int.from_bytes(packet[at : at + size], "big")
        unit = packet[at + size : end]
        at = end
        if not unit or end > len(packet):
            yield None
            return
        yield unit
    if at != len(packet):
        yield None


def _annex_b(packet: bytes) -> Iterator[bytes]:
    """Units with start codes between them."""
    pieces = _START.split(packet)
    return (unit for unit in (piece.rstrip(b"\0") for piece in pieces[1:]) if unit)


def _avcc_units(head: bytes) -> Iterator[bytes]:
    """The parameter sets of an AVC decoder configuration record, as far as they go."""
    at, counts = 6, 0
    left = head[5] & 31
    while counts < 2:  # sequence sets, then picture sets
        for _ in range(left):
            end = at + 2 + int.from_bytes(head[at : at + 2], "big")
            if unit := head[at + 2 : end]:
                yield unit
            at = end
        left = int.from_bytes(head[at : at + 1], "big")
        at, counts = at + 1, counts + 1


def _read_sps(bits: Bits) -> tuple[int, _Sps]:
    """The set's number, and the set."""
    profile = bits.take(8)
    bits.take(16)  # constraints, level
    number = bits.exp_golomb()
    colour_planes = profile in _HIGH_PROFILES and _skip_high_profile(bits)
    frame_num_bits = bits.exp_golomb() + 4
    if frame_num_bits > 16:
        raise OutOfBits("frame_num has at most 16 bits")
    _skip_picture_order(bits)
    bits.exp_golomb()  # reference frames
    gaps_allowed = bits.flag()
    bits.exp_golomb()  # width
    bits.exp_golomb()  # height
    return number, _Sps(profile, frame_num_bits, colour_planes, gaps_allowed, bits.flag())


def _skip_high_profile(bits: Bits) -> bool:
    """Whether the three colours are coded apart."""
    chroma = bits.exp_golomb()
    colour_planes = chroma == 3 and bits.flag()
    bits.exp_golomb()  # luma bits
    bits.exp_golomb()  # chroma bits
    bits.flag()  # lossless
    if bits.flag():
        for i in range(12 if chroma == 3 else 8):
            if bits.flag():
                _skip_scaling_list(bits, 16 if i < 6 else 64)
    return colour_planes


def _skip_scaling_list(bits: Bits, size: int) -> None:
    last = following = 8
    for _ in range(size):
        if following:
            following = (last + bits.signed_exp_golomb()) % 256
        last = following or last


def _skip_picture_order(bits: Bits) -> None:
    kind = bits.exp_golomb()
    if kind == 0:
        bits.exp_golomb()
    elif kind == 1:
        bits.flag()
        bits.signed_exp_golomb()
        bits.signed_exp_golomb()
        frames = bits.exp_golomb()
        if frames > _MOST_IN_CYCLE:
            raise OutOfBits("more frames in a cycle than there may be")
        for _ in range(frames):
            bits.signed_exp_golomb()
