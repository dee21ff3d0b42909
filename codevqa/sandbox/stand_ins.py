"""Python that programs find run already: :data:`PRELUDE` always, the rest where :mod:`.rewrite` says, by name.

The interpreter can suspend a program at a primitive only when every frame above it is Python. ``sorted(images,
key=lambda i: query(i, "..."))`` would call the primitive from inside a builtin, so the builtins that take a function
are written here in Python and call it themselves. They keep the arguments, results and errors of the originals, except
that ``map`` and ``filter`` return lists, like every generator expression in this interpreter. :mod:`.rewrite` refuses a
program that could tell.

Each piece keeps the builtins it calls as defaults of its parameters, for the program may hide them.
"""

from __future__ import annotations

import re

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
        if seen > 50000:
            return "more than 50,000 values"
        if item is None or isinstance(item, (str, int, float, bool, Image)):
            continue
        if isinstance(item, (list, tuple)):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(item.keys())
            waiting.extend(item.values())
        else:
            return "a " + type(item).__name__ + ", which is not plain data"
    return ""
"""
"""Run before every program. Defined there, what :data:`READ` calls keeps the builtins that the program may hide."""

STAND_INS = {
    "first": """
def vqa_first(search, args, *default):
    for item in search(*args):
        return item
    if default:
        return default[0]
    raise StopIteration
""",
    "in_place": """
def vqa_added(whole, more, isinstance=isinstance, list=list):
    return list(more) if isinstance(whole, list) and not isinstance(more, list) else more



def vqa_in_place(whole, new, isinstance=isinstance, set=set, list=list):
    if isinstance(whole, set) and isinstance(new, set):
        whole.clear()
        whole.update(new)
        return whole
    if isinstance(whole, list) and isinstance(new, list):
        whole[:] = new
        return whole
    return new
""",
    "is": """
def vqa_is(one, other, Image=Image, isinstance=isinstance):
    return one == other if isinstance(one, Image) and isinstance(other, Image) else one is other
""",
    "method": """
def vqa_method(whole, name, call, hasattr=hasattr, getattr=getattr):
    if hasattr(whole, name):
        return getattr(whole, name)
    for kind in vqa_kinds:
        if whole is kind:
            return call
    return lambda *args, **rest: call(whole, *args, **rest)


vqa_kinds = (str, list, dict, set, tuple, frozenset, int, float)
""",
    "sort": """
def vqa_sort(items, *, key=None, reverse=False, isinstance=isinstance, list=list, sorted=sorted):
    if isinstance(items, list):
        items[:] = sorted(items, key=key, reverse=reverse)
    else:
        items.sort(key=key, reverse=reverse)
""",
    "round": """
def round(number, ndigits=None, __round=round, __float=float, __format=format, __isinstance=isinstance, __int=int):
    # The interpreter multiplies, rounds and divides: 2.675 would be 2.68.
    places = __isinstance(number, __float) and __isinstance(ndigits, __int) and 0 <= ndigits < 300
    if not places or not -1e15 < number < 1e15:
        return __round(number, ndigits)
    return __float(__format(number, "." + f"{ndigits + 0}" + "f"))
""",
    "pictures": """
vqa_Handle = Image
vqa_pictures = {}


class Image:
    def __init__(self, handle=None):
        if not isinstance(handle, vqa_Handle):
            raise TypeError("a program cannot make an Image")
        self.handle = handle
        self.index = handle.index
        self.width = handle.width
        self.height = handle.height

    def __repr__(self):
        return repr(self.handle)


def vqa_in(value, Image=Image, isinstance=isinstance, list=list, tuple=tuple):
    if isinstance(value, vqa_Handle):
        if value.number not in vqa_pictures:
            vqa_pictures[value.number] = Image(value)
        return vqa_pictures[value.number]
    if isinstance(value, list):
        return [vqa_in(item) for item in value]
    if isinstance(value, tuple):
        return tuple([vqa_in(item) for item in value])
    return value


def vqa_out(value, Image=Image, isinstance=isinstance, list=list, tuple=tuple, dict=dict):
    if isinstance(value, Image):
        return value.handle
    if isinstance(value, list):
        return [vqa_out(item) for item in value]
    if isinstance(value, tuple):
        return tuple([vqa_out(item) for item in value])
    if isinstance(value, dict):
        return {key: vqa_out(item) for key, item in value.items()}
    return value
""",
}
"""The pieces by name. A program that may keep pictures as keys holds an Image of its own around each handle. Such an
Image can be hashed, and only its handle leaves the program."""

TYPES = "".join(f"{name}: Any\n" for name in sorted({*re.findall(r"\bvqa_\w+", "".join(STAND_INS.values()))}))
"""How the static check knows them."""
