"""Where the time of one request goes in the engine: each stage's first start and last end."""

from dataclasses import dataclass

from monitors.labels import Stage
from runtime.residents.port import EngineStage


@dataclass
class _Spell:
    began: float
    ended: float
    busy_s: float | None


class Stages:
    """Times are the engine's clock, seconds. On an accelerator that computes behind our back, a
    stage ends when its work was handed over, and its last one when the result was read."""

    def __init__(self) -> None:
        self._spells: dict[Stage, _Spell] = {}

    def add(self, stage: Stage, began: float, ended: float) -> None:
        """A piece of work on the request; pieces of one stage may lie far apart."""
        spell = self._spells.setdefault(stage, _Spell(began, began, 0.0))
        spell.ended = ended
        spell.busy_s = (spell.busy_s or 0.0) + ended - began

    def waited(self, stage: Stage, began: float, ended: float) -> None:
        """A stage in which nothing is done."""
        self._spells[stage] = _Spell(began, ended, None)

    def told(self) -> tuple[EngineStage, ...]:
        """Those there were, in the order in which they began."""
        return tuple(
            EngineStage(stage=stage, began=s.began, ended=s.ended, busy_s=s.busy_s)
            for stage, s in sorted(self._spells.items(), key=lambda item: item[1].began)
        )
