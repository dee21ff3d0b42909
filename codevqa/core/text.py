"""How prompts write what users say, and terminals what models say."""

from __future__ import annotations

import re

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
"""What a terminal would obey rather than show: control characters but tabs and line ends, changes of direction; and
what XML has not."""
_MARK = re.compile(r"<(?=[^\s<>=][^<>\n]{0,80}>)|\[(?=/?\w?[A-Z_][A-Z_0-9]+\])|>(?=>[A-Z_]+<<)")
"""Begins what tokenizers take for a control token: the end of a turn, of a text, a gap to fill in."""
NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""What no text has: NUL, and half a surrogate pair."""
_SECTION = re.compile("=(?===)")
_BREAK = re.compile(r"[^\S ]+")
_FORGED = re.compile(rf"={{3}}|\b[QA]:|# Image\b|{_MARK.pattern}")
"""What no caption holds, and a prompt is made of."""


def break_control_tokens(text: str) -> str:
    """Returns a text in which no tokenizer finds a control token; a program stays the program that it is."""
    return _MARK.sub(r"\g<0> ", text)


def one_line(text: str, *, spaces: bool = False) -> str:
    """Returns a text as prompts may hold it: it begins no line of its own, no section, and no turn of a chat.

    With ``spaces`` several in a row stay several.
    """
    line = join_lines(text) if spaces else " ".join(text.split())
    return break_control_tokens(_SECTION.sub("= ", line))


def join_lines(text: str) -> str:
    """Returns a text on one line, with as many spaces in it as there are."""
    return _BREAK.sub(" ", text).strip()


def caption_line(text: str) -> str:
    """Returns of a caption what is one: what comes after a mark that prompts are made of was not seen in a picture."""
    return one_line(_FORGED.split(" ".join(text.split()), maxsplit=1)[0])


def sentence_case(question: str, *, spaces: bool = False) -> str:
    """Returns the question as prompts show it: first letter upper case, the rest lower, on one line."""
    line = one_line(question, spaces=spaces)
    return line[:1].upper() + line[1:].lower()


def visible(text: str) -> str:
    """Returns a text as a terminal may print it: what would move its cursor or turn its letters round is spelt out.

    It is spelt as JSON and TOML do, whose texts keep their meaning.
    """
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def whole_characters(text: str) -> str:
    """Returns a text that can be written: halves of characters are joined, and replaced where the other is missing."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def shown_address(address: str) -> str:
    """Returns an address without what may be secret in it: user, password, query and fragment."""
    return re.split(r"[?#]", re.sub(r"//.*@", "//", address, flags=re.DOTALL), maxsplit=1)[0]


_NAMES = (
    r"(?:\w+:|(?!begin|start|end)[a-z]+_)?(?:think|thinking|thought|thoughts|reason|reasoning|reflection|analysis|scratchpad|monologue"
    r"|chain_of_thought)"
)
_PAIRS = (
    # <think>, <Thinking>, <seed:think>, [THINK], ◁think▷, <|thinking|>
    (rf"(?:<\|?{_NAMES}\|?>|\[{_NAMES}\]|◁{_NAMES}▷)", rf"(?:<\|?/{_NAMES}\|?>|\[/{_NAMES}\]|◁/{_NAMES}▷)"),
    # <|begin_of_thought|>, <|START_THINKING|>, <|startofthink|>
    (
        rf"<\|(?:begin|start)_?(?:of_?)?{_NAMES}\|>",
        rf"<\|end_?(?:of_?)?{_NAMES}\|>(?:\s*<\|(?:begin|start)_?(?:of_?)?(?:solution|response|answer)\|>)?",
    ),
    # OpenAI's harmony: <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>
    (
        r"(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>",
        r"(?:<\|end\|>\s*)?(?:(?:<\|start\|>assistant)?<\|channel\|>final\b[^<]*<\|message\|>)|<\|end\|>",
    ),
    # Gemma's <|channel>thought ... <channel|>, MedGemma's <unused94>thought ... <unused95>
    (r"<\|channel>\s*thought\b", r"<channel\|>"),
    (r"<unused94>\s*thought\b", r"<unused95>"),
    # Granite's sentences
    (r"(?m:^)Here(?: is|'s) my thought process:", r"Here(?: is|'s) my response:"),
)
_FINAL = re.compile(r"^\s*(?:<\|start\|>assistant)?<\|channel\|>final\b[^<]*<\|message\|>", re.I)
_MARKS = [(re.compile(opening, re.I), re.compile(closing, re.I)) for opening, closing in _PAIRS]
_BEGUN = re.compile(r"\s*(?:<\|start\|>assistant|<\|start\|>\w*\Z)?(?:<\|channel\|>\w*)?(?:[<\[◁][|/\w:]{0,24})?\Z")
"""What may still become a mark."""
_SENTENCES = ("Here is my thought process:", "Here's my thought process:")
_WIDEST = 200
"""Characters of a line that are looked at before a mark."""


def without_thoughts(text: str, *, ended: bool = True) -> str:
    """Returns a reply without the thoughts in it.

    Marks are those of the models that are known, in any case. What stands before a closing mark alone are thoughts
    too: some templates open them in the prompt. Thoughts that are not closed go on to the end.

    Args:
        text: the reply.
        ended: whether all of it is there; of one that goes on, what may become a mark is held back.

    >>> without_thoughts("<Think>maybe no</think> Yes"), without_thoughts("[THINK]no"), without_thoughts("a cat")
    (' Yes', '', 'a cat')
    """
    if not ended and (_BEGUN.match(text) or any(words.startswith(text.strip()) for words in _SENTENCES)):
        return ""
    if not ("<" in text or "[" in text or "◁" in text or "thought process" in text):
        return text
    for opening, closing in _MARKS:
        text = _without(text, opening, closing)
    text = _FINAL.sub("", text)
    return "" if not ended and _BEGUN.match(text) else text


def _without(text: str, opening: re.Pattern[str], closing: re.Pattern[str]) -> str:
    kept: list[str] = []
    place, last = 0, None
    for end in closing.finditer(text):
        begin = opening.search(text, place, end.start())
        if begin is not None:
            kept.append(text[place : begin.start()])
        else:
            kept.clear()  # opened in the prompt, or closed twice
        place = last = end.end()
    starts = (match.start() for match in opening.finditer(text, place))
    heads = (at for at in starts if not text[place : min(at, place + _WIDEST)].strip() or _heads_line(text, at))
    start = next(heads, None)
    if start is None and last is None:
        return text
    kept.append(text[place:start])
    return "".join(kept)


def _heads_line(text: str, place: int) -> bool:
    """Whether only blanks stand before a place in its line: within a line a mark is a word that is spoken of."""
    before = text[max(place - _WIDEST, 0) : place]
    return not before.rpartition("\n")[2].strip() and (len(before) < _WIDEST or "\n" in before)
