"""Programs run here and in CPython, and random programs of the forms that language models write.

    python tests/beside_cpython.py --count 5000 --seed 1

makes 5,000 programs, compares answers, printed text and calls with their lines, and prints every program that differs.
"""

# ruff: noqa: E501, T201 -- forms read best on one line; the script prints

import argparse
import contextlib
import io
import random
import signal
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from PIL import Image as PILImage

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script, of this checkout
from sandbox_kit import Args, Kit

from codevqa.core.errors import ProgramError, ProgramLimitError, ProgramRuntimeError
from codevqa.core.images import load_picture
from codevqa.primitives import CONSTANTS, Image

IMAGES = [Image(number, load_picture(PILImage.new("RGB", (8 * number, 9 - number)))) for number in (1, 2, 3)]
Calls = list[tuple[Any, ...]]


def query(img: Image, question: str) -> str:
    if type(img) is not Image:
        raise TypeError(f"query() img must be Image, not {type(img).__name__}")
    place = (img.index + len(question)) % 3
    if "how many" in question:
        return ("2", "three", "1")[place]
    if "color" in question:
        return ("red", "Blue ", "green.")[place]
    return ("yes", "no", "yes")[place] if question.startswith(("is", "are")) else ("cat", "a dog", "the bird")[place]


def get_pos(img: Image, object: str) -> tuple[float, float]:
    return float((img.index * 5 + len(object)) % 11), 24.0 - len(object) * img.index


def find_matching_image(images: list[Image], phrase: str) -> Image:
    return images[len(phrase) % len(images)]


FAKES: dict[str, Any] = {"query": query, "get_pos": get_pos, "find_matching_image": find_matching_image}


