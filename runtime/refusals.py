"""The errors a routed request can end with, as its client sees them."""

from monitors.contract import Name
from monitors.labels import ResidentState
from runtime.openai_errors import ApiError
from runtime.residents.port import Failed

RETRY_AFTER_S = 1
LIMITED_RETRY_AFTER_S = 10


def of_engine(failed: Failed) -> ApiError:
    """What an engine's failure is to the client; those worth another try say when."""
    match failed.kind:
        case "bad_request":
            return ApiError(400, failed.message, code="invalid_value", param="messages")
        case "lost":
            return _retry(failed.message, "resident_lost")
        case "overloaded" | "shed":
            return _retry(failed.message, "overloaded")
        case _:
            return ApiError(500, failed.message, code="engine_error")


def cut_over() -> ApiError:
    """The resident was taken out of traffic after output had been sent."""
    return _retry("the resident that answered was taken out of traffic", "resident_cut_over")


def stopping() -> ApiError:
    """The data plane ends."""
    return _retry("the server is stopping", "server_stopping")


def not_ready(name: Name, state: ResidentState) -> ApiError:
    """Nobody can take the request."""
    return _retry(f"no resident can take requests: {name!r} is {state}", "no_resident")


def crowded(held_bytes: int) -> ApiError:
    """The media of those in flight fill the memory that there is for them."""
    message = f"the media in flight take {held_bytes} bytes, more than limits.held_bytes"
    return _retry(message, "overloaded")


def limited() -> ApiError:
    """Admission is closed to new sessions."""
    return ApiError(
        429,
        "no new sessions are taken at the moment; those under way go on",
        code="admission_limited",
        retry_after_s=LIMITED_RETRY_AFTER_S,
    )


def _retry(message: str, code: str) -> ApiError:
    return ApiError(503, f"{message}; ask again", code=code, retry_after_s=RETRY_AFTER_S)
