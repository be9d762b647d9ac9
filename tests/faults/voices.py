"""Clean generated speech by seed: espeak-ng voices that read English and Chinese.

The phrases are not those that a voice's pace is fitted to (`runtime.quality.readings`): a pace
must hold for texts of another kind.
"""

import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import soxr
from numpy.typing import NDArray

from monitors.detectors.syllables import Language
from runtime.quality import readings
from runtime.quality.readings import Phrases

HZ = 24_000
_ESPEAK_HZ = 22_050
_WAV_HEADER = 44

Pcm = NDArray[np.int16]


@dataclass(frozen=True)
class Voice:
    """One voice of espeak-ng; `speed` in its words per minute."""

    language: Language
    name: str
    speed: int


VOICES = (
    Voice(Language.ENGLISH, "en-us", 165),
    Voice(Language.ENGLISH, "en-gb+f3", 140),
    Voice(Language.ENGLISH, "en-gb-scotland+m4", 200),
    Voice(Language.CHINESE, "cmn", 160),
    Voice(Language.CHINESE, "cmn+f2", 135),
    Voice(Language.CHINESE, "cmn+m7", 190),
)

_PHRASES = {
    Language.ENGLISH: Phrases(
        who=(
            "the meeting", "this recipe", "Doctor Alvarez", "the museum", "a delivery van",
            "everyone in the village", "the last chapter", "our internet provider", "he", "it",
            "the referee", "an experienced gardener", "the president of the club", "Sam",
        ),
        does=(
            "starts at {n} o'clock sharp", "needs about {n} grams of flour", "closed for good",
            "was not what I expected", "gave {n} different explanations", "covers {d} miles",
            "apologised twice", "grew by {p}% last year", "remembered the summer of {y}",
            "kept complaining", "brought strawberries and cream", "disagrees", "might rain",
            "explained the procedure thoroughly", "cost {n} dollars", "slept through the storm",
        ),
        where=(
            "after all", "on Wednesday afternoon", "next to the swimming pool", "at once",
            "according to the newspaper", "over the weekend", "in the middle of the night",
            "along the river", "despite several warnings", "at the top of the hill",
        ),
        joins=(", although ", ": ", ", which means that ", " and ", ", then ", " — "),
        replies=(
            "Sure!", "Hello there.", "I'm afraid not.", "Could you repeat that, please?", "Right.",
            "Never mind.", "It depends.", "Thanks a lot!", "Let me check.",
            "Goodbye, and take care.",
        ),
        ends=(". ", ". ", ". ", "! ", "? "),
        space=" ",
    ),
    Language.CHINESE: Phrases(
        who=(
            "会议", "这道菜", "李医生", "博物馆", "快递员", "全村的人", "最后一章", "裁判", "他",
            "我们的网络公司", "有经验的园丁", "俱乐部主席", "那只猫头鹰", "弟弟",
        ),
        does=(
            "{n}点准时开始", "大约需要{n}克面粉", "永久关闭了", "和我想的不一样", "道歉了两次",
            "给出了{n}种解释", "全长{d}公里", "去年增长了{p}%", "一直在抱怨", "带来了草莓和奶油",
            "不同意", "可能要下雨", "详细地说明了步骤", "花了{n}块钱", "睡过了整场暴风雨",
        ),
        where=(
            "毕竟", "星期三下午", "在游泳池旁边", "马上", "据报纸报道", "周末", "半夜里",
            "沿着河边", "不顾多次警告", "在山顶上",
        ),
        joins=("，虽然", "：", "，也就是说，", "，然后", "；", "——"),
        replies=(
            "行！", "你好。", "恐怕不行。", "请再说一遍，好吗？", "对。", "没关系。", "看情况吧。",
            "非常感谢！", "让我看看。", "再见，请多保重。",
        ),
        ends=("。", "。", "。", "！", "？"),
        space="",
    ),
}  # fmt: skip

AWKWARD = {
    Language.ENGLISH: (
        "1,2,3,4,5", "My PIN is 4821.", "Call 555-1234 now.", "First:\n- eggs\n- milk\n- bread",
        'The words "red", "green", and "blue" are colours.', "In 1905, 1912 and 2024 it rained.",
        "It is 10:45.", "Hmm... well... no.", "(Yes.)", "NASA and the BBC agree.", "Mm-hmm.",
        "See https://example.org/a?b=c for more.", "**Bold** claims need `code`.", "Yes", "12",
        "a, b, c, d, e, f, g", "No! No! No! No!", "The 3rd of May, the 22nd, and the 1st.",
        "Dr. Smith lives on St. James St., No. 5.", "5 + 7 = 12", "$3.50, €20 or £1,250",
        "I'm, you're, he's, she'd, we'll, they've.", "2, 4, 6, 8", "It's 25°C, -3°C at night.",
        "e.g. apples, i.e. fruit, etc.", "A.I. in the U.S.A.", "one; two; three; four; five; six",
        "He said: yes; she said: no; I said: maybe.", "Queue, ague, yacht, rhythm, schwa.",
        "Dear Sir - thank you - bye.", "Room 305, seat 12B, gate C.", "Oh. I see. Well. Fine. Ok.",
        "%% Yes. %%", "%%%%%% no %%%%%%", "Use %s and %d here.", "From 20% to 30%, or 40%-50%.",
        "It was $5.00, then $1.50.", "R&D, Q&A, fish &amp; chips", "me@example.org", "He/she/they",
        "As shown [1][2][3].", "[Yes](/yes)", "$x$ and $y$", "#yes", "C++, C#", "100 %% of it",
    ),
    Language.CHINESE: (
        "1,2,3,4,5", "我的密码是4821。", "电话13800138000。", "“红”、“绿”和“蓝”是颜色。",
        "是", "对。", "2024年5月1日", "现在10:45。", "嗯……好吧……不。", "（是的。）", "一百二十三",
        "我们用Python和AI。", "红、橙、黄、绿、青、蓝、紫", "不！不！不！不！",
        "第3名，第22名，第1名。",
        "30%到50%", "气温25°C。", "A、B、C、D", "先：鸡蛋；再：牛奶；后：面包。", "哈哈哈哈！",
        "GDP增长3.5%，CPI上涨2%。",
        "一，二，三，四，五，六，七。", "%%%%%%是的%%%%%%", "％％％对。", "10%~20%，30%-40%",
        "一共5.00元，¥1.50。", "他/她/它", "见[1][2]。", "#是的#", "请写信给me@example.org。",
    ),
}  # fmt: skip


def texts(language: Language, count: int, *, seed: int) -> list[str]:
    """`count` texts that all differ, none of which a pace was fitted to."""
    return readings.compose(_PHRASES[language], count, seed=seed)


@lru_cache(maxsize=4096)
def say(voice: Voice, text: str) -> Pcm:
    """The text spoken, mono at `HZ`. Raises where espeak-ng is missing."""
    program = shutil.which("espeak-ng")
    if program is None:
        raise RuntimeError("espeak-ng is missing: apt-get install espeak-ng (or `make test`)")
    run = subprocess.run(
        [program, "--stdout", "-v", voice.name, "-s", str(voice.speed), "--", text],
        capture_output=True,
        check=True,
        timeout=30,
    )
    spoken = np.frombuffer(run.stdout[_WAV_HEADER:], "<i2")
    sound = soxr.resample(spoken.astype(np.float32) / 32768.0, _ESPEAK_HZ, HZ)
    pcm = np.rint(np.clip(sound, -1.0, 1.0) * 32767.0).astype(np.int16)
    pcm.flags.writeable = False  # it is cached: who damages it works on a copy
    return pcm