def plain(value: Any) -> Any:
    """A value as it crosses the boundary: subclasses of dict and tuple as dict and tuple."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(map(plain, value))
    return value


def in_cpython(source: str) -> tuple[object, str, Calls]:
    """What CPython gives, what is printed, and the calls made with their lines."""
    calls: Calls = []

    def recorded(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            frame: Any = sys._getframe(1)
            while frame.f_code.co_filename != "<program>":
                frame = frame.f_back
            calls.append((name, args, kwargs, frame.f_lineno))
            return FAKES[name](*args, **kwargs)

        return call

    space: dict[str, Any] = {"images": list(IMAGES), "Image": Image, "__name__": "__main__"}
    space |= {**CONSTANTS, **{name: recorded(name) for name in FAKES}}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            exec(compile(source, "<program>", "exec"), space)
            answer = repr(plain(space["answer"]))
        except TimeoutError:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever CPython says
            answer = f"fails: {type(error).__name__}"
    return answer, printed.getvalue(), calls


def in_sandbox(kit: Kit, source: str) -> tuple[object, str, Calls]:
    """The same of the sandbox."""
    calls: Calls = []

    async def host(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
        calls.append((name, args, kwargs, line))
        result: object = FAKES[name](*args, **kwargs)
        return result

    try:
        outcome = kit.runner.run(kit.box.run(source, host, images=IMAGES))
    except ProgramRuntimeError as error:
        return f"fails: {error.message.partition(':')[0].split()[-1]}", error.printed, calls
    return repr(outcome.value), outcome.printed, calls


class Maker:
    """Makes one random program of the forms that models write."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._count = 0

    def program(self) -> str:
        """Returns a program; most run to their end."""
        lines = ["n = 2", "xs = [3, 1, 2]", "words = ['red', 'cat', 'Blue ']", "d = {'a': 1, 'b': 2}", "s = {1, 2}"]
        lines += ["ims = images[:]", "best = find_matching_image(images, 'a dog')", "log = []", "k = 1"]
        lines += ["def say(x):", "    log.append(x)", "    print('say', x)", "    return x"]
        lines += ["def ask(im, q='is it red?'):", "    global n", "    n += 1", "    return query(im, q) == 'yes'"]
        for _ in range(self._random.randint(2, 6)):
            lines += self.statement(0)
        lines.append("answer = [n, xs, words, d, sorted(s), [im.index for im in ims], best.index, log, k]")
        return "\n".join(lines)

    def _of(self, *forms: str) -> str:
        return self._random.choice(forms)

    def name(self) -> str:
        """Returns a new name."""
        self._count += 1
        return f"v{self._count}"

    def picture(self) -> str:
        """Returns an expression for a picture."""
        return self._of("best", "images[0]", "ims[-1]", "images[n % 3]", "find_matching_image(images, 'a cat')")

    def number(self, depth: int = 0) -> str:
        """Returns an expression for a number."""
        if depth > 1:
            return self._of("n", "1", "len(xs)", "k", "3")
        a, b, t, g = self.number(depth + 1), self.number(depth + 1), self.truth(depth + 1), self.numbers(depth + 1)
        im, v, w = self.picture(), self.name(), self.word(depth + 1)
        return self._of(
            f"({a} + {b})", f"({a} * {b})", f"({a} - {b})", f"({a} if {t} else {b})", f"len({g})", f"sum({g})",
            f"sum(say({v}) for {v} in {g})", f"sum({v} * {a} for {v} in {g} if {v} > 1)", f"max({g}, default={a})",
            f"min({g}, key=lambda {v}: -{v}, default=0)", f"max({a}, {b})", f"next(({v} for {v} in {g} if {t}), {a})",
            f"next((say({v}) for {v} in {g} if {v} > {a}), say({b}))", f"sum(1 for {v} in images if ask({v}))",
            f"max(range(3), key=lambda {v}: get_pos(images[{v}], 'dog')[0])", f"{im}.width", f"images.index({im})",
            f"int(get_pos({im}, 'cat')[1])", f"d.get({w}, {a})", f"len({w})", f"({a} // max(1, {b}))", f"abs({a})",
            f"round({a} / 7, 2)", f"xs.count({a})", f"sum(map(say, {g}))", f"(lambda {v}: {v} + {a})({b})",
            f"sum(query({v}, 'are they?') == 'yes' for {v} in images)", f"sorted({g} + [0])[0]", f"(n := {a})",
            f"sum(ask({v}) for {v} in ims)", f"int({w}.isdigit())", f"len({{{v} for {v} in {g}}})", f"ord({w}[:1] or 'a')",
            f"sum(query({v}, 'is it?') for {v} in images)", f"len(set(images + [{im}]))", f"{g}[0]",
        )  # fmt: skip

    def numbers(self, depth: int = 0) -> str:
        """Returns an expression for a list of numbers."""
        if depth > 1:
            return self._of("xs", "[1, 2]", "list(d.values())", "xs[1:]", "[]")
        a, t, g, v, w = self.number(depth + 1), self.truth(depth + 1), self.numbers(depth + 1), self.name(), self.name()
        return self._of(
            f"[{v} + {a} for {v} in {g}]", f"[{v} for {v} in {g} if {t}]", f"sorted({g}, reverse=True)", f"xs[{a}:]",
            f"list(map(lambda {v}: {v} + k, {g}))", f"list(filter(lambda {v}: {v} > {a}, {g}))", f"{g}[::-1]", "[*xs, 4]",
            f"sorted({g}, key=lambda {v}: -{v})", f"[{v} * {w} for {v}, {w} in zip({g}, xs)]", f"list(range({a} % 5))",
            f"[{v} for {v}, {w} in enumerate({g})]", f"list(reversed({g}))", f"sorted({v} for {v} in {g})", "sorted(s)",
            f"[{v} for {w} in [{g}, xs] for {v} in {w}]", f"list({v} for {v} in {g})", f"[say({v}) for {v} in {g}]",
            f"[{v} for {v} in {g} if any({w} > {v} for {w} in xs)]", f"[{v}.width for {v} in ims if ask({v})]",
            f"[{v}.index for {v} in images if {v} is not best]", f"[len({v}) for {v} in words]", f"list(dict.fromkeys({g}))",
            f"[next(({w} for {w} in xs if {w} > {v}), {v}) for {v} in {g}]", f"list({{{v}: 1 for {v} in {g}}})",
            f"list(map(say, {g}))", f"({g} or xs)", f"[({v} := {a}) for {w} in {g}]" , f"{g} + [{a}]",
        )  # fmt: skip

    def truth(self, depth: int = 0) -> str:
        """Returns an expression for a truth value."""
        if depth > 1:
            return self._of("n > 2", "True", "xs", "k == 1", "'a' in d")
        a, b, t, u = self.number(depth + 1), self.number(depth + 1), self.truth(depth + 1), self.truth(depth + 1)
        g, im, other, v, w = self.numbers(depth + 1), self.picture(), self.picture(), self.name(), self.name()
        return self._of(
            f"{a} > {b}", f"{a} == {b}", f"({t} and {u})", f"({t} or {u})", f"not {t}", f"{a} in {g}", f"{im} is {other}",
            f"{im} is not {other}", f"{im} == {other}", f"{im} in images", f"any({v} > {a} for {v} in {g})", f"ask({im})",
            f"all(say({v}) > {a} for {v} in {g})", f"any(ask({v}) for {v} in images)", f"all(ask({v}) for {v} in ims)",
            f"any(ask((best := {v})) for {v} in images)", f"any(map(say, {g}))", f"all([{v} > 1 for {v} in {g}])",
            f"any(query({v}, {w}) == 'yes' for {v} in ims for {w} in ['is it?', 'are they?'])", f"1 < {a} < 9",
            f"any({v} is best for {v} in images)", f"any(say({v}) == {a} and {t} for {v} in {g} if {v} != 1)",
            f"any(any(say({w}) > {v} for {w} in xs) for {v} in {g})", f"all((k := {v}) < 3 for {v} in {g})",
            f"next(({v} for {v} in images if ask({v})), None) is not None", f"bool({g})", f"isinstance({a}, int)",
            f"any(filter(lambda {v}: {v} > 1, {g}))", f"xs is {g}", f"{g} is not xs", f"{im} in {{{other}: 1}}",
        )  # fmt: skip

    def word(self, depth: int = 0) -> str:
        """Returns an expression for a text."""
        if depth > 1:
            return self._of("'a'", "words[0]", "'Red car'", "str(n)")
        a, w, im, v, t = (
            self.number(depth + 1),
            self.word(depth + 1),
            self.picture(),
            self.name(),
            self.truth(depth + 1),
        )
        return self._of(
            f"{w}.lower()", f"{w}.strip()", f"{w}.upper()", f"str({a}) + f' of {{len(xs)}}'", f"query({im}, 'what color is it?')",
            f"', '.join(str({v}) for {v} in xs)", "'-'.join(words)", f"{w}.replace('a', 'b')", f"{w}[::-1]", f"{w} + 'x'",
            f"str({a})", f"('yes' if {t} else 'no')", f"format({a}, '>5') + format({a} / 3, '.2f')", f"'%s %d' % ({w}, {a})",
            "max(d, key=d.get)", "max(words, key=len)", f"{w}.split()[0]", f"'{{}}'.format({a})", f"{w}.title()",
            "max(sorted(set(words)), key=words.count)", f"next(({v} for {v} in words if {v}.isalpha()), 'none')", f"{w}.zfill(4)",
        )  # fmt: skip

    def block(self, depth: int) -> list[str]:
        """Returns lines of a body."""
        body = [line for _ in range(self._random.randint(1, 2)) for line in self.statement(depth + 1)]
        return [f"    {line}" for line in body]

    def statement(self, depth: int) -> list[str]:
        """Returns the lines of a statement."""
        a, b, t, g, w = self.number(), self.number(1), self.truth(), self.numbers(), self.word()
        im, v, u, x = self.picture(), self.name(), self.name(), self.name()
        simple = [
            f"n = {a}", f"n += {a}", f"xs = {g}", f"xs += {g}", f"xs.append({a})", f"words.append({w})", f"d['c'] = {a}",
            f"d['a'] += {a}", f"s.add({a})", f"print({a}, {w})", f"best = {im}", f"k, n = n, {a}", f"s |= {{{a}}}", "xs *= 2",
            f"s -= {{{a}, 1}}", f"xs += ({a}, {b})", f"xs += {{{a}: 1}}", f"ims.append({im})", f"log.append({t})", "xs.sort()",
            f"words = sorted(words, key=lambda {v}: (len({v}), {v}))", f"xs.sort(key=lambda {v}: -{v})", "del xs[0]",
            f"d = {{{v}: len({v}) for {v} in words}}", f"log.append({g})", f"d.update(z={a})", "d.pop('a', None)",
            f"{v} = s; {v} |= {{{a}}}", f"{v} = xs; {v} += {g}", f"log.append([{v}.index for {v} in ims if {v} is not {im}])",
            f"{v} = map(say, {g}); say('z'); log.append(list({v}))", f"{v} = (k + {u} for {u} in {g}); k = {a}; n = sum({v})",
            f"log.append(dict(zip(words, {g})))", f"{v}, *{x} = {g}", "ims.sort(key=lambda im: get_pos(im, 'dog'))",
            f"log.append([ask({v}) for {v} in {{{im}, images[0]}} if {v} == {im}])", f"log.append({im} == {self.picture()})",
            f"{v} = {{im: ask(im) for im in images}}; log.append([{v}[{im}], len({v}), {im} in {v}])",
            f"from collections import Counter; log.append(Counter({g}).most_common(1))", "del d['a']", f"assert {t}, {w}",
            f"import re; log.append(re.findall(r'[a-z]+', {w}))", f"import math; log.append(math.floor({a} / 2))",
        ]  # fmt: skip
        if depth > 1 or self._random.random() < 0.5:
            return [self._of(*simple)]
        body, other = self.block(depth), self.block(depth)
        return self._random.choice([
            [f"if {t}:", *body, "else:", *other],
            [f"if {self.truth(1)}:", *body, f"elif {t}:", *other],
            [f"for {v} in {g}:", *body, f"    if {t}:", "        break", "else:", *other],
            [f"for {v}, {u} in enumerate({g}):", f"    n += {u}", *body],
            [f"for {v}, {u} in enumerate(xs):", f"    say({u})", *body, "    if len(log) > 20:", "        break"],
            [f"for {v}, {u} in zip(xs, {g}):", *body, "    if len(log) > 20:", "        break"],
            [f"for {v} in images:", f"    if ask({v}):", f"        best = {v}", "        continue", *body],
            [f"{x} = 0", f"while {x} < 3 and {t}:", f"    {x} += 1", *body],
            ["try:", *body, f"    raise ValueError({self._of('3', w, a)})", "except ValueError as error:",
             "    log.append(str(error))"],
            ["try:", *body, f"    {v} = {self._of('xs[9]', 'd[5]', 'int(words[0])', '1 / 0', a)}",
             "except (ValueError, LookupError, ZeroDivisionError) as error:", "    log.append(type(error).__name__)",
             "finally:", *other],
            [f"def {v}(x, y={b}):", "    global n, k, best, xs, words, d, s, ims", *body, f"    return x + {a}",
             f"log.append({v}({b}))"],
            [f"def {v}(items):", f"    if any(ask(({u} := im)) for im in items):", f"        return {u}.index", "    return 0",
             f"log.append({v}(ims))"],
            [f"def {v}():", "    count = 0", f"    def {u}(y):", "        nonlocal count", f"        count += {a}",
             "        return count", f"    return [{u}(1), {u}(2), count]", f"log.append({v}())"],
            [f"class {v}:", "    def __init__(self, x):", "        self.x = x", "    def more(self, y=1):",
             "        self.x += y", "        return self", self._of(
                 "    def __eq__(self, other):\n        return self.x == other.x",
                 "    def __repr__(self):\n        return f'<{self.x}>'",
                 "    def __len__(self):\n        return 0", "    def __bool__(self):\n        return False",
                 "    def __lt__(self, other):\n        return self.x < other.x",
                 "    def __contains__(self, y):\n        return y > self.x",
                 "    def __call__(self, y):\n        return y", "    size = 3"),
             f"{u} = {v}({a}); {x} = {u}.more({b})",
             f"log.append([{u}.x, {u} is {x}, {u} == {x}, 1 if {u} else 0, {u}.more().x])"],
            [f"for {v} in {self._of('map(say, xs)', '(say(y) for y in xs)', 'reversed(xs)', 'filter(say, xs)')}:", *body],
            [f"for {v} in sorted(s):", *body], [f"for {v} in xs:", *body, "    if len(xs) > 9:", "        break"],
            [f"{v} = iter({g})", f"log.append([any(y > 1 for y in {v}), list({v})])"],
            [f"for {v}, {u} in d.items():", f"    log.append(f'{{{v}}}: {{{u}}}')", *body],
        ])  # fmt: skip


