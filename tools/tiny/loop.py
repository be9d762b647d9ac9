"""A training loop that can be stopped at any step and goes on as if it had not been."""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

SAVE_EVERY = 250
MEAN_OVER = 50  # steps that a figure on the progress bar is the mean of
WARM_UP = 50  # steps to the full rate
LEAST = 0.03  # of the rate, at the end

Tell = Callable[[str, int, int, Mapping[str, float]], None]  # stage, step, of, figures


class Loop:
    """Steps of one stage over `module` with AdamW, gradients clipped at norm 1.

    Weights, optimiser, both random states and the step count live in one file, written every
    `save_every` steps; a `Loop` that finds its file goes on from there. `rng` is the caller's: it
    must draw from nothing else.
    """

    def __init__(
        self,
        name: str,
        file: Path,
        module: nn.Module,
        rng: np.random.Generator,
        *,
        rate: float,
        decay: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.98),
        save_every: int = SAVE_EVERY,
        tell: Tell,
    ) -> None:
        self._name, self._file, self._module, self._rng = name, file, module, rng
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._optimiser = torch.optim.AdamW(
            self._parameters, lr=rate, betas=betas, weight_decay=decay
        )
        self._rate, self._save_every, self._tell, self._done = rate, save_every, tell, 0
        self._figures: list[Mapping[str, float]] = []
        if file.exists():
            self._restore(torch.load(file, weights_only=True))

    def steps(self, total: int) -> Iterator[int]:
        """Each step that is still to do, of `total`; the rate follows a cosine over all."""
        while self._done < total:
            warm = min(1.0, (self._done + 1) / WARM_UP)
            cosine = 0.5 * (1.0 + math.cos(math.pi * self._done / total))
            for group in self._optimiser.param_groups:
                group["lr"] = self._rate * warm * max(LEAST, cosine)
            yield self._done
            self._done += 1
            if self._done % self._save_every == 0 or self._done == total:
                self._save()

    def learn(self, loss: Tensor, total: int, **figures: float) -> None:
        """One update from `loss`; `figures` go to the progress bar."""
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, 1.0)
        self._optimiser.step()
        self._optimiser.zero_grad()
        self._figures = [*self._figures[1 - MEAN_OVER :], {"loss": loss.item(), **figures}]
        means = {k: float(np.mean([f[k] for f in self._figures if k in f])) for k in figures}
        self._tell(self._name, self._done + 1, total, means)

    def _save(self) -> None:
        state = {
            "done": self._done,
            "weights": self._module.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "torch": torch.get_rng_state(),
            "numpy": self._rng.bit_generator.state,
        }
        part = self._file.with_suffix(".part")
        torch.save(state, part)
        os.replace(part, self._file)

    def _restore(self, state: dict[str, Any]) -> None:
        self._done = state["done"]
        self._module.load_state_dict(state["weights"])
        self._optimiser.load_state_dict(state["optimiser"])
        torch.set_rng_state(state["torch"])
        self._rng.bit_generator.state = state["numpy"]
