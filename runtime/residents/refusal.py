"""How an engine process says that it will never serve what it was given, and its gateway hears it.

A crash may pass and is tried again; a refusal stands until somebody mends the checkpoint, the
settings or the machine.
"""

from runtime.residents.port import ResidentError

REFUSED_EXIT = 78  # EX_CONFIG of sysexits.h; the last line of the engine's log says why


class ResidentRefused(ResidentError):
    """The engine will not serve this checkpoint here; the message says what to do."""
