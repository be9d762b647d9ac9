"""Names on spans: OpenTelemetry's conventions where they have one, else `redline.`."""

from enum import StrEnum

ROUTE = "/v1/chat/completions"


class Attribute(StrEnum):
    """Attributes of spans and of their events."""

    OPERATION = "gen_ai.operation.name"
    PROVIDER = "gen_ai.provider.name"
    CONVERSATION = "gen_ai.conversation.id"
    REQUEST_MODEL = "gen_ai.request.model"
    REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
    REQUEST_STREAM = "gen_ai.request.stream"
    RESPONSE_MODEL = "gen_ai.response.model"
    RESPONSE_ID = "gen_ai.response.id"
    FINISH_REASONS = "gen_ai.response.finish_reasons"
    TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
    OUTPUT_TYPE = "gen_ai.output.type"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
    INPUT_MESSAGES = "gen_ai.input.messages"  # with capture_content only
    OUTPUT_MESSAGES = "gen_ai.output.messages"  # with capture_content only

    HTTP_METHOD = "http.request.method"
    HTTP_ROUTE = "http.route"
    HTTP_STATUS = "http.response.status_code"
    URL_PATH = "url.path"
    URL_SCHEME = "url.scheme"
    ERROR = "error.type"

    REQUEST_ID = "redline.request_id"
    OUTCOME = "redline.outcome"
    KEPT = "redline.kept"
    LEGS = "redline.legs"
    OPERATOR = "redline.operator"
    ASKED_MEDIA = "redline.media.asked"
    MEDIA = "redline.media"
    RESIDENT = "redline.resident"
    RESIDENT_LEFT = "redline.resident.left"
    VERSION = "redline.version"
    ROUTE_EPOCH = "redline.route_epoch"
    POOL_EPOCH = "redline.pool_epoch"
    LEVEL = "redline.level"
    KV = "redline.kv"
    BUSY = "redline.busy_s"

    SECONDS = "redline.seconds"  # from the last input byte
    LINE = "redline.line_s"
    MILESTONE = "redline.milestone"
    FAULT = "redline.fault"
    GRADE = "redline.fault.grade"
    ORIGIN = "redline.fault.origin"
    DETECTOR = "redline.fault.detector"
    RULE = "redline.fault.rule"
    DETAIL = "redline.fault.detail"
    AT_MS = "redline.fault.at_ms"
    VALUE = "redline.fault.value"
    LIMIT = "redline.fault.limit"
    UNIT = "redline.fault.unit"


class EventName(StrEnum):
    """Events of a request's span; a first output's event has the milestone's name."""

    LINE = "line crossed"
    FAULT = "fault"
    CUT_OVER = "cut over"
