"""How a routed request can end badly, and what its client is told of it."""

from monitors.contract import Name
from monitors.labels import Outcome, ResidentState
from runtime.openai_errors import ApiError
from runtime.residents.port import Failed

RETRY_AFTER_S = 1
LIMITED_RETRY_AFTER_S = 10


def of_engine(failed: Failed, *, begun: bool) -> ApiError:
    """What an engine's failure is to the client; those worth another try say when. `begun`: some
    of the answer was sent."""
    match failed.kind:
        case "bad_request":
            return ApiError(400, failed.message, code="invalid_value", param="messages")
        case "lost":
            return _retry(failed.message, "resident_lost", begun=begun)
        case "overloaded" | "shed":
            return _retry(failed.message, "overloaded", begun=begun)
        case _:
            return ApiError(500, failed.message, code="engine_error")


def outcome_of(failed: Failed) -> Outcome:
    """How a request ended that its engine failed."""
    match failed.kind:
        case "bad_request" | "shed":
            return Outcome.REFUSED  # a client's mistake, or our own order: no fault of the version
        case "lost":
            return Outcome.LOST
        case _:
            return Outcome.FAILED


def cut_over(*, begun: bool) -> ApiError:
    """The resident was taken out of traffic, and no other could take the request over."""
    message = "the resident that answered was taken out of traffic"
    return _retry(message, "resident_cut_over", begun=begun)


def not_kept() -> ApiError:
    """It was lost or taken out before it sent anything; what came in is no longer here."""
    message = "its resident is out of traffic, and its media was too large to be kept"
    return _retry(message, "input_not_kept")


def stopping(*, begun: bool) -> ApiError:
    """The data plane ends."""
    return _retry("the server is stopping", "server_stopping", begun=begun)


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


def _retry(message: str, code: str, *, begun: bool = False) -> ApiError:
    advice = "discard what came of this answer and ask again" if begun else "ask again"
    return ApiError(503, f"{message}; {advice}", code=code, retry_after_s=RETRY_AFTER_S)
