"""The KV cache against its bars, on the shipped tiny checkpoint and on real pretrained weights.

Each section is a file of its own, `bench/kv_*.py`, with `figures(quick=...)`. Every figure is a
ratio taken in one run, its baseline in the last column.
"""

import importlib
import warnings

import torch

from bench.board import Figure, parser, show, unmeasured
from bench.smollm import WeightsMissing

SECTIONS = (
    "kv_peak",  # peak bytes at equal quality
    "kv_speed",  # decode against no cache, and against unquantised pages
    "kv_attention",  # paged decode beside a padded DynamicCache
    "kv_entropy",  # what entropy and residency cost a step
    "kv_peers",  # bytes and speed beside Hugging Face's caches
    "kv_residency",  # what stays found with a fifth in host memory
    "kv_long_video",  # minutes of video in a pool that could not hold them natively
    "kv_flush",  # how soon a flush shows
    "kv_prefix",  # a prefix restored against prefill
    "kv_ruler",  # is entropy the right ruler for reuse?
    "kv_learned",  # is a learned rule a better one?
    "kv_fallback",  # what a step loses while the pool turns to int8
)


def measured(section: str, *, quick: bool) -> list[Figure]:
    """A section's figures; where the pretrained weights are missing, a row that says so."""
    try:
        return importlib.import_module(f"bench.{section}").figures(quick=quick)
    except WeightsMissing as err:
        return [unmeasured(section, str(err))]


def main() -> None:
    asked = parser(__doc__ or "")
    asked.add_argument("--only", choices=SECTIONS, action="append", help="this section alone")
    args = asked.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of the peers' own libraries
    rows = [
        figure
        for section in args.only or SECTIONS
        for figure in measured(section, quick=args.quick)
    ]
    show(rows, as_json=args.json)


if __name__ == "__main__":
    main()
