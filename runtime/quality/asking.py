"""A sample as a request: the one way in which measurements put their questions to an engine."""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.media.fidelity import Fidelity
from runtime.quality.held_out import Sample, at_fidelity
from runtime.quality.tasks import parts_of, question_part
from runtime.residents.port import Array, Generate, Turn


@dataclass(frozen=True, eq=False)
class Asked:
    """One sample as a request."""

    sample: Sample
    generate: Generate
    arrays: Sequence[Array]

    @property
    def right(self) -> str:
        return self.sample.question.answer


def ask(sample: Sample, fidelity: Fidelity, max_tokens: int, voice: str, *, speech: bool) -> Asked:
    """The request leaves nothing in any cache."""
    parts, arrays = parts_of(at_fidelity(sample.media, fidelity), sample.name)
    turn = Turn(role="user", parts=(*parts, *question_part(sample.question)))
    generate = Generate(
        request_id=sample.name,
        session="",
        turns=(turn,),
        max_tokens=max_tokens,
        speech=speech,
        voice=voice,
        salt="",
        cache_write=False,
    )
    return Asked(sample, generate, arrays)
