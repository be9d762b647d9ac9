"""Records of requests, as the gateway leaves them."""

from typing import Any

from monitors.contract import (
    EvidenceBody,
    FaultFound,
    KvRung,
    Level,
    LineCrossed,
    MediaRung,
    MilestoneReached,
    RequestFinished,
    ResidencySampled,
)
from monitors.labels import (
    Detector,
    Fault,
    Grade,
    Judgement,
    Keep,
    Milestone,
    Modality,
    Origin,
    Outcome,
    Stage,
)
from monitors.requests import (
    Asked,
    Examined,
    Leg,
    Noted,
    RequestRecord,
    StageTime,
    Told,
    TraceNote,
    Usage,
)

SPAN, LEG_SPAN = "00000000000000aa", "00000000000000bb"
LATE = LineCrossed(milestone=Milestone.FIRST_AUDIO_PACKET, line_s=0.25)
CUT = FaultFound(
    fault=Fault.SPEECH_TRUNCATED, grade=Grade.HARD, origin=Origin.OUTPUT,
    detector=Detector.SPEECH, rule="samples_lost", detail="480 samples never came",
    at_ms=1230.0, value=480.0, limit=0.0, unit="samples",
)  # fmt: skip
TOKEN = MilestoneReached(milestone=Milestone.FIRST_TOKEN, seconds=0.1)
RESIDENCY = ResidencySampled(modality=Modality.AUDIO, hit_mass=9.0, lookup_mass=10.0, warm=True)
END = RequestFinished(outcome=Outcome.OK, faulted=False, cached_tokens=96, prompt_tokens=146)


def a_leg(*noted: EvidenceBody, **more: Any) -> Leg:
    """On "b", with overlapping stages of 0.2 s and what was found at the end of them."""
    given: dict[str, Any] = {
        "resident": "b", "version": "v1", "pool_epoch": 1, "route_epoch": 4, "level": Level(),
        "kv": KvRung.NATIVE, "span_id": LEG_SPAN, "boarded_s": 0.01, "departed_s": 0.1,
        "left_s": 0.6,
        "stages": (
            StageTime(stage=Stage.PREFILL, began_s=0.1, ended_s=0.3, busy_s=0.15),
            StageTime(stage=Stage.DECODE, began_s=0.3, ended_s=0.5, busy_s=0.1),
            StageTime(stage=Stage.TALKER, began_s=0.35, ended_s=0.55, busy_s=0.1),
        ),
        "noted": tuple(Noted(at_s=0.5, body=body) for body in noted),
        "examined": (Examined(detector=Detector.LIP_SYNC, judgement=Judgement.ABSTAINED,
                              why="under 4 s"),),
    }  # fmt: skip
    return Leg(**{**given, **more})


def a_record(*noted: EvidenceBody, **more: Any) -> RequestRecord:
    """Of a spoken answer that ended well."""
    given: dict[str, Any] = {
        "request_id": "r1", "received": 1_700_000_000.0, "session": "s1", "operator": False,
        "asked": Asked(model="redline", max_tokens=64, speech=True, stream=True,
                       media=MediaRung.FULL),
        "media": MediaRung.P360_8K,
        "trace": TraceNote(trace_id="ab" * 16, span_id=SPAN, keep=(Keep.SAMPLED,)),
        "stages": (StageTime(stage=Stage.DECODE_MEDIA, began_s=0.02, ended_s=0.09),),
        "legs": (a_leg(*noted),),
        "usage": Usage(prompt_tokens=146, cached_tokens=96, completion_tokens=12,
                       text_reason="stop"),
        "told": Told(at_s=0.3, status=200), "outcome": Outcome.OK, "ended_s": 0.61,
    }  # fmt: skip
    return RequestRecord(**{**given, **more})
