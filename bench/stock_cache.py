"""A cache of transformers over SmolLM2's stock attention, filled, dictated to and decoded over."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import Cache, DynamicCache

from bench import smollm
from bench.models import DENSE, smol
from bench.paged_text import SLICE, Ids


def dynamic() -> Cache:
    """The one that `generate` takes by default."""
    return DynamicCache(config=smollm.load()[0].config)


class Stock:
    """A cache of transformers, under the stock attention."""

    def __init__(
        self,
        make: Callable[[], Cache],
        press: Callable[[Any], AbstractContextManager[object]] = lambda _: nullcontext(),
    ) -> None:
        self._model, _ = smollm.load()
        self._make, self._press = make, press
        self._cache, self._last, self._length = make(), torch.empty(0), 0

    def fill(self, ids: Ids) -> None:
        self._cache, self._length = self._make(), 0
        with self._press(self._model):
            self._last = self._feed(ids)[-1:]

    def nats(self, ids: Ids) -> NDArray[np.float64]:
        nats: list[float] = []
        for start in range(0, len(ids), SLICE):
            part = ids[start : start + SLICE]
            hidden = self._feed(part)
            seen = smol().logits(torch.cat([self._last, hidden[:-1]])).double().log_softmax(-1)
            nats += (-seen[torch.arange(len(part)), torch.from_numpy(part)]).tolist()
            self._last = hidden[-1:]
        return np.array(nats)

    def step(self) -> Tensor:
        token = int(smol().logits(self._last).argmax(-1))
        return self._feed(np.array([token], np.int64))

    def bytes_per_token(self) -> float:
        return sum(_held(vars(layer)) for layer in self._cache.layers) / self._length

    @torch.inference_mode()
    def _feed(self, ids: Ids) -> Tensor:
        self._model.config._attn_implementation = DENSE
        at = torch.arange(self._length, self._length + len(ids))[None]
        out = self._model.model(
            input_ids=torch.from_numpy(ids)[None], position_ids=at, cache=self._cache,
            use_cache=True,
        )  # fmt: skip
        self._length += len(ids)
        return out.last_hidden_state[0]


def _held(thing: object) -> int:
    """Bytes of all tensors in it; a quantised tensor counts its codes, scales and zero points."""
    if isinstance(thing, dict):
        return sum(_held(value) for value in thing.values())
    if isinstance(thing, tuple):
        return sum(_held(value) for value in thing)
    if not isinstance(thing, Tensor):
        return 0
    flatten = getattr(thing, "__tensor_flatten__", None)
    if type(thing) is Tensor or flatten is None:
        return thing.nbytes
    names, _ = flatten()
    return sum(_held(getattr(thing, name)) for name in names)
