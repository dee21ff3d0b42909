"""The metric of your own questions: the same answer in other words of writing, and nothing more.

No published script uses it, so it may be careful where they are not: "-5" is not "5", "C++" is not "C".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import TypeAlias

from ..task import Example
from .base import Metric

_BELOW_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_FROM_TWENTY = "twenty thirty forty fifty sixty seventy eighty ninety"
_TENS = tuple(_FROM_TWENTY.split())
_SMALL = {
    **{word: number for number, word in enumerate(_BELOW_TWENTY.split())},
    **{word: 10 * number for number, word in enumerate(_TENS, 2)},
}
_SCALES = {"hundred": 100, "thousand": 1_000, "million": 10**6, "billion": 10**9, "dozen": 12}
_IRREGULAR = {"first": 1, "second": 2, "third": 3, "fifth": 5, "eighth": 8, "ninth": 9, "twelfth": 12}
_ORDINALS = {
    **{f"{word}th": number for word, number in _SMALL.items() if number and word[-1] != "y"},
    **{f"{word[:-1]}ieth": _SMALL[word] for word in _TENS},
    **_IRREGULAR,
}
_ARTICLES = frozenset(("a", "an", "the"))
_SAME = {
    "percent": "%",
    "dollar": "$",
    "dollars": "$",
    "euro": "€",
    "euros": "€",
    "yen": "¥",
    "&": "and",
}
_CURRENCY = "$€£¥₹"

_DRAWN_ALIKE = {
    **dict.fromkeys("‐‑‒–—―−﹣－", "-"),
    **dict.fromkeys("‘’‚‛ʼ`´＇", "'"),
    **dict.fromkeys("“”„‟«»＂", '"'),
    "×": "x",
    "_": " ",
}
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_INITIALS = re.compile(r"\b(?:[^\W\d_]\.){2,}|\b(?:[^\W\d_]\.)+[^\W\d_]\b\.?")
_NUMBER = re.compile(
    rf"(?P<sign>[-+]?)(?P<before>[{_CURRENCY}]?)(?P<inner>-?)"
    r"(?P<value>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)"
    rf"(?P<after>%|[{_CURRENCY}]|°?[^\W\d_]*)"
)
_TIME = re.compile(r"0?(\d{1,2}:\d\d(?::\d\d)?)([ap]m)?")
_DIGITS = 20
"""Most digits of a number; decimals are exact up to 28."""
_EDGES = "([{¿¡", ")]}.,!?;:。！？、"
_PARTED = re.compile(r"(?<!\d),(?=\S)|,(?=[^\d\s])")
_DECADE = re.compile(r"(?<=\d)'(?=s\b)")
_APOSTROPHE = re.compile(r"(?<!\d)'|'(?=[^\W\d_])")

_Token: TypeAlias = "tuple[Decimal | str, bool]"
"""A number or a text, and whether a comma or a stop follows it."""


class OwnMatch(Metric):
    """1 where the prediction is one of the accepted answers (:func:`same_answer`), 0 elsewhere."""

    name = "exact match (case, articles, punctuation aside; numbers by value)"

    def agreement(self, example: Example, prediction: str) -> float:
        """Returns 0 or 1."""
        return float(any(same_answer(gold, prediction) for gold in example.gold))


def same_answer(gold: str, prediction: str) -> bool:
    """Whether two texts are the same answer.

    - Forms of a character, case, kinds of quotes and dashes do not count: "café" is "CAFÉ", however it is encoded.
    - Numbers are compared by value, in digits or in words: "1,000" is "1000", "2.0" is "2", "twenty-one" is "21".
      What may be no quantity stays as it is written: "007", "1,5", "1/2", "3-4", "3:00", "version 1.10".
    - What a number or a name says by a sign counts: "-5", "$5", "5%", "C++", "#5".
    - Sentence marks, brackets and quotes around words do not count, nor do apostrophes. A hyphen between words is as
      good as a space or as nothing: "x-ray" is "x ray", "t-shirt" is "tshirt".
    - Articles before another word do not count. "A" alone is an answer, and so are "A B" and "vitamin A".
    - "True" is "yes" and "False" is "no".

    An answer of marks alone is compared as it is written.
    """
    return not _readings(gold).isdisjoint(_readings(prediction))


@lru_cache(maxsize=65_536)
def _readings(text: str) -> frozenset[str]:
    """Returns what a text reads as, with hyphens as spaces and as nothing."""
    plain = _plain_text(text)
    spellings = {" ".join(_plain_words(plain, hyphen)) for hyphen in (" ", "")}
    return frozenset(
        {"true": "yes", "false": "no", "none": "0"}.get(spelling, spelling) or f"mark {plain}" for spelling in spellings
    )


def _plain_text(text: str) -> str:
    """Returns a text without what nobody sees: forms of a character, case, kinds of quotes and dashes."""
    # Unicode would make 102 of "10²", and 11/2 of "1½".
    kept = _RAISED.sub(lambda match: f"^{unicodedata.normalize('NFKC', match[0])}", text)
    kept = "".join(
        f" {whole}" if "\u2044" in (whole := unicodedata.normalize("NFKC", letter)) and letter != "\u2044" else letter
        for letter in kept
    )
    alike = "".join(_DRAWN_ALIKE.get(letter, letter) for letter in kept)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", alike).casefold()).replace("i\u0307", "i")
    seen = "".join(letter for letter in folded if unicodedata.category(letter) not in ("Cf", "Cc") or letter.isspace())
    return " ".join(seen.replace("\u2044", "/").replace("\ufe0f", "").split())


def _plain_words(plain: str, hyphen: str) -> Iterator[str]:
    """Yields the words of a plain text that count, with numbers as their values."""
    text = _INITIALS.sub(lambda match: match[0].replace(".", ""), plain)
    text = re.sub(r" ?/ ?", "/", _DECADE.sub("", text)).replace("&", " & ")
    text = re.sub(r"\bper cent\b", "percent", _remove_quotes(text))
    tokens = _combine_numbers(
        [token for chunk in _PARTED.sub(", ", text).split() for token in _split_chunk(chunk, hyphen)]
    )
    for place, (token, ends) in enumerate(tokens):
        after = tokens[place + 1][0] if place + 1 < len(tokens) else None
        number_after, number_before = (
            isinstance(after, Decimal),
            place > 0 and isinstance(tokens[place - 1][0], Decimal),
        )
        if token == "-" and not (number_after and number_before):
            continue
        if isinstance(token, str) and token in _ARTICLES and not ends and _has_article(token, after):
            continue
        yield f"{token.normalize():f}" if isinstance(token, Decimal) else token
        if ends and isinstance(token, Decimal) and number_after:
            yield ","


def _has_article(article: str, after: Decimal | str | None) -> bool:
    """Whether an article belongs to what follows; "a" before a letter, a number or "or" is the letter A."""
    if after is None:
        return False
    return article != "a" or (isinstance(after, str) and after not in ("and", "or") and len(after) > 1)


def _remove_quotes(text: str) -> str:
    """Returns a text without quotes and stars in pairs; a lone one may be an inch, or the mark A*."""
    for mark in ('"', "'", "**", "*"):
        sign = re.escape(mark)
        text = re.sub(rf"(?<![\w{sign}]){sign}(?=\S)([^{sign}]+?){sign}(?!\w)", r"\1", text)
    return text


def _split_chunk(chunk: str, hyphen: str) -> Iterator[_Token]:
    core = chunk.lstrip(_EDGES[0])
    bare = core.rstrip(_EDGES[1])
    if core.endswith(":)"):  # it is nobody's bracket
        bare = core
    ends = any(mark in ",.;:" for mark in core[len(bare) :])
    if not bare:
        return
    *first, last = list(_token_values(bare, hyphen))
    yield from ((token, False) for token in first)
    yield last, ends


def _token_values(bare: str, hyphen: str) -> list[Decimal | str]:
    if bare == "-":
        return ["-"]
    if (time := _TIME.fullmatch(bare)) is not None:
        return [time[1], *([time[2]] if time[2] else [])]
    if (match := _NUMBER.fullmatch(bare)) is not None:
        return _number_values(match)
    parts = bare.split("-")
    if len(parts) > 1 and all(parts):
        numbers = [_NUMBER.fullmatch(part) is not None or part in _SMALL for part in parts]
        composed = any(map(_is_compound, parts, parts[1:]))
        if composed:
            return [piece for part in parts for piece in _token_values(part, hyphen)]
        if all(numbers):
            return [piece for part in parts for piece in ("-", *_token_values(part, hyphen))][1:]
        return [piece for part in hyphen.join(parts).split() for piece in _token_values(part, hyphen)]
    if re.fullmatch(r"\d+(?:,\d+)+", bare):  # no number that all write so: a list, or a decimal comma
        return [" , ".join(bare.split(","))]
    word = _APOSTROPHE.sub("", bare).strip("-") or bare
    return [_SAME.get(word, word)]


def _is_compound(first: str, second: str) -> bool:
    """Whether two words are one number in words, such as twenty and one."""
    if first in _TENS:
        return 0 < (_SMALL.get(second) or _ORDINALS.get(second, 0)) < 10
    return (first in _SMALL and second in _SCALES) or (first in _SCALES and (second in _SMALL or second in _SCALES))


def _number_values(match: re.Match[str]) -> list[Decimal | str]:
    digits, after = match["value"].replace(",", ""), match["after"]
    whole = digits.split(".")[0]
    if (len(whole) > 1 and whole[0] == "0") or len(digits) > _DIGITS:  # a code, not a quantity
        return [match[0]]
    value = Decimal(digits)
    if "-" in (match["sign"], match["inner"]):
        value = -value
    if after in ("st", "nd", "rd", "th") and "." not in digits:
        return [f"{value}th"]
    return [value, *(_SAME.get(part, part) for part in (match["before"], after) if part)]


def _combine_numbers(tokens: Sequence[_Token]) -> list[_Token]:
    """Returns tokens with numbers in words, signs in words and currencies before their numbers as digits have them."""
    parsed: list[_Token] = []
    place = 0
    while place < len(tokens):
        token, ends = tokens[place]
        before = parsed[-1][0] if parsed else None
        value, used = _in_words(tokens[place:])
        if used:
            parsed.append((value, tokens[place + used - 1][1]))
            place += used
            continue
        after = _in_words(tokens[place + 1 :])[0] if place + 1 < len(tokens) and not ends else None
        if isinstance(after, Decimal):
            used = _in_words(tokens[place + 1 :])[1]
            last = tokens[place + used][1]
            if token in ("minus", "negative") or (token == "-" and not isinstance(before, Decimal)):
                parsed.append((-after, last))
                place += 1 + used
                continue
            if isinstance(token, str) and token in _CURRENCY:
                parsed += [(after, False), (token, last)]
                place += 1 + used
                continue
            if token == "version":  # 1.10 comes after 1.9 there
                parsed.append((f"version {after}", last))
                place += 1 + used
                continue
        parsed.append((token, ends))
        place += 1
    return parsed


def _in_words(tokens: Sequence[_Token]) -> tuple[Decimal | str, int]:
    """Returns the number that tokens begin with, and how many tokens it has; 0 where they begin with none."""
    total, part = Decimal(0), Decimal(-1)  # -1: nothing yet
    used, ordinal, small = 0, False, 10**12
    for place, (token, ends) in enumerate(tokens):
        if isinstance(token, Decimal):
            if used:
                break
            part, small = token, 0
        elif (
            token in _SMALL and small > _SMALL[token] and not (small < 100 and (_SMALL[token] > 9 or not _SMALL[token]))
        ):
            part, small = max(part, Decimal(0)) + _SMALL[token], _SMALL[token] if _SMALL[token] > 19 else 0
        elif token in _SCALES and (used or place == 0 or tokens[0][0] == "a"):
            size = _SCALES[str(token)]
            if size > 100:
                total, part, small = total + (part if part > 0 else 1) * size, Decimal(0), size
            else:
                part, small = (part if part > 0 else Decimal(1)) * size, size
        elif token in _ORDINALS and _ORDINALS[str(token)] < small and not (small < 100 and _ORDINALS[str(token)] > 9):
            part, ordinal = max(part, Decimal(0)) + _ORDINALS[str(token)], True
        elif (
            token == "and" and used and small >= 100 and place + 1 < len(tokens) and tokens[place + 1][0] in _SMALL
        ) or (token == "a" and not used and place + 1 < len(tokens) and tokens[place + 1][0] in _SCALES):
            continue
        else:
            break
        used = place + 1
        if ends or ordinal:
            break
    if not used:
        return "", 0
    value = total + max(part, Decimal(0)) if part >= 0 or total else part
    return (f"{value}th" if ordinal else value), used
