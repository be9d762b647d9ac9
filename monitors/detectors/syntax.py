"""What the readers of coded video share: bits in order, and names for what must not be."""

from enum import StrEnum


class Anomaly(StrEnum):
    """What one packet of a whole stream never shows."""

    BROKEN_UNIT = "broken_unit"  # a unit is longer than its packet, or not marked as one
    START_CODE = "start_code"  # bytes inside a unit that only stand between units
    PARAMETER_SET = "parameter_set"  # it cannot be read, or is not there
    FRAME_HEADER = "frame_header"  # of a slice or frame: it cannot be read
    FIRST_SLICE = "first_slice"  # of a picture: it is missing
    NO_KEY_FRAME = "no_key_frame"  # the stream begins with a picture that builds on others
    FRAME_ORDER = "frame_order"  # the pictures' own count leaves one out


class OutOfBits(ValueError):
    """The bytes end before the syntax does, or hold a number no encoder writes."""


class Bits:
    """Reads numbers from the front of some bytes. Raises `OutOfBits` past their end."""

    def __init__(self, data: bytes) -> None:
        self._value = int.from_bytes(data, "big")
        self._left = 8 * len(data)

    def take(self, count: int) -> int:
        """An unsigned number of `count` bits."""
        if count > self._left:
            raise OutOfBits(f"{count} bits wanted, {self._left} left")
        self._left -= count
        return self._value >> self._left & ((1 << count) - 1)

    def flag(self) -> bool:
        """One bit."""
        return self.take(1) == 1

    def exp_golomb(self) -> int:
        """An unsigned Exp-Golomb number: `ue(v)` of H.264, `uvlc` of AV1."""
        zeros = 0
        while not self.flag():
            zeros += 1
            if zeros > 31:
                raise OutOfBits("an Exp-Golomb number beyond 32 bits")
        return (1 << zeros) - 1 + self.take(zeros)

    def signed_exp_golomb(self) -> int:
        """`se(v)` of H.264."""
        code = self.exp_golomb()
        return (code + 1) // 2 if code % 2 else -(code // 2)
