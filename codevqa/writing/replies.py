"""Reads the program in a model's reply, whatever the model writes around it."""

from __future__ import annotations

import ast
import functools
import html
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence

from ..core.program_tree import parse
from ..core.thoughts import without_thoughts

_LABELS = {"python", "py", "pycon", "ipython", "tool_code", "code", "program", "execute", "script"}
"""Labels of blocks that hold programs. Digits at the end are left out before."""
_OTHERS = {
    "text",
    "txt",
    "plain",
    "plaintext",
    "json",
    "output",
    "console",
    "bash",
    "sh",
    "shell",
    "yaml",
    "xml",
    "html",
}
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
        blocks, _ = _blocks(text)
        return _code([body for kind, body in blocks if kind == "python"] or [body for _, body in blocks] or [text])
    return _program_in(text) or _nearest(text)


def why_empty(reply: str) -> str:
    """Returns why no program can be read in a reply; empty where there is text to read."""
    if without_thoughts(reply).strip():
        return ""
    if reply.strip():
        return "the reply holds only thoughts; raise max_tokens or turn the model's thinking off."
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


def _nearest(text: str) -> str:
    """Returns what to check, and to complain of, where no program was read."""
    blocks, outside = _blocks(text)
    bodies = [body for kind, body in blocks if kind == "python"] or [body for kind, body in blocks if not kind]
    return _code([body for body in bodies if body.strip()] or [text if blocks or not outside else outside])


def _program_in(text: str, depth: int = 0) -> str:
    """Returns the last program in a text; empty where there is none."""
    blocks, outside = _blocks(text)
    labelled = [body for kind, body in blocks if kind == "python"]
    plain = [body for kind, body in blocks if kind in ("", "python")]
    ways: list[Callable[[], Sequence[str]]] = [
        lambda: [text] if not blocks else [],
        lambda: labelled,
        lambda: plain,
        lambda: _TAG.split(text),  # <code>, [PYTHON]
        lambda: [] if depth > 1 else [_program_in(one, depth + 1) for one in _strings(text)],
        lambda: [body for _, body in map(_label, (span[2] for span in _SPAN.finditer(text)))],
        lambda: [] if any(body.strip() for body in labelled) else _runs(outside),
    ]
    for way in ways:
        program = _last_program([_tidy(one) for one in way() if one.strip()][-_MOST:])
        if program:
            return program
    plainer = html.unescape(text)
    return _program_in(plainer, depth + 1) if plainer != text and depth < 2 else ""


def _blocks(text: str) -> tuple[list[tuple[str, str]], str]:
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
    names = [_names(tree) if tree is not None else (set(), set()) for tree in trees]
    for ends in (_sets_answer, lambda source: with_answer(source) != source):
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


