"""How the published scripts rewrite an answer before they compare it. Their slips are part of the definition.

The steps are those of the VQA evaluation (Antol et al., ICCV 2015, https://github.com/GT-Vision-Lab/VQA), which LAVIS,
lmms-eval and the release of the CodeVQA paper share. Written anew from the description of what they do.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from functools import lru_cache

PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
"""Apostrophe, colon and full stop are not among them."""
_NUMBER_WORDS = "zero one two three four five six seven eight nine ten"
NUMBERS = {word: str(number) for number, word in enumerate(_NUMBER_WORDS.split())}
_WORDS = {**NUMBERS, "none": "0"}
_ARTICLES = frozenset(("a", "an", "the"))
_STOP = re.compile(r"\.(?!\d)")
"""The scripts also ask for no digit before the stop, but misspell that condition into one that always holds."""
_STOPS_AT_MOST = 32
"""The scripts pass ``re.UNICODE``, which is 32, in the place of the count."""
_COMMA = re.compile(r"\d,\d")
_COMMAS = re.compile(r"\d,+\d")
_BREAKS = str.maketrans("\n\t", "  ")

# An entry of the scripts' table is one of these with one apostrophe missing.
_CONTRACTED = """
ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've he's
how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've needn't not've o'clock
oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll somebody's someone'd
someone'd've someone'll someone's something'd something'd've something'll that's there'd there'd've there're there's
they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're what's what've when's
where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't would've wouldn't wouldn't've
y'all y'all'll y'all'd've you'd you'd've you'll you're you've
"""
_CONTRACTIONS = {
    word[:place] + word[place + 1 :]: word
    for word in _CONTRACTED.split()
    for place, letter in enumerate(word)
    if letter == "'"
}
_CONTRACTIONS["somebody'd"] = "somebodyd"


def no_breaks(text: str) -> str:
    """Returns the text with line breaks and tabs as spaces, and no space around it."""
    return text.translate(_BREAKS).strip()


def punctuation(text: str, *, commas: re.Pattern[str] = _COMMA) -> str:
    """Deletes or replaces punctuation: a mark beside a space, or any where a number has a comma, goes without trace.

    Args:
        text: the answer.
        commas: what a number with a comma looks like.
    """
    everywhere = commas.search(text) is not None
    cleaned = text
    for mark in PUNCTUATION:
        alone = mark + " " in text or " " + mark in text
        cleaned = cleaned.replace(mark, "" if everywhere or alone else " ")
    return _STOP.sub("", cleaned, count=_STOPS_AT_MOST)


def digits_articles(text: str) -> str:
    """Lower-cases, writes number words to ten (and "none") as digits, drops articles, mends contractions."""
    words = (_WORDS.get(word, word) for word in text.lower().split())
    return " ".join(_CONTRACTIONS.get(word, word) for word in words if word not in _ARTICLES)


@lru_cache(maxsize=65_536)
def release(text: str) -> str:
    """Returns a prediction as LAVIS and the paper's release rewrite it."""
    return digits_articles(punctuation(no_breaks(text)))


@lru_cache(maxsize=65_536)
def lmms_vqa(text: str) -> str:
    """Returns an answer as the VQAv2 task of lmms-eval rewrites it."""
    return digits_articles(punctuation(no_breaks(text), commas=_COMMAS))


@lru_cache(maxsize=65_536)
def evalai(text: str) -> str:
    """Returns an answer as EvalAI's processor, used by the OK-VQA task of lmms-eval, rewrites it."""
    split = text.lower().replace(",", "").replace("?", "").replace("'s", " 's").strip()
    return lmms_vqa(split)


def lmms_exact(text: str) -> str:
    """Returns an answer without case and ASCII punctuation, as lmms-eval's exact match compares it."""
    return text.lower().translate(_NO_PUNCTUATION)


_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def yes_no(text: str) -> str:
    """Returns "yes" for true, "no" for false, in any case, and any other text as it is."""
    return {"true": "yes", "false": "no"}.get(text.lower(), text)


def porter() -> Callable[[str], str]:
    """Returns a function that stems each word of a text with Porter's algorithm (1980). Not for use by many threads."""
    import snowballstemmer  # type: ignore[import-untyped, unused-ignore]

    stemmer = snowballstemmer.stemmer("porter")
    return lambda text: " ".join(stemmer.stemWords(text.split()))
