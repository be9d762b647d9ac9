"""What a voice must say for a text: syllables of English, Hanzi of Chinese, and pauses.

Where a text can be read in more than one way the shortest is counted, or its kind is told: who
expects too much calls whole speech short.
"""

import re
from enum import StrEnum
from typing import NamedTuple


class Language(StrEnum):
    """What speaking time is known for."""

    ENGLISH = "en"
    CHINESE = "zh"


class Kind(StrEnum):
    """What a text has beside plain words; voices differ most in how they say these."""

    NUMBER = "number"
    CODE = "code"  # figures that may be read one by one
    SPELLED = "spelled"  # letter by letter
    LATIN = "latin"  # inside Chinese
    MINOR_PAUSE = "minor_pause"
    MAJOR_PAUSE = "major_pause"
    LINES = "lines"  # of more than one, as lists are
    MARKUP = "markup"  # addresses, formulas: no two voices read them alike


class Units(NamedTuple):
    """Counts over one text. Pauses stand inside it: the one at its end is not spoken."""

    language: Language
    syllables: int
    words: int
    minor: int
    major: int
    kinds: frozenset[Kind]


_HAN = r"\u3400-\u4dbf\u4e00-\u9fff"
_NUMBER = r"\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?"
_TOKEN = re.compile(rf"{_NUMBER}|[A-Za-z]+(?:['’][A-Za-z]+)?|[{_HAN}]")
_VOWELS = re.compile(r"[aeiouy]+")
_MINOR = re.compile(r"(?:(?<!\d)[,:]|[,:](?!\d)|[;，、：；—–]|\s-\s)+")
_SHORTENED = "".join(
    rf"(?<!\b{short})" for short in (r"\w", "Dr", "Mr", "Mrs", "Ms", "St", "No", "vs", "etc")
)  # behind these a full stop is no pause
_MAJOR = re.compile(rf"[。！？…]+|(?:{_SHORTENED}\.|[!?])[.!?]*(?=\s)")
_END = re.compile(r"\W+$")
_JOINED = re.compile(r"\d[-/]\d")
_PERCENT = re.compile(  # not where the next figure may have the only one: 10% to 20%
    r"(?<=\d)\s?[%％](?![A-Za-z%_])(?!\s?(?:[-–—~～/,，、到至和或]|to|or|and|&|\+)?\s?\d)"
)
_CURRENCY = r"[$€£¥￥]"
_PRICE = re.compile(
    rf"({_CURRENCY}\s?)?(?<![\d,])(\d[\d,]*)\.(\d+)(?!\.?\d)(\s?(?:{_CURRENCY}|[元块]))?"
)
_MARKUP = re.compile(
    r"https?://|www\.|`|[{}<>\\|=#*_~^@\[\]]|&\w+;"
    r"|(?<!\d)(?<!\d\s)[%％]|[%％][A-Za-z\d%_]|(?<!\d)(?<!\d\s)\$(?!\s?\d)"
)  # signs that stand by a figure are read, elsewhere they may be left out
_MOST_DIGITS = 18  # that are read as one number; a longer one is read figure by figure
_FOREIGN_SHARE = 0.05  # of letters that are neither ASCII nor Hanzi
_CHINESE_SHARE = 0.15  # of letters that are Hanzi
_SPELLED_AT_MOST = 5  # letters of an acronym
_TEENS = (2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 3, 1, 2, 2, 2, 2, 3, 2, 2)  # syllables of 0 to 19
_TENS = (0, 0, 2, 2, 2, 2, 2, 3, 2, 2)


def units(text: str) -> Units | None:
    """Counts of a text; None where it is in neither language, or says nothing."""
    letters = [letter for letter in text if letter.isalpha()]
    han = sum(_is_han(letter) for letter in letters)
    foreign = len(letters) - han - sum(letter.isascii() for letter in letters)
    tokens = _TOKEN.findall(_PRICE.sub(_price, text))
    if not tokens or foreign > _FOREIGN_SHARE * len(letters):
        return None
    chinese = han > _CHINESE_SHARE * len(letters)
    shouted = sum(letter.isupper() for letter in letters) > len(letters) / 2
    percent = len(_PERCENT.findall(text))
    inside = _END.sub("", text)
    minor, major = len(_MINOR.findall(inside)), len(_MAJOR.findall(inside))
    kinds = {kind for token in tokens if (kind := _kind(token, chinese, shouted)) is not None}
    kinds |= {Kind.MINOR_PAUSE} if minor else set[Kind]()
    kinds |= {Kind.MAJOR_PAUSE} if major else set[Kind]()
    kinds |= {Kind.MARKUP} if _MARKUP.search(text) else set[Kind]()
    kinds |= {Kind.CODE} if _JOINED.search(text) else set[Kind]()
    kinds |= {Kind.LINES} if len(text.split("\n")) > 1 else set[Kind]()
    return Units(
        language=Language.CHINESE if chinese else Language.ENGLISH,
        syllables=sum(_syllables(token, chinese, shouted) for token in tokens)
        + percent * (3 if chinese else 2),
        words=sum(not _is_han(token) for token in tokens) + percent,
        minor=minor,
        major=major,
        kinds=frozenset(kinds),
    )


