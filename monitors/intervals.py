"""Exact confidence intervals of a share, without a statistics library on the serving path."""

import math
from collections.abc import Callable

_TINY = 1e-300
_PRECISE = 1e-15
_MOST_TERMS = 10_000


def exact_interval(hits: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """The Clopper-Pearson interval of the share `hits / of`: it covers at least `confidence`.

    Raises `ValueError` unless 0 <= hits <= of, of > 0 and 0 < confidence < 1.
    """
    if not (0 <= hits <= of and of > 0 and 0.0 < confidence < 1.0):
        raise ValueError(f"no interval of {hits} hits in {of} at confidence {confidence}")
    tail = (1.0 - confidence) / 2.0
    low = 0.0 if hits == 0 else _root(lambda p: at_least(hits, of, p) - tail)
    high = 1.0 if hits == of else _root(lambda p: at_least(hits + 1, of, p) - (1.0 - tail))
    return low, high


def at_least(hits: int, of: int, p: float) -> float:
    """P(X >= hits) for X binomial (`of`, `p`), by the regularised incomplete beta function."""
    return 1.0 if hits <= 0 else _beta(float(hits), float(of - hits + 1), p)


def _root(rising: Callable[[float], float]) -> float:
    """Where a function that rises from below 0 at 0 to above 0 at 1 crosses it."""
    low, high = 0.0, 1.0
    while high - low > _PRECISE * max(high, 1e-12):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        low, high = (middle, high) if rising(middle) < 0.0 else (low, middle)
    return (low + high) / 2.0


def _beta(a: float, b: float, x: float) -> float:
    """I_x(a, b) (Numerical Recipes 6.4: continued fraction by Lentz's method)."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
        + a * math.log(x) + b * math.log1p(-x)
    )  # fmt: skip
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1.0 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 / _off_zero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        d, c = 1.0 / _off_zero(1.0 + even * d), _off_zero(1.0 + even / c)
        value *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        d, c = 1.0 / _off_zero(1.0 + odd * d), _off_zero(1.0 + odd / c)
        value *= d * c
        if abs(d * c - 1.0) < _PRECISE:
            return value
    raise ArithmeticError(f"the beta function did not converge at {a}, {b}, {x}")


def _off_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
