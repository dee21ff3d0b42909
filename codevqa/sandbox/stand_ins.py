"""Python that programs find run already: :data:`PRELUDE` always, the rest where :mod:`.rewrite` says, by name.

The interpreter can suspend a program at a primitive only when every frame above it is Python. ``sorted(images,
key=lambda i: query(i, "..."))`` would call the primitive from inside a builtin, so the builtins that take a function
are written here in Python and call it themselves. They keep the arguments, results and errors of the originals, except
that ``map`` and ``filter`` return lists, like every generator expression in this interpreter; where a program keeps one
of these, :mod:`.rewrite` makes an iterator of it, whose values are given once.

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
            if len(item) > 50000:
                return "more than 50,000 values"
            waiting.extend(item)
        elif isinstance(item, dict):
            if len(item) > 50000:
                return "more than 50,000 values"
            waiting.extend(item.keys())
            waiting.extend(item.values())
        else:
            return "a " + type(item).__name__ + ", which is not plain data"
    return ""
"""
"""Run before every program. Defined there, what :data:`READ` calls keeps the builtins that the program may hide."""

MODULES = {
    "operator": "itemgetter",
    "statistics": "fmean mean median mode multimode",
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits punctuation whitespace",
}
"""Modules that the interpreter lacks, and what stands in for them has."""

STAND_INS = {
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
    "del": """
def vqa_del(whole, place, isinstance=isinstance, slice=slice, list=list, dict=dict, len=len, range=range, set=set):
    if isinstance(whole, list):
        if isinstance(place, slice):
            gone = set(range(len(whole))[place])
            whole[:] = [whole[i] for i in range(len(whole)) if i not in gone]
        elif not -len(whole) <= place < len(whole):
            raise IndexError("list assignment index out of range")
        else:
            whole.pop(place)
    elif isinstance(whole, dict):
        whole.pop(place)
    else:
        whole.__delitem__(place)
""",
    "generator": """
vqa_made = []


def vqa_generator(function, iter=iter):
    def generator(*args, **rest):
        vqa_made.append([])
        try:
            function(*args, **rest)
            return iter(vqa_made[-1])
        finally:
            vqa_made.pop()
    return generator


def vqa_yield(item, len=len):
    vqa_made[-1].append(item)
    if len(vqa_made[-1]) > 50000:
        raise RuntimeError("a generator runs to its end at once here, and this one never ends: return a list instead")


def vqa_yields(items):
    for item in items:
        vqa_yield(item)
""",
    "operator": """
class vqa_operator:
    def itemgetter(*places, len=len, tuple=tuple):
        if len(places) == 1:
            return lambda whole: whole[places[0]]
        return lambda whole: tuple([whole[place] for place in places])
""",
    "statistics": """
from math import fsum as vqa_fsum


def vqa_data(data, what, list=list, len=len):
    data = list(data)
    if len(data) == 0:
        raise ValueError(what)
    return data


class vqa_statistics:
    def mean(data, sum=sum, len=len, all=all, isinstance=isinstance, int=int):
        data = vqa_data(data, "mean requires at least one data point")
        if all([isinstance(value, int) for value in data]) and sum(data) % len(data) == 0:
            return sum(data) // len(data)
        return vqa_fsum(data) / len(data)

    def fmean(data, len=len):
        data = vqa_data(data, "fmean requires at least one data point")
        return vqa_fsum(data) / len(data)

    def median(data, sorted=sorted, len=len):
        data = sorted(vqa_data(data, "no median for empty data"))
        half = len(data) // 2
        return data[half] if len(data) % 2 else (data[half - 1] + data[half]) / 2

    def mode(data):
        return vqa_statistics.multimode(vqa_data(data, "no mode for empty data"))[0]

    def multimode(data, list=list, max=max):
        counts = {}
        for value in data:
            counts[value] = counts.get(value, 0) + 1
        most = max(list(counts.values()), default=0)
        return [value for value, count in counts.items() if count == most]
""",
    "string": """
class vqa_string:
    ascii_lowercase = "abcdefghijklmnopqrstuvwxyz"
    ascii_uppercase = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    ascii_letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    digits = "0123456789"
    punctuation = "!\\"#$%&'()*+,-./:;<=>?@[\\\\]^_`{|}~"
    whitespace = " \\t\\n\\r\\x0b\\x0c"
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
