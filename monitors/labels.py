"""The closed enums that every label, wire type and table of Redline draws from.

A label value that is not here does not exist (the one open label is the version).
"""

from enum import StrEnum


class Modality(StrEnum):
    """The four modalities that share one semantic space and one hash table (S1.1)."""

    TEXT = "text"
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"


class Milestone(StrEnum):
    """The three first outputs of the latency table (S4.2)."""

    FIRST_TOKEN = "first_token"
    FIRST_AUDIO_PACKET = "first_audio_packet"
    FIRST_VIDEO_FRAME = "first_video_frame"


class Fault(StrEnum):
    """The three fault modes of the fault table (S4.3)."""

    LIP_DESYNC = "lip_desync"
    SPEECH_TRUNCATED = "speech_truncated"
    VIDEO_CORRUPT = "video_corrupt"


class Grade(StrEnum):
    """`HARD` faults count against the red line, `SOFT` ones only show."""

    HARD = "hard"
    SOFT = "soft"


class Origin(StrEnum):
    """Where a fault came in. Only what was added after `INPUT` may reach a verdict."""

    INPUT = "input"
    PIPELINE = "pipeline"
    OUTPUT = "output"


class Detector(StrEnum):
    """What examines a request for faults (`monitors/detectors`)."""

    TIMELINE = "timeline"  # the clocks of sound and picture
    LIP_SYNC = "lip_sync"  # the voice against the mouth
    SPEECH = "speech"  # generated speech: whole, and what it should say
    PLAYOUT = "playout"  # generated speech: there when a listener needs it
    BITSTREAM = "bitstream"  # coded video
    PIXELS = "pixels"  # decoded video
    OPERATIONS = "operations"  # what we did to the pixels ourselves


class Judgement(StrEnum):
    """How a detector left one item. `ABSTAINED`: it could not tell, which is not `CLEAN`;
    `FAILED`: it could not, because it is broken."""

    CLEAN = "clean"
    SOFT = "soft"
    HARD = "hard"
    ABSTAINED = "abstained"
    FAILED = "failed"


class Mark(StrEnum):
    """The worst that was found of a request, as the fault table counts it: each request once."""

    HARD = "hard"
    SOFT = "soft"
    INPUT_ONLY = "input_only"  # came in with the input, and nothing of ours is wrong with it


class Outcome(StrEnum):
    """How a request ended."""

    OK = "ok"
    FAILED = "failed"  # the resident answered with an error
    LOST = "lost"  # the resident died, or was cut over, with the request in flight
    CANCELLED = "cancelled"  # the client went away
    REPLAYED = "replayed"  # cut over before any output was sent: another resident began it again
    REFUSED = "refused"  # turned away: bad input, admission, shedding, no resident


class Stage(StrEnum):
    """What a request spends its time on, in the order in which each begins."""

    RECEIVE = "receive"  # its body comes in
    FETCH = "fetch"  # media that it only names is fetched
    DECODER_QUEUE = "decoder_queue"
    DECODE_MEDIA = "decode_media"
    QUEUE = "queue"  # in the engine's lanes
    ENCODE = "encode"
    PREFILL = "prefill"
    DECODE = "decode"
    TALKER = "talker"
    VOCODER = "vocoder"


class Keep(StrEnum):
    """Why the trace of a request is kept."""

    SAMPLED = "sampled"
    LINE = "line"  # it crossed one
    FAULT = "fault"  # one was found, of any grade and origin
    OUTCOME = "outcome"  # it did not end well


class Role(StrEnum):
    """What a resident is for. Never a label of a measurement: roles swap at promotion."""

    STABLE = "stable"
    CANARY = "canary"


class ResidentState(StrEnum):
    """The life of a resident's engine process, as its supervisor sees it."""

    LOADING = "loading"
    READY = "ready"
    DEAD = "dead"  # waiting out its back-off before a restart
    STOPPED = "stopped"


class Tier(StrEnum):
    """Where a page lives."""

    DEVICE = "device"
    HOST = "host"


class Lane(StrEnum):
    """The scheduler's priority queues, highest first (S2.3)."""

    AUDIO = "audio"
    KEY_FRAMES = "key_frames"
    TEXT = "text"


class Severity(StrEnum):
    """What an alert does: wake somebody, open a ticket, only act, or only beat."""

    PAGE = "page"
    TICKET = "ticket"
    ACTION = "action"
    HEARTBEAT = "heartbeat"


class Action(StrEnum):
    """What the alert receiver does on its own when an alert fires."""

    SHED = "shed"  # S2.4: the mildest rung
    DEGRADE_MEDIA = "degrade_media"  # S4.2
    QUANTISE_KV = "quantise_kv"  # S4.1
    LIMIT_ADMISSION = "limit_admission"  # the last rung
    ROLL_BACK = "roll_back"  # S4.3
    NONE = "none"


class Phase(StrEnum):
    """Where a rollout is (DESIGN 8). In `HOLD` and `FROZEN` nothing moves but toward B."""

    IDLE = "idle"
    PREPARE = "prepare"  # waits until both residents are ready
    WARMUP = "warmup"  # A has its weight; only faults are judged
    CANARY = "canary"  # A has its weight and is judged on every line
    PROMOTING = "promoting"
    BAKE = "bake"  # A serves all; B stays resident as the way back
    STABLE = "stable"
    ROLLING_BACK = "rolling_back"
    QUARANTINED = "quarantined"
    HOLD = "hold"
    FROZEN = "frozen"


class Storage(StrEnum):
    """What complete KV blocks are packed into (DESIGN 5)."""

    NATIVE = "native"
    INT8 = "int8"
    INT4 = "int4"
    SUBSPACE = "subspace"