def _price(found: re.Match[str]) -> str:
    """A price as it is read: five fifty, without a point; and no cents where there are none."""
    before, whole, after, behind = found.groups()
    if before is None and behind is None:
        return found[0]
    return f"{before or ''}{whole} {after.strip('0')}{behind or ''}"


def _kind(token: str, chinese: bool, shouted: bool) -> Kind | None:
    if token[0].isdigit():
        return Kind.CODE if _is_code(token) else Kind.NUMBER
    if _is_han(token):
        return None
    if _is_spelled(token, shouted):
        return Kind.SPELLED
    return Kind.LATIN if chinese else None


def _syllables(token: str, chinese: bool, shouted: bool) -> int:
    if _is_han(token):
        return 1
    if token[0].isdigit():
        return number_syllables(token, chinese=chinese)
    if _is_spelled(token, shouted):
        return len(token) + 2 * token.count("W")
    return word_syllables(token)


def _is_spelled(word: str, shouted: bool) -> bool:
    if len(word) == 1:
        return word not in "aAI"
    return word.isupper() and len(word) <= _SPELLED_AT_MOST and not shouted


def _is_han(letter: str) -> bool:
    return "\u3400" <= letter[0] <= "\u4dbf" or "\u4e00" <= letter[0] <= "\u9fff"


def word_syllables(word: str) -> int:
    """Of an English word: its groups of vowels, less the silent e."""
    lower = word.lower().partition("'")[0].partition("’")[0]
    groups = len(_VOWELS.findall(lower))
    silent = (
        (lower.endswith("e") and not lower.endswith(("le", "ee", "ie", "oe", "ue", "ye")))
        or (lower.endswith("ed") and not lower.endswith(("ted", "ded", "eed", "ied")))
        or (lower.endswith("es") and not re.search(r"(?:[sxzcg]|sh|ch|i|e)es$", lower))
    )
    return max(1, groups - silent)


def number_syllables(digits: str, *, chinese: bool) -> int:
    """Of a number as it is read aloud: "1,234.5", thousands parted by commas or not."""
    whole, _, after = digits.replace(",", "").partition(".")
    point = 1 + len(after.replace(".", "")) if after else 0
    if len(whole) > _MOST_DIGITS:
        return len(whole) + point
    read = _chinese_number(whole) if chinese else _english_number(int(whole))
    if _is_year(digits):
        read = min(read, len(whole) if chinese else _english_year(int(whole)))
    return read + point


def _is_code(digits: str) -> bool:
    """A telephone number, a PIN: four figures and more, and no thousands parted."""
    whole = digits.partition(".")[0]
    zeros = len(whole) > 1 and whole[0] == "0"
    return zeros or (len(whole) > 3 and "," not in whole and not _is_year(digits))


def _is_year(digits: str) -> bool:
    return digits.isdecimal() and len(digits) == 4 and 1100 <= int(digits) < 2100


def _english_year(value: int) -> int:
    """Nineteen eighty-four."""
    century, rest = divmod(value, 100)
    return _english_number(century) + (_english_number(rest) if rest else 2)


def _english_number(value: int) -> int:
    if value < 20:
        return _TEENS[value]
    if value < 100:
        return _TENS[value // 10] + (_TEENS[value % 10] if value % 10 else 0)
    for size in (10**12, 10**9, 10**6, 10**3, 10**2):
        if value >= size:
            rest = value % size
            return _english_number(value // size) + 2 + (_english_number(rest) if rest else 0)
    raise AssertionError(f"{value} has no reading")


def _chinese_number(whole: str) -> int:
    """Each figure with its place (百, 千), 万 or 亿 for each four of them, 零 for a gap."""
    figures = whole.lstrip("0")
    if not figures:
        return 1
    places = [len(figures) - 1 - i for i in range(len(figures))]
    said = sum(1 + (place % 4 > 0) for f, place in zip(figures, places, strict=True) if f != "0")
    gaps = len(re.findall(r"0+(?=[1-9])", figures))
    teen = len(figures) % 4 == 2 and figures[0] == "1"  # 十二, not 一十二
    return said + gaps + (len(figures) - 1) // 4 - teen
