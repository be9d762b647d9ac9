"""Texts to be read aloud, drawn by seed: English, Chinese, or the words of the tiny checkpoint."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np

from runtime.quality.plan import PlanError
from runtime.quality.words import COLOURS, DIGITS, SHAPES

Rng = np.random.Generator
Item = TypeVar("Item")
_SENTENCES = (1, 1, 1, 2, 2, 3)
_CLAUSES = (1, 1, 2)
_WHERE_SHARE = 0.6
_REPLY_SHARE = 0.15
_LONGEST_WORDS = 12


class Reading(StrEnum):
    """What a text is made of."""

    ENGLISH = "en"
    CHINESE = "zh"
    WORDS = "words"  # those that the checkpoint that ships was trained to say


@dataclass(frozen=True)
class Phrases:
    """What sentences are put together from. In `does`, {n}, {p}, {d} and {y} are a count, a
    percentage, a distance and a year; `space` parts the phrases, as Chinese does not."""

    who: Sequence[str]
    does: Sequence[str]
    where: Sequence[str]
    joins: Sequence[str]
    replies: Sequence[str]
    ends: Sequence[str]
    space: str


ENGLISH = Phrases(
    who=(
        "the old captain", "my sister", "a young engineer", "the night train", "our neighbour",
        "the committee", "an orange cat", "the weather service", "nobody", "Margaret",
        "a group of students", "the second violinist", "your doctor", "the little bookshop",
    ),
    does=(
        "arrived at the station", "bought {n} bottles of milk", "waited for {n} minutes",
        "has forgotten the umbrella", "would rather walk home", "found {p} percent of them",
        "opened the window", "painted the fence yellow", "reported {n} open cases",
        "sings every morning", "travelled {d} kilometres", "will call you back tomorrow",
        "moved to another city in {y}", "lost the key again", "repaired the broken radio",
        "came back with bread, apples, cheese and a lamp",
    ),
    where=(
        "near the harbour", "before breakfast", "in spite of the rain", "without saying a word",
        "on the third floor", "as the bell rang", "behind the old library", "under a grey sky",
        "by the end of the week", "with a great deal of patience", "for the first time",
    ),
    joins=(", and ", ", but ", "; ", ", so ", ", because ", " while ", " - "),
    replies=(
        "Yes.", "No.", "Of course.", "Not today, thank you.", "I am not sure.", "Good morning!",
        "That is right.", "Maybe later.", "Here you are.", "What a pity!", "See you on Monday.",
    ),
    ends=(". ", ". ", ". ", "! ", "? "),
    space=" ",
)  # fmt: skip

CHINESE = Phrases(
    who=(
        "老船长", "我妹妹", "那位工程师", "夜班火车", "邻居家的小猫", "委员会", "气象台", "王老师",
        "几个大学生", "隔壁的面包店", "医生", "小明和他的朋友", "这家公司", "没有人",
    ),
    does=(
        "刚刚到达车站", "买了{n}瓶牛奶", "等了{n}分钟", "又忘记带雨伞了", "宁愿走路回家",
        "完成了{p}%的任务", "把窗户打开了", "把围墙刷成黄色", "一共走了{d}公里", "搬到了另一个城市",
        "明天会给你回电话", "修好了那台旧收音机", "每天早上都唱歌", "提出了{n}个问题",
        "带回了面包、苹果、奶酪和一盏灯",
    ),
    where=(
        "在港口附近", "吃早饭以前", "尽管下着大雨", "一句话也没说", "在三楼", "铃声响起的时候",
        "在图书馆后面", "第一次", "到这个周末为止", "非常有耐心地",
    ),
    joins=("，而且", "，但是", "；", "，所以", "，因为", "、", "，后来"),
    replies=(
        "好的。", "不行。", "当然可以。", "今天不用了，谢谢。", "我不太清楚。", "早上好！",
        "没错。", "也许以后吧。", "给你。", "真可惜！", "星期一见。",
    ),
    ends=("。", "。", "。", "！", "？"),
    space="",
)  # fmt: skip


def named(names: str) -> tuple[Reading, ...]:
    """The kinds of a list like `en,zh`, each once. Raises `PlanError`."""
    asked = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in asked if name not in list(Reading)]
    if unknown or not asked:
        what = f"no texts are called {', '.join(unknown)}" if unknown else "no texts are named"
        raise PlanError(f"{what}: choose from {', '.join(Reading)}")
    return tuple(Reading(name) for name in dict.fromkeys(asked))


def draw(reading: Reading, count: int, *, seed: int) -> list[str]:
    """`count` texts that all differ. Other seeds give other texts."""
    match reading:
        case Reading.ENGLISH:
            return compose(ENGLISH, count, seed=seed)
        case Reading.CHINESE:
            return compose(CHINESE, count, seed=seed)
        case Reading.WORDS:
            return _distinct(_words, count, seed)


def compose(phrases: Phrases, count: int, *, seed: int) -> list[str]:
    """`count` texts of these phrases that all differ: replies, and one to three sentences."""
    return _distinct(lambda rng: _text(phrases, rng), count, seed)


def _distinct(make: Callable[[Rng], str], count: int, seed: int) -> list[str]:
    rng, texts = np.random.default_rng(seed), dict[str, None]()
    while len(texts) < count:
        texts[make(rng)] = None
    return list(texts)


def _text(phrases: Phrases, rng: Rng) -> str:
    if rng.random() < _REPLY_SHARE:
        replies = [_pick(rng, phrases.replies) for _ in range(int(rng.integers(1, 4)))]
        return phrases.space.join(replies)
    return "".join(_sentence(phrases, rng) for _ in range(_pick(rng, _SENTENCES))).strip()


def _sentence(phrases: Phrases, rng: Rng) -> str:
    clauses = [_clause(phrases, rng) for _ in range(_pick(rng, _CLAUSES))]
    said = _pick(rng, phrases.joins).join(clauses)
    numbers = {
        "n": rng.integers(2, 10 ** rng.integers(1, 4)) + 1,
        "p": rng.integers(1, 100),
        "d": f"{rng.integers(1, 400)}.{rng.integers(1, 10)}",
        "y": rng.integers(1850, 2030),
    }
    said = said.format(**numbers)
    return said[0].upper() + said[1:] + _pick(rng, phrases.ends)


def _clause(phrases: Phrases, rng: Rng) -> str:
    parts = [_pick(rng, phrases.who), _pick(rng, phrases.does)]
    if rng.random() < _WHERE_SHARE:
        parts.insert(2 if phrases.space else 1, _pick(rng, phrases.where))
    return phrases.space.join(parts)


def _words(rng: Rng) -> str:
    lexicon = (*DIGITS, *COLOURS, *SHAPES)
    return " ".join(_pick(rng, lexicon) for _ in range(int(rng.integers(1, _LONGEST_WORDS + 1))))


def _pick(rng: Rng, of: Sequence[Item]) -> Item:
    return of[int(rng.integers(len(of)))]
