"""One request as its client put it: read and checked, not yet routed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from monitors.client_key import ClientKey
from monitors.contract import MediaRung, Name, SessionClass
from monitors.labels import Milestone
from runtime import turns
from runtime.media.client_digest import ClientDigest
from runtime.openai_api import ChatRequest
from runtime.traces import RequestTrace
from runtime.turns import Files


@dataclass(frozen=True)
class Ask:
    """One request as it came in. `since`: when its last byte did (monotonic seconds)."""

    session: str | None  # None: the request stands alone
    chat: ChatRequest
    files: Files
    since: float
    wish: MediaRung
    pinned: Name | None  # an operator's choice of resident: never evidence
    salt: str
    trace: RequestTrace
    client: ClientKey | None = None  # whose it is; None: it shows no API key
    session_class: SessionClass = SessionClass.INTERACTIVE
    digests: Mapping[str, ClientDigest] = field(default_factory=dict[str, ClientDigest])

    @property
    def request_id(self) -> str:
        return self.trace.request_id

    def expects(self) -> frozenset[Milestone]:
        """The first outputs that are due."""
        due = {Milestone.FIRST_TOKEN}
        if self.chat.speech:
            due.add(Milestone.FIRST_AUDIO_PACKET)
        if turns.has_video(self.chat):
            due.add(Milestone.FIRST_VIDEO_FRAME)
        return frozenset(due)

    def without_content(self) -> "Ask":
        """What is still of use once the content is decoded: uploads are large."""
        return replace(self, chat=self.chat.model_copy(update={"messages": []}), files={})
