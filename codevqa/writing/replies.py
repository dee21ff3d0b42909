"""Reads the program in a model's reply, whatever the model writes around it."""

from __future__ import annotations

import ast
import html
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence

from ..core.text import without_thoughts
from ..sandbox.program_tree import parse
from .mending import program_names, sets_answer, with_answer

_LABELS = {"python", "py", "pycon", "ipython", "tool_code", "code", "program", "execute", "script"}
"""Labels of blocks that hold programs. Digits at the end are left out before."""
_OTHERS = {"text", "txt", "plain", "plaintext", "json", "output"}
_OTHERS |= {"console", "bash", "sh", "shell", "yaml", "xml", "html"}
"""Labels of blocks that hold none."""
_LONGEST = 1 << 16
"""Characters of a reply that are read."""
_MOST = 48
"""Blocks that are read, the last ones."""
_CONTROL = re.compile(r"<[|｜][\w▁ -]+[|｜]>|<end_code>|</?s>|<(?:end|start)_of_turn>")
"""A control token that a server or tokenizer did not take for an end, such as ``<|fim_middle|>``."""
_OPENING = re.compile(r"\s*(?:img\s*=\s*open_image|images\s*=\s*open_images)\s*\(")
_HEADING = re.compile(r"^# Image (?:Set )?\d+:", re.M)
_FENCE = re.compile(r"([^`~]*)(`{3,}|~{3,})[ \t]*([^`]*)$")
_SPAN = re.compile(r"(?<!`)(`{1,4})([^`\n]+)\1")
_LABEL = re.compile(r"[{.\s]*([a-z_]+)[\d.]*(?=$|[\s}:,])", re.I)
_SKIPPED = re.compile(r"#\s*(?:Image|Question|\()|(?:python|py|assistant)\d?$")
_TAG = re.compile(r"</?[A-Za-z][\w-]*(?:[ =][^<>\n]*)?>|\[/?[A-Z]{2,}\]")
_LEAD = re.compile(r"^[ \t]*[A-Z\[][^=\n\"'(]{0,60}[:!>\]] *(?=\w+ = )", re.M)
"""Words before a program on its own line."""
_CONTINUES = re.compile(r"[ \t)\]}]|(?:else|elif|except|finally)\b")
_CODE = re.compile(
    r"(?:for|while|if|def|with|try|return)\b.*(?:\n[ \t]|:\s*$)|[^\s=]+(?:, ?\w+)* *[-+*/|]?=(?!=)|\w+\("
)
"""How a piece of a program begins, even where it does not parse."""


