"""Faults injected into espeak-ng's English and Chinese are found, and whole speech is left alone.

The bench (`bench/detectors_speech.py`) does the same at length; here the bars only just show.
"""

from functools import lru_cache

import numpy as np
import pytest

from monitors.detectors import speaking_time
from monitors.detectors.finding import Abstained, Verdict
from monitors.detectors.speaking_time import VoiceModel
from monitors.labels import Grade
from runtime.quality import readings
from runtime.quality.readings import Reading
from tests.faults import speech, voices
from tests.faults.speech import CUTS, EXACT, FLAWS, Injector, Stream
from tests.faults.voices import AWKWARD, VOICES, Voice

TO_FIT = 45
JUDGED = 20
BARS = {"cut_in_half": 0.97, "cut_anywhere": 0.9, "last_400_ms": 0.9, "last_100_ms": 0.68}
SPEAKERS = (VOICES[0], VOICES[4])


@lru_cache
def known(voice: Voice) -> VoiceModel:
    texts = readings.draw(Reading(voice.language.value), TO_FIT, seed=1)
    return speaking_time.fit([speech.spoken(text, voices.say(voice, text)) for text in texts])


@lru_cache
def whole(voice: Voice) -> tuple[Stream, ...]:
    texts = voices.texts(voice.language, JUDGED, seed=2)
    return tuple(speech.stream(text, voices.say(voice, text)) for text in texts)


def rules(verdict: Verdict, grade: Grade | None = None) -> set[str]:
    found = () if isinstance(verdict, Abstained) else verdict
    return {fault.rule for fault in found if grade in (None, fault.grade)}


def damaged(voice: Voice, inject: Injector) -> list[Verdict]:
    rng = np.random.default_rng(3)
    return [speech.judge(inject(one, rng), known(voice)) for one in whole(voice)]


@pytest.mark.parametrize("voice", SPEAKERS, ids=lambda v: v.name)
def test_whole_speech_has_no_fault_and_is_judged(voice: Voice) -> None:
    verdicts = [speech.judge(one, known(voice)) for one in whole(voice)]
    assert [rules(verdict) for verdict in verdicts] == [set()] * JUDGED
    assert verdicts.count(()) >= 0.8 * JUDGED, "only the shortest are not judged"


@pytest.mark.parametrize("voice", SPEAKERS, ids=lambda v: v.name)
def test_awkward_texts_spoken_whole_are_left_alone_or_not_judged(voice: Voice) -> None:
    """Figures, lists, abbreviations, single syllables: where a reading is a guess."""
    for text in AWKWARD[voice.language]:
        verdict = speech.judge(speech.stream(text, voices.say(voice, text)), known(voice))
        assert rules(verdict, Grade.HARD) == set(), text


@pytest.mark.parametrize("inject", CUTS, ids=lambda f: f.__name__)
def test_a_cut_is_found_though_every_account_agrees(inject: Injector) -> None:
    verdicts = [verdict for voice in SPEAKERS for verdict in damaged(voice, inject)]
    found = [bool(rules(verdict, Grade.HARD)) for verdict in verdicts]
    assert np.mean(found) >= BARS[inject.__name__]
    accounts = {"samples_lost", "no_final_event", "length"}
    assert not any(rules(verdict) & accounts for verdict in verdicts)


@pytest.mark.parametrize("inject", EXACT, ids=lambda f: f.__name__)
def test_a_broken_account_is_always_found_by_whatever_voice(inject: Injector) -> None:
    rng = np.random.default_rng(3)
    for one in whole(SPEAKERS[0]):
        assert rules(speech.judge(inject(one, rng), None), Grade.HARD)


@pytest.mark.parametrize(("rule", "inject"), FLAWS.items())
def test_a_flaw_shows_and_counts_against_nobody(rule: str, inject: Injector) -> None:
    verdicts = damaged(SPEAKERS[0], inject)
    assert np.mean([rule in rules(verdict, Grade.SOFT) for verdict in verdicts]) >= 0.6
    assert all(rules(verdict, Grade.HARD) == set() for verdict in verdicts)
