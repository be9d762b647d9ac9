"""Code2Wav as a stream: codec frames in, the very samples of a whole-sequence decode out."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as qwen

from runtime.model.checkpoint import Checkpoint

Pcm = NDArray[np.float32]


class CodecStream:
    """Waveform of one answer, float32 mono in [-1, 1] at 24 kHz.

    The decoder looks `delay` samples ahead: after n frames `n * samples_per_frame - delay` are
    out, and they equal Code2Wav over all n frames (which stops there). `finish` gives the last
    `delay`, decoded with silence ahead, so that the total is n * samples_per_frame exactly.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._decoder: Any = checkpoint.model.code2wav
        config = self._decoder.config
        self.samples_per_frame = math.prod([*config.upsampling_ratios, *config.upsample_rates])
        self.delay = look_ahead(config.upsample_rates)
        self.frames = 0
        self.samples = 0
        self._cache = DynamicCache(config=config)
        self._convolve = StreamedConvolutions()

    @torch.inference_mode()
    def push(self, codes: Tensor) -> Pcm:
        """(8, n) codes of the next n frames -> (samples,)."""
        decoder = self._decoder
        embedded = decoder.code_embedding(codes[None] + decoder.code_offset).mean(1)
        out = decoder.pre_transformer(inputs_embeds=embedded, cache=self._cache, use_cache=True)
        self.frames += codes.shape[1]
        return self._pcm(out.last_hidden_state.transpose(1, 2))

    @torch.inference_mode()
    def finish(self) -> Pcm:
        """The last `delay` samples; none where no frame ever came."""
        due = self.frames * self.samples_per_frame - self.samples
        if due == 0:
            return np.zeros(0, np.float32)
        silence = torch.zeros(1, self._decoder.config.hidden_size, 1, dtype=self._decoder.dtype)
        return self._pcm(silence.to(self._decoder.device))[:due]

    def _pcm(self, hidden: Tensor) -> Pcm:
        for stage in [*self._decoder.upsample, self._decoder.decoder]:
            for module in stage:
                hidden = self._convolve(module, hidden)
        pcm = hidden[0, 0].clamp(-1.0, 1.0).float().cpu().numpy()
        self.samples = min(self.samples + len(pcm), self.frames * self.samples_per_frame)
        return pcm


class StreamedConvolutions:
    """Runs Code2Wav's causal convolutions piece by piece: each remembers what it still hears.

    Pieces behind each other give what the modules give on the whole, and cost no more.
    """

    def __init__(self) -> None:
        self._past: dict[Any, Tensor] = {}

    def __call__(self, module: Any, x: Tensor) -> Tensor:
        """(1, C, t) -> (1, C', t') through one module of Code2Wav."""
        match module:
            case qwen.Qwen3OmniMoeCausalConvNet():
                return self._causal(module, x)
            case qwen.Qwen3OmniMoeCausalTransConvNet():
                return self._transposed(module, x)
            case qwen.Qwen3OmniMoeConvNeXtBlock():
                y = module.norm(self._causal(module.dwconv, x).transpose(1, 2))
                y = module.gamma * module.pwconv2(module.act(module.pwconv1(y)))
                return x + y.transpose(1, 2)
            case qwen.Qwen3OmniMoeCode2WavDecoderResidualUnit():
                y = self._causal(module.conv1, module.act1(x))
                return x + self._causal(module.conv2, module.act2(y))
            case qwen.Qwen3OmniMoeCode2WavDecoderBlock():
                for inner in module.block:
                    x = self(inner, x)
                return x
            case _:
                return module(x)  # an activation: no memory

    def _causal(self, module: Any, x: Tensor) -> Tensor:
        """A convolution hears `padding` steps back; before the start they are silence."""
        if module.padding == 0:
            return module.conv(x)
        past = self._past.get(module)
        if past is None:
            past = x.new_zeros(1, x.shape[1], module.padding)
        heard = torch.cat([past, x], dim=2)
        self._past[module] = heard[..., -module.padding :]
        return module.conv(heard)

    def _transposed(self, module: Any, x: Tensor) -> Tensor:
        """One step becomes a stride of samples, each made of it and the step before it.

        The first step has none before it and waits for the next: that is the look-ahead.
        """
        if module.left_pad == 0:  # kernel and stride are equal: steps do not touch
            return module(x)
        past = self._past.get(module)
        self._past[module] = x[..., -1:]
        return module(x if past is None else torch.cat([past, x], dim=2))


def look_ahead(upsample_rates: Sequence[int]) -> int:
    """Samples by which the output ends early: each overlapping upsampling waits for one step."""
    return sum(math.prod(upsample_rates[k:]) for k in range(len(upsample_rates)))
