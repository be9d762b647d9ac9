"""The fault detectors against their bars: what they find, whom they wrong, and what they cost.

Each section is a file of its own, `bench/detectors_*.py`, over real clips and voices with faults
injected (`tests/faults`). Intervals are exact, at 95 %.
"""

import importlib

from bench.board import parser, show

SECTIONS = (
    "video",  # coded streams, decoded pictures, our own operations
    "sync",  # the clocks, the model's clock, the voice against the mouth
    "speech",  # generated speech and its playout
)


def main() -> None:
    asked = parser(__doc__ or "")
    asked.add_argument("--only", choices=SECTIONS, action="append", help="this section alone")
    args = asked.parse_args()
    rows = [
        figure
        for section in args.only or SECTIONS
        for figure in importlib.import_module(f"bench.detectors_{section}").figures(
            quick=args.quick
        )
    ]
    show(rows, as_json=args.json)


if __name__ == "__main__":
    main()
