"""What a cache is made for: its bytes, its pages and what becomes of them."""

from dataclasses import dataclass, field

import torch

from runtime.kv.entropy import TokenEntropy
from runtime.kv.formats import Format, PageShape
from runtime.kv.prefetch import Transport
from runtime.kv.reuse import ReusePolicy, off
from runtime.kv.subspace import Subspace
from runtime.kv.tiers import TierLimits

OBSERVE_EVERY = 64  # steps between two samples of residency; each request is sampled at least once


@dataclass(frozen=True)
class CacheSettings:
    """`pool_bytes` covers device pages, encoder outputs and Talker states together, `host_bytes`
    the pages under pressure. `storage` is the form that complete blocks are packed into."""

    pool_bytes: int
    layers: int
    shape: PageShape
    weights_digest: str
    epoch: int = 0
    observe_every: int = OBSERVE_EVERY
    token_entropy: TokenEntropy = TokenEntropy.LAST_QUERY
    limits: TierLimits = field(default_factory=TierLimits)
    reuse: ReusePolicy = field(default_factory=lambda: off("uncalibrated"))
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    storage: Format = Format.NATIVE
    host_bytes: int | None = None  # None: as much as the pool
    subspace: Subspace | None = None  # where `storage` is one
    transport: Transport | None = None  # for host pages; None: a stream, where there can be one