def extract_program(reply: str, *, continued: bool = False, ended: bool = True) -> str:
    """Returns the program in a reply: the last that sets ``answer``, else what comes nearest to one.

    Args:
        reply: what the model wrote; hostile input, of which a bounded part is parsed.
        continued: whether it continued a completion prompt, which ends inside a comment.
        ended: whether all of it is there. Of a reply that goes on, the code so far is returned, unparsed.
    """
    text = reply.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    text = without_thoughts(text, ended=ended)
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}\n{text[-_LONGEST // 2 :]}"
    text = next((part for part in _CONTROL.split(text) if part.strip() not in ("", "assistant")), "")
    if continued:
        text = _own_part(text)
    if not ended:
        blocks, _ = _fenced_blocks(text)
        return _code([body for kind, body in blocks if kind == "python"] or [body for _, body in blocks] or [text])
    return _program_in(text) or _likely_program(text)


def why_empty(reply: str) -> str:
    """Returns why no program can be read in a reply; empty where there is text to read."""
    if without_thoughts(reply).strip():
        return ""
    if reply.strip():
        return "the reply holds only thoughts; raise writer.max_tokens or turn the model's thinking off."
    return "the reply is empty."


def _own_part(text: str) -> str:
    """Returns a continuation without the rest of the comment that the prompt ends in, and without more examples."""
    first, _, rest = text.partition("\n")
    if first.strip() and not _OPENING.match(first):
        # What comes before the first line end may belong to the comment: a "?" that the question lacks, a clause more.
        text = rest if not (first[0].isalpha() or first[0] in "_`#") or _OPENING.match(rest) else text
    text = _tidy(text)
    heading = _HEADING.search(text)
    return text[: heading.start()] if heading else text


def _tidy(source: str) -> str:
    """Returns a program without indentation, a prompt of Python's shell, and a heading that the model repeats."""
    if ">>> " in source:
        shell = re.findall(r"(?m)^[ \t]*(?:>>>|\.\.\.)(?: |$)(.*)", source)
        source = "\n".join(shell) if shell else source
    elif source.lstrip().startswith(">"):
        source = re.sub(r"(?m)^[ \t]*> ?", "", source)
    source = re.sub(r"(?m)^\[/?[A-Z]{2,}\]$", "", source)
    lines = textwrap.dedent(source).split("\n")
    start = 0
    while start < len(lines) and (not lines[start].strip() or _SKIPPED.match(lines[start])):
        start += 1
    return "\n".join(line.rstrip() for line in lines[start:]).rstrip()


def _code(blocks: Sequence[str]) -> str:
    return _tidy(blocks[-1])


def _likely_program(text: str) -> str:
    """Returns what to check, and to complain of, where no program was read."""
    blocks, outside = _fenced_blocks(text)
    bodies = [body for kind, body in blocks if kind == "python"] or [body for kind, body in blocks if not kind]
    return _code([body for body in bodies if body.strip()] or [text if blocks or not outside else outside])


def _program_in(text: str, depth: int = 0) -> str:
    """Returns the last program in a text; empty where there is none."""
    blocks, outside = _fenced_blocks(text)
    labelled = [body for kind, body in blocks if kind == "python"]
    plain = [body for kind, body in blocks if kind in ("", "python")]
    ways: list[Callable[[], Sequence[str]]] = [
        lambda: [text] if not blocks else [],
        lambda: labelled,
        lambda: plain,
        lambda: _TAG.split(text),  # <code>, [PYTHON]
        lambda: [] if depth > 1 else [_program_in(text_value, depth + 1) for text_value in _strings(text)],
        lambda: [body for _, body in map(_label, (span[2] for span in _SPAN.finditer(text)))],
        lambda: [] if any(body.strip() for body in labelled) else _runs(outside),
    ]
    for way in ways:
        program = _last_program([_tidy(candidate) for candidate in way() if candidate.strip()][-_MOST:])
        if program:
            return program
    plainer = html.unescape(text)
    return _program_in(plainer, depth + 1) if plainer != text and depth < 2 else ""


def _fenced_blocks(text: str) -> tuple[list[tuple[str, str]], str]:
    """Returns the fenced blocks of a text, each with its kind ("python", "" or another's label), and the rest."""
    blocks: list[tuple[str, list[str]]] = []
    outside: list[str] = []
    fence = ""
    lines = text.split("\n")
    closed = max((place for place, line in enumerate(lines) if line.strip(" \t>")[:3] in ("```", "~~~")), default=0)
    for place, line in enumerate(lines):
        opens = _FENCE.match(line)
        kind, rest = _label(opens[3]) if opens else ("", "")
        if fence and not (opens and kind and not opens[1].strip(" \t>")):
            bare = line.strip(" \t>")
            if bare.startswith(("```", "~~~")):
                fence = ""
            elif bare.endswith(fence) and place > closed:  # where no line of its own closes the block
                blocks[-1][1].append(line.rstrip().rstrip(fence[0]))
                fence = ""
            else:
                blocks[-1][1].append(line)
        elif opens:
            fence = opens[2]
            outside.append(opens[1])
            blocks.append((kind, [rest]))
        elif (span := re.fullmatch(r"([^`~]*)(`{3,}|~{3,})([^`]+)\2\s*", line)) is not None:
            kind, rest = _label(span[3])
            outside.append(span[1])
            blocks.append((kind, [rest]))
        else:
            outside.append(line)
    return [(kind, "\n".join(body).strip("\n")) for kind, body in blocks], "\n".join(outside)


def _label(info: str) -> tuple[str, str]:
    """Returns the kind of block that follows a fence, and the code on the fence's own line."""
    word = _LABEL.match(info)
    name = word[1].lower() if word else ""
    rest = info[word.end() :] if word else ""
    if name in _LABELS:
        return "python", rest.strip() if re.match(r"\s+\w+(?: = |\()", rest) else ""
    if name in _OTHERS or (name and not rest.strip()):
        return (name if name in _OTHERS else ""), ""
    return "", info.strip()


def _strings(text: str) -> Iterator[str]:
    """Yields the texts in the JSON of a reply, such as the code that a tool is called with."""
    decoder, place = json.JSONDecoder(strict=False), 0
    for _ in range(_MOST):
        begin = re.compile(r"[{\[]\s*[{\"]").search(text, place)
        if begin is None:
            return
        try:
            value, place = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            place = begin.start() + 1
            continue
        inner = [value]
        while inner:
            part = inner.pop()
            if isinstance(part, str):
                yield part
            elif isinstance(part, dict | list):
                inner.extend(reversed(part.values() if isinstance(part, dict) else part))
                lines = part if isinstance(part, list) else []
                if lines and all(isinstance(line, str) for line in lines):
                    inner[-len(lines) :] = ["\n".join(lines)]


def _runs(text: str) -> list[str]:
    """Returns the runs of lines that are code in a text without blocks; none where a line is broken code."""
    pieces: list[list[str]] = []
    for line in _LEAD.sub("", text).split("\n")[-1000:]:
        joins = not line.strip() or _CONTINUES.match(line) or (pieces and pieces[-1][-1].startswith("@"))
        if joins and pieces:
            pieces[-1].append(line)
        else:
            pieces.append([line])
    runs: list[list[str]] = [[]]
    indented: list[str] = []
    for lines in pieces:
        piece = "\n".join(lines).rstrip()
        tree = parse(piece)
        if tree is not None and all(map(_acts, tree.body)):
            runs[-1].append(piece)
            continue
        if tree is None and _CODE.match(piece[:200]):
            return []
        runs.append([])
        indented.append("\n".join(line for line in lines if line.startswith(("    ", "\t"))))
    return [*indented, *("\n".join(run) for run in runs)]


def _acts(statement: ast.stmt) -> bool:
    """Whether a statement does something: a word of prose may parse, but does nothing."""
    if isinstance(statement, ast.AnnAssign):
        return statement.value is not None
    return not isinstance(statement, ast.Expr) or isinstance(statement.value, ast.Call)


def _last_program(blocks: Sequence[str]) -> str:
    """Returns the last block that is a program, after the earlier ones that it needs; empty where there is none."""
    trees = [parse(block) for block in blocks]
    names = [program_names(tree) if tree is not None else (set(), set()) for tree in trees]
    for ends in (sets_answer, lambda source: with_answer(source) != source):
        for place in reversed(range(len(blocks))):
            if trees[place] is None:
                continue
            source, missing = blocks[place], names[place][0] - names[place][1]
            for earlier in reversed(range(place)):
                reads, binds = names[earlier]
                if binds & missing:
                    source, missing = f"{blocks[earlier]}\n{source}", (missing | reads) - binds
            if ends(source):
                return source
    return ""
