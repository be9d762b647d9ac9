"""From a checkpoint to the parts of an engine: what the worker tells the gateway it is."""

from dataclasses import dataclass, field
from typing import Any

import torch

from monitors.contract import Name
from monitors.redlines import RedLines
from runtime.engine.shadow import ShadowSettings
from runtime.kv import subspace_file
from runtime.kv.cache import KvCache
from runtime.kv.cache_settings import OBSERVE_EVERY, CacheSettings
from runtime.kv.calibration import load_policy
from runtime.kv.formats import PAGE_TOKENS, Format, PageShape
from runtime.kv.reuse import NEWEST_TOKENS, ReusePolicy, upper_layers
from runtime.kv.slabs import EXTENT_PAGES
from runtime.kv.subspace import Subspace
from runtime.kv.tiers import TierLimits
from runtime.model import attention
from runtime.model.checkpoint import Checkpoint
from runtime.model.codec import CodecStream
from runtime.model.thinker import SegmentEmbedding, Thinker
from runtime.residents.port import Capabilities, Ready


@dataclass(frozen=True)
class EngineSettings:
    name: Name
    version: str
    pool_bytes: int
    host_bytes: int | None = None  # for pages under pressure; None: as much as the pool
    min_epoch: int = 0
    max_running: int = 16
    observe_every: int = OBSERVE_EVERY
    lines: RedLines = field(default_factory=RedLines)
    reuse: ReusePolicy | None = None  # None: as the checkpoint's calibration says
    storage: Format = Format.NATIVE  # what complete blocks are packed into
    page_dtype: torch.dtype | None = None  # of native pages; None: the model's
    subspace: Subspace | None = None  # None: the checkpoint's own, where `storage` wants one
    shadow: ShadowSettings = field(default_factory=ShadowSettings)


def build_thinker(checkpoint: Checkpoint) -> Thinker:
    """The Thinker over paged attention."""
    attention.register()
    return Thinker(checkpoint, attention=attention.NAME)


def build_cache(checkpoint: Checkpoint, settings: EngineSettings) -> KvCache[SegmentEmbedding]:
    """A cache whose pages fit the checkpoint. Raises `PoolTooSmall`, `CalibrationError` and
    `SubspaceError`."""
    return KvCache(
        CacheSettings(
            pool_bytes=settings.pool_bytes,
            host_bytes=settings.host_bytes,
            layers=_layers(checkpoint),
            shape=native_shape(checkpoint, settings.page_dtype),
            weights_digest=checkpoint.weights_digest,
            epoch=settings.min_epoch,
            observe_every=settings.observe_every,
            limits=TierLimits(share=settings.lines.cache.pressure_share),
            device=checkpoint.device,
            reuse=settings.reuse or calibrated_policy(checkpoint, settings.lines),
            storage=settings.storage,
            subspace=_subspace(checkpoint, settings),
        )
    )


def native_shape(checkpoint: Checkpoint, dtype: torch.dtype | None = None) -> PageShape:
    """Of the Thinker's pages; `dtype` other than the model's where given."""
    text: Any = checkpoint.config.thinker_config.text_config
    own = checkpoint.model.dtype
    return PageShape(text.num_key_value_heads, text.head_dim, dtype or own, own)


def reusable_layers(checkpoint: Checkpoint) -> tuple[int, ...]:
    """Layers that may point at the layer below's page."""
    return upper_layers(_layers(checkpoint), checkpoint.config.talker_config.accept_hidden_layer)


def _layers(checkpoint: Checkpoint) -> int:
    return checkpoint.config.thinker_config.text_config.num_hidden_layers


def _subspace(checkpoint: Checkpoint, settings: EngineSettings) -> Subspace | None:
    if settings.storage is not Format.SUBSPACE or settings.subspace is not None:
        return settings.subspace
    return subspace_file.load(
        checkpoint.folder,
        checkpoint.weights_digest,
        Thinker(checkpoint).rotary,
        checkpoint.device,
        layers=_layers(checkpoint),
        channels=native_shape(checkpoint).channels,
    )


def calibrated_policy(checkpoint: Checkpoint, lines: RedLines) -> ReusePolicy:
    """What the checkpoint's own calibration allows. Raises `CalibrationError`."""
    return load_policy(
        checkpoint.folder,
        checkpoint.weights_digest,
        checkpoint.config.thinker_config.text_config.num_hidden_layers,
        checkpoint.config.talker_config.accept_hidden_layer,
        lines.entropy,
    )


def ready(checkpoint: Checkpoint, settings: EngineSettings, cache: KvCache) -> Ready:
    """The engine's first words."""
    return Ready(
        version=settings.version,
        weights_digest=checkpoint.weights_digest,
        pool_epoch=cache.pool.epoch,
        layers=cache.pool.layers,
        page_bytes=cache.pool.shape.native_bytes,
        pool_pages=cache.pool.arena.books.count * EXTENT_PAGES,
        samples_per_frame=CodecStream(checkpoint).samples_per_frame,
        capabilities=Capabilities(
            flush=True,
            probe=True,
            quantise_kv=True,
            drills=True,
            observes_residency=True,
            observes_video_prefill=True,
        ),
        voices=dict(checkpoint.voices),
        uncached_tokens=PAGE_TOKENS + (NEWEST_TOKENS if cache.reuse.on else 0),
    )
