"""What a short answer says: yes or no, a whole number, or the words that a model dressed up.

Replies of models and answers of programs are both read here. A program's answer changes only where nothing is lost.
"""

from __future__ import annotations

import re

from .text import without_thoughts

DONT_KNOW = "I don't know"
"""The answer to what the models do not know, or not surely enough."""
_CONTROL = re.compile(r"<[|｜][\w▁ -]+[|｜]>")
"""A control token, such as ``<|im_end|>`` or the marks of a box."""
_WRAPPED = re.compile(
    r"<(answer|response|final_answer|output|result)>(.*?)(?:</\1>|\Z)|\\boxed\{(?:\\text\{)?([^{}]*)\}+", re.S | re.I
)
_LABEL = re.compile(r"(?:the |my |final |short |correct )*(?:answer|response)(?: is|:| would be)+[:\s]*", re.I)
_JSON = re.compile(r"""\{\s*["'](?:\w+_)?answer["']\s*:\s*["']?([^"'{}]*)["']?\s*\}""", re.I)
_DECORATION = " \t\r\n*_`\"'“”‘’#>"
_END = 1000
"""Characters at either end of a long reply that are looked at."""
_YES = "yes yeah yep yup true correct"
_NO = "no nope nah false incorrect"
_SAID = re.compile(
    rf"(?:^|[.,;:!?()\[\]\n\"'“*`—–-]\s*|\b(?:is|be|say|think|so|believe|guess|answer|\w+ly|oh|well|um|hmm)\s+)"
    rf"({'|'.join(f'{_YES} {_NO}'.split())})"
    r"(?=\s*(?:$|[.,;:!?()\[\]\n\"'”*`—–-]))",
    re.I,
)
"""Yes or no that stands by itself, or at the end of "I think ...", "the answer is ..."."""
_OPENS = re.compile(
    r"\W*(yes|no) (?:it|there|they|the|this|that|these|those|he|she|i|we|you|both|all|only|because|not)\b", re.I
)
_DIGITS = re.compile(r"[-+−]?\d+(?:,\d{3})*(?:\.0+)?")
LITERAL = re.compile(r"[-−]?\d+(?:,\d{3})*(?:\.\d+)?")
"""A number as a program prints it."""
_SMALL = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen
"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_UNITS = {word: value for value, word in enumerate(_SMALL.split())} | {
    word: 10 * n for n, word in enumerate(_TENS.split(), 2)
}
_SCALES = {"hundred": 100, "thousand": 1000}
_BESIDE = re.compile(
    r"\b(?:not|n't|more|less|fewer|least|most|over|under|between|about|around|almost|nearly|or|to|half|several|dozens?"
    r"|hundreds|thousands|many|some|few|every|each|other|another|percent)\b|[%$€£/:#°]|\d(?:st|nd|rd|th)\b"
    r"|[a-z]\d|\d[a-z]|\d\s*[-–—]\s*\d"
)
"""What makes a number beside it another: "not two", "2 or 3", "20%", "3rd", "B7"."""


def bare_reply(reply: str) -> str:
    """Returns a model's reply without thoughts, control tokens, labels and decoration: its answer, on one line.

    >>> bare_reply("<think>blue?</think>**Red**"), bare_reply("Answer: red."), bare_reply("<|begin_of_box|>red")
    ('Red', 'red', 'red')
    """
    text = _spoken_text(reply)
    if wrapped := (list(_WRAPPED.finditer(text)) or list(_JSON.finditer(text))):
        text = next(filter(None, wrapped[-1].groups()[-2:]), "") if wrapped[-1].re is _WRAPPED else wrapped[-1][1]
    lines = [line for line in (line.strip(_DECORATION) for line in text.split("\n")) if line]
    labelled = [line for line in lines if _LABEL.match(line)]
    line = labelled[-1] if labelled else lines[0] if lines else ""
    rest = _LABEL.sub("", line, count=1) if labelled else line
    if labelled and not rest.strip(_DECORATION):  # the label stands on a line of its own
        rest = next(iter(lines[lines.index(line) + 1 :]), "")
    return rest.strip(_DECORATION).removesuffix(".").strip(_DECORATION)


