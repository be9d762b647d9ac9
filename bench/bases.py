"""Bases of the bench's models: shipped ones, or learned from prose on the spot."""

from bench.models import TextModel, shipped
from bench.paged_text import PagedText, held_out, pool_bytes, prompt, settings
from runtime.kv import subspace_file
from runtime.kv.collect import unrotated
from runtime.kv.fitting import SubspaceFit
from runtime.kv.subspace import Subspace

TOKENS = 2048  # of a text
TEXTS, FEW = 8, 1
BITS = 3.25  # where speed alone is asked


def learned(model: TextModel, texts: int = TEXTS) -> SubspaceFit:
    """From texts that stand elsewhere than the held-out ones."""
    fit = SubspaceFit(model.layers, model.shape.channels)
    for ids in held_out(model, texts, TOKENS, seed=1):
        run = PagedText(model, settings(model, pool_bytes(model, TOKENS)))
        sequence = run.open(prompt(ids), 1)
        run.prefill(sequence)
        fit.add(*unrotated(run.kv, sequence, model.rotary))
    return fit


def bases(model: TextModel) -> Subspace:
    """Good enough to measure speed with."""
    if model.name != "tiny":
        return learned(model, FEW).fit(BITS, model.rotary)
    loaded = shipped()
    return subspace_file.load(
        loaded.folder,
        loaded.weights_digest,
        model.rotary,
        loaded.device,
        layers=model.layers,
        channels=model.shape.channels,
    )
