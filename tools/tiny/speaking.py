"""The Talker's side of training: what was heard and the text to speak -> codec frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from monitors.labels import Modality
from runtime.kv.tokens import CODE
from runtime.model.prompt import Prompt
from runtime.model.talker import SpeechInput, closed_up
from runtime.model.timeline import text_positions
from tools.tiny.speech_codes import GROUPS, codes_of

PREDICTED_FRAMES = 192  # of a batch, whose residual codes are trained on
SILENT = -100


@dataclass(frozen=True, eq=False)
class Utterance:
    """One answer to speak: `prompt` ends where the answer starts; `states` (n, H) of its tokens."""

    prompt: Prompt
    states: Tensor
    tokens: tuple[int, ...]
    words: tuple[str, ...]
    voice: str


def speak(model: Any, utterances: Sequence[Utterance]) -> Tensor:
    """Mean cross-entropy of all eight codes, the end of speech among the first."""
    speech = SpeechInput(model)
    rows = [_row(model, speech, one) for one in utterances]
    longest = max(row.emb.shape[1] for row in rows)
    emb = torch.cat([functional.pad(r.emb, (0, 0, 0, longest - r.emb.shape[1])) for r in rows])
    positions = torch.stack(
        [functional.pad(r.positions, (0, longest - r.positions.shape[1])) for r in rows], dim=1
    )
    hidden = model.talker.model(
        inputs_embeds=emb, position_ids=positions, use_cache=False
    ).last_hidden_state
    frames, codes, ends = [], [], []
    for row, of in enumerate(rows):
        count = of.codes.shape[1]
        frames.append(hidden[row, of.start : of.start + count])
        codes.append(of.codes.T)
        ends.append(hidden[row, of.start + count])
    states, wanted = torch.cat([*frames, torch.stack(ends)]), torch.cat(codes)
    end = torch.full((len(rows),), model.config.talker_config.codec_eos_token_id)
    first = functional.cross_entropy(
        model.talker.codec_head(states), torch.cat([wanted[:, 0], end])
    )
    picked = torch.randperm(len(wanted))[:PREDICTED_FRAMES]
    rest = _residual_loss(model, states[picked], wanted[picked])
    return (first + (GROUPS - 1) * rest) / GROUPS


@dataclass(frozen=True, eq=False)
class _Row:
    emb: Tensor  # (1, t, D)
    positions: Tensor  # (3, t)
    codes: Tensor  # (8, frames)
    start: int  # the place that leads to the first frame


def _row(model: Any, speech: SpeechInput, one: Utterance) -> _Row:
    prompt = one.prompt
    heard = torch.from_numpy(np.flatnonzero(prompt.user))
    parts = speech.text(torch.from_numpy(prompt.ids[prompt.user])[None])
    media = torch.from_numpy(prompt.modality[prompt.user] != CODE[Modality.TEXT])
    if media.any():
        parts = parts.masked_scatter(media[None, :, None], speech.media(one.states[heard[media]]))
    turn = torch.from_numpy(prompt.ids[None, -3:])
    tokens = torch.tensor([one.tokens])
    opening = speech.opening(speech.speaker(one.voice), turn, tokens[:, :1])
    codes = torch.from_numpy(codes_of(one.words, one.voice))
    track = torch.cat([speech.text(tokens[:, 1:]), speech.end], dim=1)
    rests = codes.shape[1] - track.shape[1]
    track = torch.cat([track, speech.rest.expand(1, rests, -1)], dim=1)
    emb = torch.cat([parts, opening, track + _embed_frames(model, codes)], dim=1)
    positions = closed_up(prompt)
    first = int(positions.max(initial=-1)) + 1
    rest = text_positions(first, emb.shape[1] - positions.shape[1])
    return _Row(
        emb,
        torch.from_numpy(np.concatenate([positions, rest], axis=1)),
        codes,
        parts.shape[1] + opening.shape[1] - 1,
    )


def _embed_frames(model: Any, codes: Tensor) -> Tensor:
    """(8, n) -> (1, n, D): a frame is the sum of its codes' embeddings."""
    talker = model.talker
    tables = [talker.get_input_embeddings(), *talker.code_predictor.get_input_embeddings()]
    return torch.stack([t(c) for t, c in zip(tables, codes, strict=True)]).sum(0)[None]


def _residual_loss(model: Any, states: Tensor, codes: Tensor) -> Tensor:
    """Codes 1 to 7 of frames (n, 8), each from the Talker's state and the codes before it."""
    predictor = model.talker.code_predictor
    tables = [model.talker.get_input_embeddings(), *predictor.get_input_embeddings()]
    read = [states, *(tables[k](codes[:, k]) for k in range(GROUPS - 1))]
    out = predictor.model(inputs_embeds=torch.stack(read, dim=1), use_cache=False)
    losses = [
        functional.cross_entropy(head(out.last_hidden_state[:, k + 1]), codes[:, k + 1])
        for k, head in enumerate(predictor.lm_head)
    ]
    return torch.stack(losses).mean()
