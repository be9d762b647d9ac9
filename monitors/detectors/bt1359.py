"""How far sound may stand from its picture: ITU-R BT.1359-1. Audio minus video, early negative."""

DETECTABLE_MS = (-45.0, 125.0)  # half of all viewers notice beyond it
ACCEPTABLE_MS = (-90.0, 185.0)  # beyond it the programme is not fit to air


def beyond(offset_ms: float, limits: tuple[float, float]) -> float | None:
    """The limit that an offset is past; None: it is within."""
    early, late = limits
    if offset_ms < early:
        return early
    return late if offset_ms > late else None
