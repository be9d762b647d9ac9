"""What a client says its bytes are: parsed as RFC 9530 has it, and checked to the last bit."""

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.labels import Detector, Fault, Grade, Modality, Origin
from runtime.media.client_digest import LONGEST, DigestError, digest_of, parse

DATA = b"a clip"


def said(algorithm: str, data: bytes) -> str:
    value = hashlib.new(algorithm.replace("-", ""), data).digest()
    return f"{algorithm}=:{base64.b64encode(value).decode()}:"


@given(st.binary(max_size=200))
def test_what_is_said_of_bytes_holds_for_them(data: bytes):
    assert parse(digest_of(data)).faults(data, Modality.VIDEO) == ()


@given(st.binary(min_size=1, max_size=200), st.data())
def test_one_flipped_bit_is_a_hard_input_fault(data: bytes, draw: st.DataObject):
    bit = draw.draw(st.integers(0, 8 * len(data) - 1))
    broken = bytearray(data)
    broken[bit // 8] ^= 1 << bit % 8
    (fault,) = parse(digest_of(data)).faults(bytes(broken), Modality.VIDEO)
    assert (fault.fault, fault.grade) == (Fault.VIDEO_CORRUPT, Grade.HARD)
    assert (fault.origin, fault.detector) == (Origin.INPUT, Detector.BITSTREAM)
    assert fault.rule == "digest_mismatch"
    assert hashlib.sha256(data).hexdigest()[:16] in fault.detail


def test_a_damaged_sound_has_lost_sound():
    (fault,) = parse(digest_of(DATA)).faults(b"", Modality.AUDIO)
    assert fault.fault is Fault.SPEECH_TRUNCATED


@pytest.mark.parametrize(
    "field",
    [
        said("sha-512", DATA),
        f"{said('sha-256', DATA)}, {said('sha-512', DATA)}",
        f" {said('sha-256', DATA)};q=1 ,md5=:AAAA:",
    ],
)
def test_every_form_of_the_rfc_is_read(field: str):
    digest = parse(field)
    assert digest.faults(DATA, Modality.VIDEO) == ()
    assert len(digest.faults(DATA + b"!", Modality.VIDEO)) == 1


def test_all_digests_must_hold():
    field = f"{said('sha-256', DATA)}, {said('sha-512', b'another')}"
    (fault,) = parse(field).faults(DATA, Modality.IMAGE)
    assert fault.detail.startswith("sha-512")


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("", "looks like sha-256=:BASE64:"),
        (hashlib.sha256(DATA).hexdigest(), "looks like sha-256=:BASE64:"),
        ("sha-256=abc", "looks like sha-256=:BASE64:"),
        ("sha-256=:abc:", "not base64"),
        ("sha-256=:QUJD:", "has 32 bytes, not 3"),
        (said("sha-256", DATA) + "," * LONGEST, "looks like sha-256=:BASE64:"),
    ],
)
def test_one_that_is_none_is_refused_in_words(field: str, words: str):
    with pytest.raises(DigestError, match=words):
        parse(field)


@pytest.mark.parametrize("field", ["md5=:QUJD:", "sha-1=:AAAA:, crc32c=:AAAAAA==:;q=1"])
def test_algorithms_unknown_here_leave_nothing_to_check(field: str):
    assert parse(field).faults(DATA, Modality.VIDEO) == ()


@given(st.text(max_size=80) | st.from_regex(r"[a-z]{1,9}(-[0-9]{1,3})?=:[A-Za-z0-9+/]{0,20}:"))
def test_whatever_is_sent_is_a_digest_or_a_sentence(field: str):
    refusal = ""
    try:
        found = parse(field).faults(DATA, Modality.VIDEO)
    except DigestError as err:
        refusal, found = str(err), ()
    assert refusal or not found
