"""Alerts that act: how soon a breach is answered, and how steady the ladder then is."""

from bench import alerts_ladder, alerts_paths
from bench.board import Figure, options, show


def figures(*, quick: bool) -> list[Figure]:
    """All sections."""
    return [*alerts_paths.figures(quick=quick), *alerts_ladder.figures(quick=quick)]


def main() -> None:
    args = options(__doc__ or "")
    show(figures(quick=args.quick), as_json=args.json)


if __name__ == "__main__":
    main()
