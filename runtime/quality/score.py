"""What an evaluation found: each answer, each task's score, and two reports compared."""

from collections.abc import Sequence

from monitors.contract import KvRung, Level, Wire
from runtime.quality.bootstrap import Estimate, bootstrap, difference, share
from runtime.quality.tasks import Kind

ALL = "all"


class Answer(Wire, frozen=True):
    """What was said to one sample. `nats`: the right answer's mean per token, its end included;
    `spoken`: the words read back from the sound, `None` where no speech was asked for."""

    number: int
    right: str
    text: str
    nats: float
    spoken: tuple[str, ...] | None = None

    @property
    def exact(self) -> bool:
        return self.text.strip() == self.right


class TaskScore(Wire, frozen=True):
    """`exact`: the share of right texts. `nats`: mean over samples. Of speech: `spoken`, the share
    that speaks the right answer; `read_back`, the share that speaks the model's own text;
    `word_accuracy`, one less the word error rate against the right answer."""

    task: Kind
    n: int
    exact: Estimate
    nats: Estimate
    spoken: Estimate | None
    read_back: Estimate | None
    word_accuracy: float | None
    answers: tuple[Answer, ...]


class KvUse(Wire, frozen=True):
    """What the KV policy did. `eligible`: (layer, block) entries that might have aliased, `None`
    while reuse is off; bytes are those of live pages at the ends of answers."""

    rule: str
    eligible: int | None
    aliased: int
    aliased_share: float | None
    bytes_per_token: float
    native_bytes_per_token: float


class Report(Wire, frozen=True):
    """One evaluation, whole: the same plan and checkpoint give the same report."""

    version: str
    weights_digest: str
    policy: str
    kv: KvRung
    rung: int
    level: Level
    seconds: int
    count: int
    seed: int
    speech: bool
    kv_use: KvUse
    tasks: tuple[TaskScore, ...]


class Difference(Wire, frozen=True):
    """The second report less the first, over the same `n` samples of a task, or of `ALL`."""

    task: str
    n: int
    exact: Estimate
    nats: Estimate


def score(task: Kind, answers: Sequence[Answer]) -> TaskScore:
    """Raises `ValueError` where there is no answer."""
    heard = [(answer, answer.spoken) for answer in answers if answer.spoken is not None]
    return TaskScore(
        task=task,
        n=len(answers),
        exact=share([answer.exact for answer in answers]),
        nats=bootstrap([answer.nats for answer in answers]),
        spoken=share([list(s) == a.right.split() for a, s in heard]) if heard else None,
        read_back=share([list(s) == a.text.split() for a, s in heard]) if heard else None,
        word_accuracy=_word_accuracy([(a.right.split(), s) for a, s in heard]) if heard else None,
        answers=tuple(answers),
    )


def compare(before: Report, after: Report) -> tuple[Difference, ...]:
    """Task by task, then all together. Raises `ValueError` unless both saw the same samples."""
    asked = [
        (r.seed, [[(a.number, a.right) for a in t.answers] for t in r.tasks], _names(r))
        for r in (before, after)
    ]
    if asked[0] != asked[1]:
        raise ValueError(
            "the two reports are of different samples: give both the same tasks, seconds, count"
            " and seed"
        )
    pairs = list(zip(before.tasks, after.tasks, strict=True))
    single = [_difference(b.task, b.answers, a.answers) for b, a in pairs]
    every = [[answer for task in r.tasks for answer in task.answers] for r in (before, after)]
    return (*single, _difference(ALL, *every))


def _names(report: Report) -> list[Kind]:
    return [task.task for task in report.tasks]


def _difference(task: str, before: Sequence[Answer], after: Sequence[Answer]) -> Difference:
    return Difference(
        task=task,
        n=len(before),
        exact=difference([a.exact for a in before], [a.exact for a in after]),
        nats=bootstrap([a.nats - b.nats for b, a in zip(before, after, strict=True)]),
    )


def _word_accuracy(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> float:
    """One less the word error rate, over all words together; at least 0."""
    errors = sum(_edits(right, said) for right, said in pairs)
    return max(0.0, 1.0 - errors / sum(len(right) for right, _ in pairs))


def _edits(right: Sequence[str], said: Sequence[str]) -> int:
    """Words to insert, drop or change to come from one to the other (Levenshtein)."""
    row = list(range(len(said) + 1))
    for i, word in enumerate(right, start=1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(said, start=1):
            changed = diagonal + (word != other)
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, changed)
    return row[-1]
