"""Recorded expositions as series for promtool, and the expressions that find nothing in them."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.promtool import run

FIXTURES = Path(__file__).parents[1] / "fixtures"
Recording = Mapping[str, Sequence[float | None]]  # by series, its values scrape by scrape
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*(?:\{.*\})?) (\S+)(?: \d+)?$", re.M)
_FAILED = re.compile(r'expr: ("(?:[^"\\]|\\.)*"), time: ')
_SETS = re.compile(r"\s*\b(?:and|or|unless)\b(?:\s+(?:on|ignoring)\s*\([^()]*\))?\s*")
_LIMIT = re.compile(r"\s*(?:==|!=|<=|>=|<|>)\s*[\d.e+* ]+$")
_FIRST_OF = re.compile(r"(?:label_replace|absent|clamp_min)\(")


def load(*scrapes: Sequence[Path]) -> dict[str, list[float | None]]:
    """Each scrape is of some files at one time."""
    texts = ["\n".join(path.read_text(encoding="utf-8") for path in files) for files in scrapes]
    parsed = [{m[1]: float(m[2]) for m in _SAMPLE.finditer(text)} for text in texts]
    names = sorted({name for scrape in parsed for name in scrape})
    return {name: [scrape.get(name) for scrape in parsed] for name in names}


def dead(
    folder: Path, recording: Recording, rules: Mapping[str, Any], exprs: Sequence[str], apart_s: int
) -> list[str]:
    """Those of `exprs` that return no series at the last scrape, with the rules evaluated."""
    length = max(len(values) for values in recording.values())
    scenario = {
        "interval": f"{apart_s}s",
        "input_series": [
            {"series": name, "values": " ".join(map(_value, values))}
            for name, values in recording.items()
        ],
        "promql_expr_test": [
            {
                "expr": f"count({expr}) > bool 0",
                "eval_time": f"{apart_s * (length - 1)}s",
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
            for expr in exprs
        ],
    }
    (folder / "rules.yml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    tests = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": f"{apart_s}s",
        "tests": [scenario],
    }
    (folder / "tests.yml").write_text(yaml.safe_dump(tests, width=10_000), encoding="utf-8")
    told = run("promtool", "test", "rules", folder / "tests.yml", check=False)
    failed = {json.loads(found) for found in _FAILED.findall(told)}
    assert failed or "SUCCESS" in told, told
    return [expr for expr in exprs if f"count({expr}) > bool 0" in failed]


def _value(value: float | None) -> str:
    return "_" if value is None else repr(value)


# ---------------------------------------------------------------- an expression's parts
def operands(expr: str) -> Iterator[str]:
    """What an alert's expression compares, sets against each other, or misses: each part without
    its comparison, down to one aggregation or selector."""
    expr = _LIMIT.sub("", _bare(expr.strip()))
    parts = list(_split(_bare(expr)))
    if len(parts) > 1:
        for part in parts:
            yield from operands(part)
    elif (inner := _first_argument(parts[0])) is not None:
        yield from operands(inner)
    else:
        yield parts[0]


def selectors(expr: str) -> list[str]:
    """The selectors of our own series in an expression, without their ranges."""
    return re.findall(r"(?<![\w:])(?:\w+:)?redline_[\w:]+(?:\{[^}]*\})?", expr)


def _bare(expr: str) -> str:
    """Without parentheses around all of it."""
    while expr.startswith("(") and _closes(expr, 0) == len(expr) - 1:
        expr = expr[1:-1].strip()
    return expr


def _split(expr: str) -> Iterator[str]:
    """At the set operators that stand outside of all parentheses and braces."""
    start = 0
    for operator in _SETS.finditer(expr):
        before = expr[: operator.start()]
        if all(before.count(a) == before.count(b) for a, b in ("()", "{}")):
            yield expr[start : operator.start()]
            start = operator.end()
    yield expr[start:]


def _first_argument(expr: str) -> str | None:
    call = _FIRST_OF.match(expr)
    if call is None or _closes(expr, call.end() - 1) != len(expr) - 1:
        return None
    inner, depth = expr[call.end() : -1], 0
    for place, char in enumerate(inner):
        depth += (char in "({[") - (char in ")}]")
        if char == "," and depth == 0:
            return inner[:place]
    return inner


def _closes(expr: str, opened: int) -> int:
    depth = 0
    for place in range(opened, len(expr)):
        depth += (expr[place] == "(") - (expr[place] == ")")
        if depth == 0:
            return place
    raise ValueError(f"{expr}: a parenthesis is left open")