def _stop(*_: object) -> None:
    raise TimeoutError


def compare(kit: Kit, source: str) -> str:
    """Returns how a program goes: ``same``, ``refused``, ``endless``, ``failed`` with an error of its own or ``different``."""
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, 1, 0.05)  # again, for an error in a callback of the collector is lost
    try:
        try:
            theirs = in_cpython(source)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except TimeoutError:
        signal.setitimer(signal.ITIMER_REAL, 0)
        return "endless"
    try:
        ours = in_sandbox(kit, source)
    except ProgramError as error:
        if isinstance(error, ProgramLimitError):
            return "endless"
        if error.line is not None and error.hint and not error.printed:
            return "refused"
        return "same" if str(theirs[0]).startswith("fails") else "failed"
    if ours == theirs:
        return "same"
    return "failed" if str(ours[0]).startswith("fails") and not str(theirs[0]).startswith("fails") else "different"


def main() -> None:
    """Compares as many programs as asked for."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--count", type=int, default=1000)
    asked.add_argument("--seed", type=int, default=1)
    options = asked.parse_args()
    warnings.simplefilter("ignore")
    kit, outcomes = Kit(), Counter[str]()
    for number in range(options.count):
        source = Maker(options.seed * 1_000_000 + number).program()
        how = compare(kit, source)
        outcomes[how] += 1
        if how in ("different", "failed"):
            print(f"--- {how}: program {number}\n{source}\n-> {in_cpython(source)}", flush=True)
            with contextlib.suppress(ProgramError):
                print(f"   {in_sandbox(kit, source)}")
    kit.close()
    print(dict(outcomes))


if __name__ == "__main__":
    main()
