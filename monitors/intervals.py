"""Exact confidence intervals of a share, without a statistics library on the serving path."""

import math
from statistics import NormalDist

_TINY = 1e-300
_PRECISE = 1e-15
_MOST_TERMS = 10_000
_MOST_STEPS = 200
_PRECISE_STEP = 1e-7  # the next one would be of its square
_FAR = 700.0  # a logit beyond which the exponential overflows


def exact_interval(hits: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """The Clopper-Pearson interval of the share `hits / of`: it covers at least `confidence`.

    Raises `ValueError` unless 0 <= hits <= of, of > 0 and 0 < confidence < 1.
    """
    if not (0 <= hits <= of and of > 0 and 0.0 < confidence < 1.0):
        raise ValueError(f"no interval of {hits} hits in {of} at confidence {confidence}")
    tail = (1.0 - confidence) / 2.0
    low = 0.0 if hits == 0 else _quantile(tail, float(hits), float(of - hits + 1))
    high = 1.0 if hits == of else _quantile(1.0 - tail, float(hits + 1), float(of - hits))
    return low, high


def at_least(hits: int, of: int, p: float) -> float:
    """P(X >= hits) for X binomial (`of`, `p`), by the regularised incomplete beta function."""
    return 1.0 if hits <= 0 else _beta(float(hits), float(of - hits + 1), p)


def _quantile(share: float, a: float, b: float) -> float:
    """The p at which I_p(a, b) is `share`: Newton's way in the logit of p, never out of a bracket.

    Scrapes wait for this, and bisection takes ten times as long.
    """
    if min(a, b) == 1.0:  # nothing was hit, or all but nothing: it has a closed form
        return -math.expm1(math.log1p(-share) / b) if a == 1.0 else share ** (1.0 / a)
    low, high, log_beta = 0.0, 1.0, math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    step = -NormalDist().inv_cdf(share) * math.sqrt(1.0 / a + 1.0 / b)
    p = _logistic(math.log(a / b) - step)
    for _ in range(_MOST_STEPS):
        off = _beta(a, b, p) - share
        low, high = (low, p) if off > 0.0 else (p, high)
        slope = math.exp(a * math.log(p) + b * math.log1p(-p) - log_beta)
        step = off / slope if slope > 0.0 else math.inf
        after = _logistic(math.log(p) - math.log1p(-p) - step)
        if abs(step) < _PRECISE_STEP:
            return after
        p = after if low < after < high else (low + high) / 2.0
    raise ArithmeticError(f"no quantile {share} of the beta distribution at {a}, {b}")


def _logistic(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-logit)) if logit > -_FAR else 0.0


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