def _names(tree: ast.AST) -> tuple[set[str], set[str]]:
    """Returns the names that a program reads and those that it binds, without those that it is given."""
    reads: set[str] = set()
    binds: set[str] = {"img", "images"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (reads if isinstance(node.ctx, ast.Load) else binds).add(node.id)
        elif isinstance(node, ast.FunctionDef):
            binds.add(node.name)
        elif isinstance(node, ast.arg):
            binds.add(node.arg)
    return reads - {"img", "images"}, binds - ({"img", "images"} - reads)


def _outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    inner: list[ast.AST] = [tree]
    while inner:
        node = inner.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            inner.extend(ast.iter_child_nodes(node))


@functools.lru_cache(maxsize=256)
def _sets_answer(source: str) -> bool:
    tree = parse(source)
    return tree is not None and any(
        isinstance(node, ast.Name) and node.id == "answer" and isinstance(node.ctx, ast.Store)
        for node in _outside_functions(tree)
    )


_MAIN = re.compile(r"""^if __name__ == ["']__main__["']:""", re.M)


def with_answer(source: str) -> str:
    """Returns a program that never sets ``answer`` with its last value as the answer; else the same.

    The last value is that of the last line, of what is printed, or of the only function, which is then called. This is
    the one mend of a program.

    Args:
        source: the program; hostile input, which is parsed within bounds.

    >>> print(with_answer('cup = query(img, "Is there a cup?")'))
    cup = query(img, "Is there a cup?")
    answer = cup
    """
    plain = _MAIN.sub("if True:", source)
    tree = parse(plain)
    if tree is None or not tree.body:
        return source
    if _sets_answer(plain):
        return plain
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    body = tree.body
    while isinstance(body[-1], ast.If) and not body[-1].orelse and isinstance(body[-1].test, ast.Constant):
        body = body[-1].body
    last = body[-1]
    outside = list(_outside_functions(tree))
    prints = [(node, shown) for node in outside if isinstance(node, ast.stmt) and (shown := _printed(node)) is not None]
    match last:
        case ast.Expr(ast.Call(ast.Name(name))) if name not in ("print", "final_answer"):
            changes: list[tuple[ast.stmt, str]] = [(last, f"answer = {_text(plain, last)}")]
            made = functions.get(name)
            if made is not None and not _returns(made):
                value = _printed(made.body[-1])
                if value is None:
                    return source
                changes.append((made.body[-1], f"return {_text(plain, value)}"))
            return _replaced(plain, changes)
        case ast.Return(ast.expr() as value) if sum(isinstance(node, ast.Return) for node in outside) == 1:
            return _replaced(plain, [(last, f"answer = {_text(plain, value)}")])
    if prints and not isinstance(last, ast.Assign):
        return _replaced(plain, [(node, f"answer = {_text(plain, value)}") for node, value in prints])
    result = _last_name(body)
    if result and any(isinstance(node, ast.Call) for node in outside):
        return _replaced(plain, [(last, f"{_text(plain, last)}\n{' ' * last.col_offset}answer = {result}")])
    called = {name for own, made in functions.items() for name in _names(made)[0] if name != own}
    uncalled = [made for own, made in functions.items() if own not in called]
    if len(uncalled) == 1 and all(isinstance(node, ast.FunctionDef | ast.Assign) for node in tree.body):
        (made,) = uncalled
        needed = made.args.args[: len(made.args.args) - len(made.args.defaults)]
        if _returns(made) and len(needed) < 2:
            given = "".join("images" if one.arg.endswith("s") else "img" for one in needed)
            return f"{plain}\nanswer = {made.name}({given})"
    return source


@functools.lru_cache(maxsize=4)
def _lines(source: str) -> tuple[bytes, ...]:
    return tuple(line.encode("utf-8", "surrogatepass") for line in source.split("\n"))


def _text(source: str, node: ast.stmt | ast.expr) -> str:
    """Returns the text of a part of a program; ast.get_source_segment() splits the whole program each time."""
    lines = list(_lines(source)[node.lineno - 1 : node.end_lineno])
    lines[-1] = lines[-1][: node.end_col_offset]
    return b"\n".join([lines[0][node.col_offset :], *lines[1:]]).decode("utf-8", "surrogatepass")


def _last_name(body: Sequence[ast.stmt]) -> str:
    """Returns the name that a program binds last; empty where that may not have been bound when it ends."""
    last = body[-1]
    match last:
        case ast.Assign(targets=[ast.Name(name)]) | ast.AugAssign(target=ast.Name(name)):
            return name
        case ast.If() | ast.For():
            bound = [node for node in ast.walk(last) if isinstance(node, ast.Assign | ast.AugAssign)]
            target = max(bound, key=lambda node: node.lineno, default=None)
            names = target.targets if isinstance(target, ast.Assign) else [target.target] if target else []
            before = {name for one in body[:-1] if isinstance(one, ast.Assign) for name in _names(one)[1]}
            both = isinstance(last, ast.If) and last.orelse and _last_name(last.body) == _last_name(last.orelse) != ""
            match names:
                case [ast.Name(name)] if name in before or both:
                    return name
    return ""


def _returns(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(function))


def _printed(statement: ast.AST) -> ast.expr | None:
    """Returns the value that a statement prints, without the words around it."""
    match statement:
        case ast.Expr(ast.Call(ast.Name("print" | "final_answer"), [*_, value])):
            parts = (
                [one for one in value.values if isinstance(one, ast.FormattedValue)]
                if isinstance(value, ast.JoinedStr)
                else []
            )
            return parts[0].value if len(parts) == 1 else value
    return None


def _replaced(source: str, changes: Sequence[tuple[ast.stmt, str]]) -> str:
    """Returns a program with other text in place of some of its statements."""
    lines = list(_lines(source))
    for node, text in sorted(changes, key=lambda one: -one[0].lineno):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        tail = lines[last][node.end_col_offset :]
        lines[first : last + 1] = [lines[first][: node.col_offset] + text.encode("utf-8", "surrogatepass") + tail]
    return b"\n".join(lines).decode("utf-8", "surrogatepass")
