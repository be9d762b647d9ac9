"""A basis shared by the K (or V) of a pair of layers; pages hold coordinates in it."""


class Subspace:
    """Placeholder until the study is in."""
