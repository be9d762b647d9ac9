"""What a text takes to say: syllables, Hanzi, numbers read aloud, pauses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitors.detectors.syllables import (
    Kind,
    Language,
    Units,
    number_syllables,
    units,
    word_syllables,
)


def counted(text: str) -> Units:
    found = units(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("word", "syllables"),
    [
        ("cat", 1), ("yellow", 2), ("purple", 2), ("square", 1), ("zero", 2),
        ("opened", 2), ("walked", 1), ("painted", 2), ("coffee", 2), ("table", 2), ("houses", 2),
        ("apologised", 4), ("I'm", 1), ("don't", 1), ("hmm", 1), ("strawberries", 3),
    ],
)  # fmt: skip
def test_an_english_word_has_a_syllable_for_each_vowel_that_sounds(
    word: str, syllables: int
) -> None:
    assert word_syllables(word) == syllables


@pytest.mark.parametrize(
    ("digits", "english", "chinese"),
    [
        ("0", 2, 1),
        ("7", 2, 1),
        ("12", 1, 2),  # twelve, 十二
        ("20", 2, 2),
        ("42", 3, 3),
        ("100", 3, 2),
        ("105", 4, 4),  # one hundred five, 一百零五
        ("1984", 5, 4),  # nineteen eighty-four, 一九八四
        ("1900", 4, 4),
        ("2024", 5, 4),
        ("2,024", 6, 6),  # two thousand twenty-four, 二千零二十四
        ("1,234", 9, 7),  # one thousand two hundred thirty-four
        ("20000", 4, 2),  # 二万
        ("3.14", 4, 4),
    ],
)  # fmt: skip
def test_a_number_is_counted_as_it_is_read(digits: str, english: int, chinese: int) -> None:
    assert number_syllables(digits, chinese=False) == english
    assert number_syllables(digits, chinese=True) == chinese


def test_pauses_inside_a_text_are_counted_and_the_one_at_its_end_is_not() -> None:
    found = counted("Well, no. I bought 3.5 kilos: it was cheap!")
    assert (found.minor, found.major) == (2, 1)
    assert found.kinds == {Kind.MINOR_PAUSE, Kind.MAJOR_PAUSE, Kind.NUMBER}


def test_chinese_is_counted_by_hanzi() -> None:
    found = counted("好的，我明天下午3点来。")
    assert (found.language, found.syllables, found.words) == (Language.CHINESE, 10, 1)
    assert found.minor == 1


def test_latin_words_inside_chinese_are_told_apart() -> None:
    assert Kind.LATIN in counted("我们用 Python 写程序。").kinds


def test_an_acronym_is_spelled_and_a_shout_is_not() -> None:
    assert counted("The BBC and the WWF met.").syllables == 1 + 3 + 1 + 1 + 7 + 1
    assert Kind.SPELLED not in counted("STOP THAT NOW").kinds


@pytest.mark.parametrize(
    "text", ["My PIN is 4821.", "Dial 13800138000.", "Call 555-1234.", "Agent 007", "2024/05/01"]
)
def test_figures_that_may_be_read_one_by_one_are_told_apart(text: str) -> None:
    assert Kind.CODE in counted(text).kinds


def test_figures_in_a_list_are_numbers_of_their_own() -> None:
    assert counted("1,2,3,4,5").syllables == 5
    assert (
        counted("It costs 12,345.").syllables == 2 + 9
    )  # twelve thousand three hundred forty-five


def test_quotes_and_brackets_are_no_pauses() -> None:
    assert counted('The words "red" (or "rot") and "blue".').minor == 0


def test_a_list_in_lines_is_told_apart() -> None:
    assert Kind.LINES in counted("red\ngreen").kinds


def test_an_address_is_markup() -> None:
    assert Kind.MARKUP in counted("See https://example.org for more.").kinds


@pytest.mark.parametrize(
    ("text", "syllables"),
    [
        ("20% of it", 2 + 2 + 1 + 1),
        ("20 % of it", 2 + 2 + 1 + 1),
        ("20% to 30%", 2 + 1 + 2 + 2),  # twenty to thirty percent
        ("20%-30%", 2 + 2 + 2),
        ("$5.50", 2),  # five fifty, or a half
        ("5.00 € or $1,000.00", 1 + 1 + 3),
        ("It is 25°C & so + on", 1 + 1 + 3 + 1 + 1 + 1),
        ("and/or", 2),
        ("占20%的人", 1 + 2 + 3 + 2),
        ("占20％的人", 1 + 2 + 3 + 2),
        ("30%到50%。", 2 + 1 + 2 + 3),  # 百分之三十到五十
        ("一共5.50元", 2 + 1 + 1 + 1),  # 五块五
        ("一共¥5.00", 2 + 1),
        ("今天25°C，很热", 2 + 3 + 1 + 2),
    ],
)
def test_a_sign_counts_for_what_nobody_leaves_out(text: str, syllables: int) -> None:
    found = counted(text)
    assert found.syllables == syllables
    assert Kind.MARKUP not in found.kinds


@pytest.mark.parametrize(
    "text",
    [
        "Ends with %% or %s", "% % % yes", "a%20b", "5%d", "100%%", "前％后", "The $HOME of $x$",
        "Write to me@example.org", "As they say [1]", "Fish &amp; chips", "a = b", "C# or x_y",
    ],
)  # fmt: skip
def test_signs_that_may_be_left_out_are_markup(text: str) -> None:
    assert Kind.MARKUP in counted(text).kinds


@pytest.mark.parametrize("text", ["So % it is", "所以％如此", "100%% sure", "a$b.50"])
def test_markup_makes_no_text_longer(text: str) -> None:
    plain = text.replace("%", " ").replace("％", " ").replace("$", " ")
    assert counted(text).syllables <= counted(plain).syllables


@pytest.mark.parametrize("text", ["", " ... ", "Привет, как дела?", "こんにちは、元気ですか", "?!"])
def test_what_is_in_neither_language_or_says_nothing_has_no_count(text: str) -> None:
    assert units(text) is None


@given(st.text())
def test_any_text_is_counted_or_refused(text: str) -> None:
    found = units(text)
    assert found is None or (found.syllables >= 1 and min(found[2:5]) >= 0)


@given(st.integers(0, 10**15), st.booleans())
def test_any_number_can_be_read(value: int, chinese: bool) -> None:
    assert 1 <= number_syllables(str(value), chinese=chinese) <= 64


@pytest.mark.parametrize("chinese", [False, True])
def test_a_number_too_long_to_be_one_is_read_figure_by_figure(chinese: bool):
    assert number_syllables("7" * 5000, chinese=chinese) == 5000
    assert number_syllables("7" * 5000 + ".25", chinese=chinese) == 5003
