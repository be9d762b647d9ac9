"""`--allow`, `--deny` and `--mirror` of `redline rollout start`: keys become digests right here."""

from pathlib import Path

import msgspec

from monitors.client_key import CanaryClients, digest_of
from rollout.audience import Audience


class AudienceError(ValueError):
    """What cannot be a list of clients; the message says why, and never quotes a key."""


def audience_of(allow: list[str], deny: list[str], mirror: int) -> Audience:
    """Of API keys, or `@FILE` with one a line; none allowed: everybody is. Raises
    `AudienceError`."""
    allowed = _digests("--allow", allow, "allowed")
    denied = _digests("--deny", deny, "denied")
    try:
        return msgspec.convert(
            {"clients": _lists(allowed, denied), "mirror_weight": mirror}, type=Audience
        )
    except msgspec.ValidationError as err:
        raise AudienceError(f"{err}: at most 500 keys a list, and 100 % of sessions") from err


def _lists(allowed: tuple[str, ...], denied: tuple[str, ...]) -> CanaryClients:
    lists = {"allow": allowed or None, "deny": denied}
    return msgspec.convert(lists, type=CanaryClients)


def _digests(option: str, given: list[str], done: str) -> tuple[str, ...]:
    keys = (key.strip() for word in given for key in _keys(option, word))
    digests = tuple(dict.fromkeys(digest_of(key) for key in keys if key))
    if given and not digests:
        raise AudienceError(f"{option}: there is no key in it, so nobody would be {done}")
    return digests


def _keys(option: str, word: str) -> list[str]:
    if not word.startswith("@"):
        return [word]
    try:
        return Path(word[1:]).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as err:
        raise AudienceError(f"{option} {word}: cannot be read ({err})") from err
