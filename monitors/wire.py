"""What every message between processes is made of: its base, and the numbers and names in it."""

from typing import Annotated

import msgspec

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Epoch = Annotated[int, msgspec.Meta(ge=0)]
Lease = Annotated[float, msgspec.Meta(gt=0.0)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of everything that crosses a process border."""
