"""Does a learned rule choose better than entropy, or than chance? Aliases at equal rates (S5.1).

Rules are fitted on some samples and compared on others. Two controls tell why: `distance` needs no
learning, and `at random in the learned cells` takes the learned rule's share of each layer and
modality, but any of its entries. The tiny checkpoint has one layer that may alias: there a rule
cannot choose between layers, only foretell what is safe.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.board import Direction, Figure, unmeasured
from bench.clips import POOL_BYTES
from bench.learned_rules import Watch, at_rate, foretold
from bench.models import shipped, smol
from bench.paged_text import PagedText, as_modalities, held_out, pool_bytes, prompt, settings
from bench.smollm import WeightsMissing
from runtime.engine.build import reusable_layers
from runtime.engine.shadow import divergence
from runtime.kv.reuse import ReusePolicy, ReuseRule, upper_layers
from runtime.model import checkpoint as checkpoints
from runtime.model.checkpoint import Checkpoint
from runtime.model.shipped import SHIPPED
from runtime.quality.bootstrap import Estimate, bootstrap
from runtime.quality.calibration_report import CalibrationPlan
from runtime.quality.calibration_runs import Outcome, Runs
from runtime.quality.learning import gather, train
from runtime.quality.policies import NEVER, Tally

RATE = 0.1  # of all entries (layer, block)
CLIPS, QUICK_CLIPS = 30, 6  # to learn from, and as many to compare on
TEXTS, QUICK_TEXTS = (6, 8), (1, 2)  # to learn from, to compare on
CONTEXT, TAIL = 512, 64
SAFE = 0.001  # nats a token that an alias may be foretold to cost
HARM = 100.0  # times larger are the first layer's values where sharing is harmful


@dataclass(frozen=True, eq=False)
class Said:
    """An answer: mean nats a token, and all that its divergence from another needs."""

    nats: float
    entries: int  # (layer, block) entries of its table, aliased or not
    whole: Any


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, samples to learn from and samples to compare on."""

    name: str
    layers: Sequence[int]
    learning: Sequence[Any]
    comparing: Sequence[Any]
    answer: Callable[[Any, ReuseRule], Said]
    apart: Callable[[Said, Said], float]


def figures(*, quick: bool) -> list[Figure]:
    count = QUICK_CLIPS if quick else CLIPS
    rows = [*_compared(_clips("tiny", shipped(), count))]
    rows += _compared(_clips("tiny, layers apart", _apart(), count))
    try:
        return [*rows, *_compared(_texts(*(QUICK_TEXTS if quick else TEXTS)))]
    except WeightsMissing as err:
        return [*rows, unmeasured("a learned rule: SmolLM2", str(err))]


def _compared(subject: Subject) -> Iterator[Figure]:
    """Nats lost under each rule, then how much less the learned one loses than the others."""
    nets = train(gather(subject.learning, subject.layers, subject.answer, subject.apart))
    watch = Watch()
    entries = sum(subject.answer(sample, watch).entries for sample in subject.learning)
    share = 100 * float(np.mean([harm <= SAFE for harm in foretold(watch.seen, nets)]))
    yield Figure(
        f"entries foretold to cost at most {SAFE} nats a token: {subject.name}", share, "%", None,
        f"{len(watch.seen)} entries",
    )  # fmt: skip
    full = [subject.answer(sample, NEVER) for sample in subject.comparing]
    lost: dict[str, list[float]] = {}
    for name, rule in at_rate(RATE * entries / len(watch.seen), watch.seen, nets).items():
        scored = Tally(rule)
        said = [subject.answer(sample, scored) for sample in subject.comparing]
        lost[name] = [a.nats - b.nats for a, b in zip(said, full, strict=True)]
        share = 100 * scored.aliased / sum(one.entries for one in full)
        yield _figure(
            f"nats lost: {subject.name}, {share:.1f} % of entries aliased, {name}",
            bootstrap(lost[name]),
            f"no reuse: {np.mean([one.nats for one in full]):.4f}; {len(full)} samples",
        )
    for name in [name for name in lost if name != "learned"]:
        less = bootstrap([a - b for a, b in zip(lost["learned"], lost[name], strict=True)])
        yield _figure(f"nats lost: {subject.name}, learned less {name}", less, "paired by sample")


def _figure(bar: str, found: Estimate, peer: str) -> Figure:
    return Figure(
        bar, found.value, "nats a token", None, peer, Direction.AT_MOST, found.low, found.high
    )


# ---------------------------------------------------------------- clips, on the tiny checkpoint
def _clips(name: str, loaded: Checkpoint, count: int) -> Subject:
    runs = Runs(loaded, CalibrationPlan(1.0, clips=count, pool_bytes=POOL_BYTES), lambda: None)

    def answer(clip: Any, rule: ReuseRule) -> Said:
        tables: list[int] = []
        outcome = runs.run(
            [clip], rule, ended=lambda kv, s: tables.append(kv.pool.layers * len(s.table.blocks))
        )
        return Said(float(outcome.nats.mean()), sum(tables), outcome)

    def apart(full: Said, other: Said) -> float:
        return runs.divergence(_outcome(full), _outcome(other)).value

    return Subject(name, reusable_layers(loaded), runs.clips(0), runs.clips(1), answer, apart)


def _outcome(said: Said) -> Outcome:
    return said.whole


def _apart() -> Checkpoint:
    """The same model, saying the same, but layer 0 keeps values that layer 1 cannot use."""
    loaded = checkpoints.load(next(iter(SHIPPED.values())))
    attention: Any = loaded.model.thinker.model.language_model.layers[0].self_attn
    attention.v_proj.weight.data.mul_(HARM)
    attention.o_proj.weight.data.div_(HARM)
    return loaded


# ---------------------------------------------------------------- texts, on SmolLM2
def _texts(learning: int, comparing: int) -> Subject:
    model = smol()
    texts = held_out(model, comparing + learning, CONTEXT + TAIL)
    layers = upper_layers(model.layers, None)
    return Subject(
        name=f"{model.name}, never trained for sharing",
        layers=layers,
        learning=texts[comparing:],
        comparing=texts[:comparing],
        answer=partial(_text, layers),
        apart=lambda full, other: divergence(full.whole, other.whole).nats,
    )


def _text(layers: tuple[int, ...], ids: Any, rule: ReuseRule) -> Said:
    """The tail dictated behind the context, whose quarters are called modalities."""
    model = smol()
    policy = ReusePolicy("on", rule, layers)
    run = PagedText(model, settings(model, pool_bytes(model, len(ids)), reuse=policy))
    sequence = run.open(prompt(ids[:CONTEXT], as_modalities(CONTEXT)), TAIL)
    logits: list[Tensor] = []
    nats = run.dictate(sequence, run.prefill(sequence), ids[CONTEXT:], note=logits.append)
    entries = model.layers * len(sequence.table.blocks)
    run.kv.close(sequence)
    return Said(float(nats.mean()), entries, torch.cat(logits))
