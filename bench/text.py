"""Held-out English: the prose of numpy's docstrings, pinned by its digest, so nothing is fetched.

A model may have met such prose in training: every figure is a difference on the same text.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE, VERSION = "numpy", "2.4.6"
DIGEST = "91462f14d6d02ca969bb8767d1dd130c"
_FOLDERS = ("fft", "lib", "linalg", "ma", "polynomial", "random")
_LEAST_WORDS = 25
_LETTERS = 0.9  # of a paragraph's characters: formulas and tables have fewer


class TextChanged(RuntimeError):
    """The installed package has other words than the figures were made for."""


@cache
def prose() -> str:
    """All of it, paragraphs in the order of files and lines. Raises `TextChanged`."""
    text = "\n\n".join(dict.fromkeys(_paragraphs()))
    if hashlib.blake2b(text.encode(), digest_size=16).hexdigest() != DIGEST:
        found = importlib.metadata.version(PACKAGE)
        raise TextChanged(
            f"the docstrings of {PACKAGE} {found} are not those of {VERSION}:"
            " install what constraints.txt pins"
        )
    return text


def _paragraphs() -> Iterator[str]:
    for path in _files():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        for node in ast.walk(tree):
            words = ast.get_docstring(node) if isinstance(node, documented) else None
            for paragraph in (words or "").split("\n\n"):
                plain = re.sub(r"\s+", " ", paragraph.replace("`", "")).strip()
                if _is_prose(plain):
                    yield plain


def _files() -> list[Path]:
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (root,) = spec.submodule_search_locations
    return sorted(p for folder in _FOLDERS for p in (Path(root) / folder).glob("*.py"))


def _is_prose(paragraph: str) -> bool:
    letters = sum(c.isalpha() or c == " " for c in paragraph)
    return (
        len(paragraph.split()) >= _LEAST_WORDS
        and letters >= _LETTERS * len(paragraph)
        and not re.search(r">>>|--|\.\. |::|#", paragraph)
    )