def _spoken_text(reply: str) -> str:
    """Returns what a reply says aloud; of a long one the first and the last of it."""
    text = _CONTROL.sub("\n", without_thoughts(reply))
    return text if len(text) <= 2 * _END else f"{text[:_END]}\n{text[-_END:]}"


def yes_or_no(reply: str) -> str:
    """Returns ``yes`` or ``no`` where a reply plainly says one of them, and not both; else an empty text.

    >>> yes_or_no("No, there is no black square."), yes_or_no("I think so, yes"), yes_or_no("The answer is yes.")
    ('no', 'yes', 'yes')
    >>> yes_or_no("yes and no"), yes_or_no("nothing"), yes_or_no("There is a cat."), yes_or_no("It is not true.")
    ('', '', '', '')
    """
    answer = bare_reply(reply)
    if exact := truth(answer):
        return exact
    text = _spoken_text(reply)
    words = [match[1].lower() for match in _SAID.finditer(text)]
    words += [match[1].lower() for match in [_OPENS.match(text)] if match]
    plain = {"yes" if word in _YES.split() else "no" for word in words}
    both = {word.lower() for word in re.findall(r"\b(?:yes|no)\b(?! one)", answer, re.I)} == {"yes", "no"}
    return plain.pop() if len(plain) == 1 and not (both and len(words) > 1) else ""


def truth(text: str) -> str:
    """Returns ``yes`` or ``no`` for a text that is one of them, or True or False, and nothing else; else nothing."""
    word = text.strip(_DECORATION + ".!,").lower()
    return {"yes": "yes", "no": "no", "true": "yes", "false": "no"}.get(word, "")


def whole_number(text: str) -> int | None:
    """Returns the whole number that a text is, in figures or words; None where it is anything else.

    >>> whole_number("1,000"), whole_number("two hundred and six"), whole_number("twenty-one"), whole_number("2.0")
    (1000, 206, 21, 2)
    >>> whole_number("two cats"), whole_number("3rd"), whole_number("B7"), whole_number("2, 2")
    (None, None, None, None)
    """
    word = text.strip(_DECORATION + "!").removesuffix(".").lower()
    if len(word) < 40 and _DIGITS.fullmatch(word):
        return int(word.replace(",", "").replace("−", "-").partition(".")[0])
    words = re.split(r"[\s-]+", word)
    if words == ["none"]:
        return 0
    return _read_number_words(words) if len(words) < 12 and words[-1] != "and" else None


def _read_number_words(words: list[str]) -> int | None:
    total = part = 0
    last = 1 << 20  # what the next word must stay below
    for place, word in enumerate(words):
        if word == "and" and place and last in (100, 1000):
            continue
        if word in _SCALES and place and 0 < part < _SCALES[word] and (word == "thousand" or part < 10):
            total, part, last = (total + part * 1000, 0, 1000) if word == "thousand" else (total, part * 100, 100)
            continue
        value = _UNITS.get(word)
        if value is None or (place and (value == 0 or value >= last)):
            return None
        part += value
        last = 10 if value >= 20 else 0
    return total + part


def number_in(reply: str) -> int | None:
    """Returns the one whole number that a short reply plainly names; None where it names none, several or part of one.

    >>> number_in("four blocks"), number_in("there are 2 cups"), number_in("no cups"), number_in("a lot")
    (4, 2, 0, None)
    >>> number_in("not two"), number_in("20%"), number_in("2 or 3"), number_in("half a dozen"), number_in("B7")
    (None, None, None, None, None)
    """
    text = bare_reply(reply).lower()
    if (exact := whole_number(text)) is not None:
        return exact
    if len(text) > 200 or _BESIDE.search(text):
        return None
    figures = re.findall(r"(?<![\d.,])\d+(?:,\d{3})*(?:\.\d+)?", text)
    if figures:
        return whole_number(figures[0]) if len(set(figures)) == 1 else None
    names = rf"(?:{'|'.join((*_UNITS, *_SCALES))})"
    spelled = {whole_number(match[0]) for match in re.finditer(rf"\b{names}\b(?:(?:[ -]| and )\b{names}\b)*", text)}
    if spelled:
        return spelled.pop() if len(spelled) == 1 else None
    if re.match(r"(?:there (?:is|are) )?(?:no|none|nothing|zero)\b", text):
        return 0
    return None
