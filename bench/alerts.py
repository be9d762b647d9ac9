"""Alerts that act: how soon a breach is answered, and what a thousand alerts at once take."""

from bench import alerts_paths
from bench.board import Figure, options, show


def figures(*, quick: bool) -> list[Figure]:
    """All sections."""
    return alerts_paths.figures(quick=quick)


def main() -> None:
    args = options(__doc__ or "")
    show(figures(quick=args.quick), as_json=args.json)


if __name__ == "__main__":
    main()
