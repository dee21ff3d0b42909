"""Python that every program finds already run: what lets primitives be called from inside common builtins.

The interpreter can suspend a program at a primitive only when every frame above it is Python. ``sorted(images,
key=lambda i: query(i, "..."))`` would call the primitive from inside a builtin, so the builtins that take a function
are written here in Python and call it themselves. They keep the arguments, results and errors of the originals, except
that ``map`` and ``filter`` return lists, like every generator expression in this interpreter; where a program keeps one
of these, :mod:`.rewrite` makes an iterator of it, whose values are given once.
"""

from __future__ import annotations

READ = """("", answer) if not (__wrong__ := __answer__(answer, Image)) else (__wrong__, None)"""
"""Expression that gives what is wrong with the value of ``answer``, empty text where nothing is, and the value."""
READ_KEYED = "answer = vqa_out(answer)\n" + READ.replace("Image", "vqa_Handle")
"""The same for a program that may keep pictures as keys."""

PRELUDE = """
def map(function, *iterables, strict=False):
    if not iterables:
        raise TypeError("map() must have at least two arguments.")
    if function is None:
        raise TypeError("'NoneType' object is not callable")
    if len(iterables) == 1:
        return [function(item) for item in iterables[0]]
    return [function(*items) for items in zip(*iterables, strict=strict)]


def filter(function, iterable):
    if function is None:
        return [item for item in iterable if item]
    return [item for item in iterable if function(item)]


def __order__(items, key, reverse, sorted=sorted):
    # Equal keys keep their order, backwards too, and the items themselves are never compared.
    if reverse:
        keyed = [(key(item), -i) for i, item in enumerate(items)]
    else:
        keyed = [(key(item), i) for i, item in enumerate(items)]
    return [items[abs(i)] for _, i in sorted(keyed, reverse=reverse)]


def sorted(iterable, /, *, key=None, reverse=False, __sorted=sorted):
    if key is None:
        return __sorted(iterable, reverse=reverse)
    return __order__(list(iterable), key, bool(reverse))


def __best__(name, builtin, better, args, key, rest):
    if key is None:
        return builtin(*args, **rest)
    if not args:
        raise TypeError(name + " expected at least 1 argument, got 0")
    items = list(args) if len(args) > 1 else list(args[0])
    if not items:
        return builtin(items, **rest)
    best = items[0]
    score = key(best)
    for item in items[1:]:
        other = key(item)
        if better(other, score):
            best, score = item, other
    return best


def max(*args, key=None, __max=max, **rest):
    return __best__("max", __max, lambda a, b: a > b, args, key, rest)


def min(*args, key=None, __min=min, **rest):
    return __best__("min", __min, lambda a, b: a < b, args, key, rest)


def next(iterator, *default, __next=next):
    # Generator expressions are lists here, which the builtin refuses.
    if type(iterator) is not list:
        return __next(iterator, *default)
    if iterator:
        return iterator.pop(0)
    if default:
        return default[0]
    raise StopIteration


def __answer__(value, Image, isinstance=isinstance, type=type, len=len, str=str):
    # Names the first thing in the value that is not plain data; functions and the like would cross as text.
    waiting = [value]
    seen = 0
    while waiting:
        item = waiting.pop()
        seen += 1
        if seen > 10000:
            return "more than 10,000 values"
        if item is None or isinstance(item, (str, int, float, bool, Image)):
            continue
        if isinstance(item, (list, tuple)):
            if len(item) > 10000:
                return "more than 10,000 values"
            waiting.extend(item)
        elif isinstance(item, dict):
            if len(item) > 10000:
                return "more than 10,000 values"
            waiting.extend(item.keys())
            waiting.extend(item.values())
        else:
            return "a " + type(item).__name__ + ", which is not plain data"
    return ""
"""
"""Run before every program. Defined there, what :data:`READ` calls keeps the builtins that the program may hide."""
