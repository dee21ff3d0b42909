"""Python that a program finds run already where :mod:`.rewrite` says that it needs it, by name.

Each piece keeps the builtins it calls as defaults of its parameters, for the program may hide them.
"""

from __future__ import annotations

__all__ = ["MODULES", "STAND_INS", "TYPES"]

MODULES = {
    "heapq": "nlargest nsmallest",
    "operator": "add and_ attrgetter contains eq ge getitem gt itemgetter le lt mod mul ne neg not_ or_ sub truediv",
    "statistics": "fmean mean median median_high median_low mode multimode pstdev pvariance stdev variance",
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
    if len(vqa_made[-1]) > 10000:
        raise RuntimeError("a generator runs to its end at once here, and this one never ends: return a list instead")


def vqa_yields(items):
    for item in items:
        vqa_yield(item)
""",
    "translate": """
def vqa_maketrans(one, two=None, gone="", isinstance=isinstance, str=str, ord=ord, zip=zip, dict=dict):
    if two is None:
        return {ord(key) if isinstance(key, str) else key: value for key, value in one.items()}
    table = {ord(key): ord(value) for key, value in zip(one, two, strict=True)}
    table.update({ord(key): None for key in gone})
    return table


def vqa_translate(text, table, isinstance=isinstance, str=str, int=int, ord=ord, chr=chr):
    if not isinstance(text, str):
        return text.translate(table)
    changed = [table.get(ord(letter), letter) for letter in text]
    return "".join([chr(one) if isinstance(one, int) else one for one in changed if one is not None])
""",
    "callable": """
def callable(value, __type=type, __hasattr=hasattr):
    kinds = ("function", "builtin_function_or_method", "method", "type", "functools.partial", "partial")
    return __type(value).__name__ in kinds or __hasattr(value, "__call__")
""",
    "heapq": """
class vqa_heapq:
    def nlargest(n, iterable, key=None, sorted=sorted):
        return sorted(iterable, key=key, reverse=True)[: n if n > 0 else 0]

    def nsmallest(n, iterable, key=None, sorted=sorted):
        return sorted(iterable, key=key)[: n if n > 0 else 0]
""",
    "operator": """
class vqa_operator:
    def itemgetter(*places, len=len, tuple=tuple):
        if len(places) == 1:
            return lambda whole: whole[places[0]]
        return lambda whole: tuple([whole[place] for place in places])

    def attrgetter(*names, len=len, tuple=tuple, getattr=getattr):
        if len(names) == 1:
            return lambda whole: getattr(whole, names[0])
        return lambda whole: tuple([getattr(whole, name) for name in names])

    add = lambda a, b: a + b
    and_ = lambda a, b: a & b
    contains = lambda a, b: b in a
    eq = lambda a, b: a == b
    ge = lambda a, b: a >= b
    getitem = lambda a, b: a[b]
    gt = lambda a, b: a > b
    le = lambda a, b: a <= b
    lt = lambda a, b: a < b
    mod = lambda a, b: a % b
    mul = lambda a, b: a * b
    ne = lambda a, b: a != b
    neg = lambda a: -a
    not_ = lambda a: not a
    or_ = lambda a, b: a | b
    sub = lambda a, b: a - b
    truediv = lambda a, b: a / b
""",
    "statistics": """
from math import frexp as vqa_frexp, isqrt as vqa_isqrt


def vqa_data(data, least, what, list=list, len=len, all=all, min=min, isinstance=isinstance, int=int):
    # As whole numbers, all of them so many times as large, for sums must be exact.
    data = list(data)
    if len(data) < least:
        raise ValueError(what)
    if all([isinstance(value, int) for value in data]):
        return data, 1, True
    parts = [vqa_frexp(value) for value in data]
    low = min([power for _, power in parts] + [53])
    return [int(part * 2**53) << (power - low) for part, power in parts], 2 ** (53 - low), False


def vqa_ratio(over, under, whole):
    return over // under if whole and over % under == 0 else over / under


def vqa_spread(data, less, what, sum=sum, len=len):
    data, times, whole = vqa_data(data, 1 + less, what)
    n = len(data)
    over = n * sum([value * value for value in data]) - sum(data) ** 2
    return over, n * (n - less) * times * times, whole


def vqa_root(over, under, whole):
    # Of so many digits that it is rounded once.
    scale = 2 ** 220
    root = vqa_isqrt(over * scale * scale // under)
    return root / scale


def vqa_sorted(data, sorted=sorted, len=len):
    data = sorted(data)
    if len(data) == 0:
        raise ValueError("no median for empty data")
    return data, len(data) // 2


def vqa_counts(data, list=list, max=max):
    counts = {}
    for value in data:
        counts[value] = counts.get(value, 0) + 1
    most = max(list(counts.values()), default=0)
    return [value for value, count in counts.items() if count == most]


class vqa_statistics:
    def mean(data, sum=sum, len=len):
        data, times, whole = vqa_data(data, 1, "mean requires at least one data point")
        return vqa_ratio(sum(data), len(data) * times, whole)

    def fmean(data, sum=sum, len=len):
        data, times, whole = vqa_data(data, 1, "fmean requires at least one data point")
        return sum(data) / times / len(data)

    def median(data, len=len):
        data, half = vqa_sorted(data)
        return data[half] if len(data) % 2 else (data[half - 1] + data[half]) / 2

    def median_low(data, len=len):
        data, half = vqa_sorted(data)
        return data[half] if len(data) % 2 else data[half - 1]

    def median_high(data):
        data, half = vqa_sorted(data)
        return data[half]

    def mode(data):
        found = vqa_counts(data)
        if not found:
            raise ValueError("no mode for empty data")
        return found[0]

    def multimode(data):
        return vqa_counts(data)

    def variance(data):
        return vqa_ratio(*vqa_spread(data, 1, "variance requires at least two data points"))

    def pvariance(data):
        return vqa_ratio(*vqa_spread(data, 0, "pvariance requires at least one data point"))

    def stdev(data):
        return vqa_root(*vqa_spread(data, 1, "stdev requires at least two data points"))

    def pstdev(data):
        return vqa_root(*vqa_spread(data, 0, "pstdev requires at least one data point"))
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
"""The pieces by name. A program that keeps pictures as keys holds an Image of its own, which can be hashed, around each
handle; only handles leave it."""

TYPES = "".join(
    f"{name}: Any\n"
    for name in (
        *("vqa_method", "vqa_sort", "vqa_del", "vqa_generator", "vqa_yield", "vqa_yields", "vqa_maketrans"),
        *("vqa_translate", *(f"vqa_{module}" for module in MODULES)),
    )
)
"""How the static check knows them."""
