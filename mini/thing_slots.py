"""Slots of questions that describe things of a scene, or of a set."""

from __future__ import annotations

from .phrases import GENERIC, Phrase
from .slots import CLEAR, Maker, QuestionSlots, nearly, reject_overlap
from .world import CANVAS, KINDS


def _near(size: float, generic: float, every: float = 0.0) -> Maker:
    return lambda q: reject_overlap(q, Phrase() if q.rng.random() < every else nearly(q, size, generic))


def _the(color: bool, size: bool) -> Maker:
    """Describes one thing of the scene alone; the description may name color and size."""

    def make(q: QuestionSlots) -> Phrase | None:
        for thing in q.rng.sample(q.scene.things, len(q.scene.things)):
            options = [Phrase(thing.kind)]
            if color:
                options.insert(q.rng.random() < 0.35, Phrase(thing.kind, thing.color))
            if size:
                options.append(Phrase(thing.kind, thing.color, thing.size))
            for option in options:
                if option.count(q.scene) == 1 and reject_overlap(q, option):
                    return option
        return None

    return make


def _alone_by_look(size: float) -> Maker:
    def make(q: QuestionSlots) -> Phrase | None:
        thing = q.rng.choice(q.scene.things)
        what = Phrase(None, thing.color, thing.size if q.rng.random() < size else None)
        return what if what.count(q.scene) == 1 else None

    return make


def _mark(q: QuestionSlots) -> Phrase | None:
    """Something that no other scene of the set shows."""
    thing = q.rng.choice(q.scene.things)
    what = Phrase(thing.kind, thing.color if q.rng.random() < 0.8 else None)
    return what if len(q.scenes) > 1 and [scene for scene in q.scenes if what.count(scene)] == [q.scene] else None


def _kind_of_every_scene(q: QuestionSlots) -> Phrase | None:
    """A kind of which every scene of the set shows one thing."""
    what = _kind_here(q)
    return what if all(what.count(scene) == 1 for scene in q.scenes) else None


def _thing_at_wall(q: QuestionSlots) -> Phrase:
    """What may touch a wall."""
    near = [thing for thing in q.scene.things if thing.walls]
    if not near or q.rng.random() < 0.4:
        return nearly(q, 0.0, 0.12)
    thing = q.rng.choice(near)
    return Phrase(thing.kind, thing.color if q.rng.random() < 0.8 else None)


def _sole(q: QuestionSlots) -> Phrase | None:
    """A kind of which only one thing is in the whole set."""
    what = _kind_here(q)
    return what if sum(map(what.count, q.scenes)) == 1 and len(q.scenes) > 1 else None


def _kind_here(q: QuestionSlots) -> Phrase:
    """A kind that the scene shows."""
    return Phrase(q.rng.choice(q.scene.things).kind)


def _kind_of_two(q: QuestionSlots) -> Phrase | None:
    """A kind of which two things are in the whole set."""
    what = _kind_here(q)
    return what if sum(map(what.count, q.scenes)) == 2 else None


def _kind_of_several(q: QuestionSlots) -> Phrase | None:
    """A kind of which the scene shows several things."""
    what = _kind_here(q)
    return what if what.count(q.scene) > 1 else None


def _kind_of_one_color(q: QuestionSlots) -> Phrase | None:
    """A kind of which the scene shows several things, all of one color."""
    what = _kind_of_several(q)
    return what if what and len({thing.color for thing in what.find(q.scene)}) == 1 else None


def _kind_of_another_number(q: QuestionSlots) -> Phrase | None:
    """A kind that is here, but not as often as ``a``."""
    what, scenes = _kind_here(q), q.scenes
    return what if sum(map(what.count, scenes)) != sum(map(q.a.count, scenes)) else None


def _kind_not_here(q: QuestionSlots) -> Phrase:
    """A kind that the scene does not show."""
    shown = {thing.kind for thing in q.scene.things}
    return Phrase(q.rng.choice([kind for kind in KINDS if kind not in shown]))


def _of_two_colors(q: QuestionSlots) -> Phrase | None:
    """A thing by color and kind, where another thing of the kind has another color."""
    thing = q.rng.choice(q.scene.things)
    what, kind = Phrase(thing.kind, thing.color), Phrase(thing.kind)
    return what if what.count(q.scene) == 1 and kind.count(q.scene) > 1 else None


def _other_of_the_kind(q: QuestionSlots) -> Phrase | None:
    """Another thing of the kind of ``a``, alone in its color."""
    others = [Phrase(thing.kind, thing.color) for thing in q.scene.things if thing.kind == q.a.kind]
    others = [what for what in others if what != q.a and what.count(q.scene) == 1]
    return q.rng.choice(others) if others else None


def _of_two_sizes(q: QuestionSlots) -> Phrase | None:
    """A thing by size and kind, where the one other thing of the kind has another size."""
    thing = q.rng.choice(q.scene.things)
    what, kind = Phrase(thing.kind, None, thing.size), Phrase(thing.kind)
    return what if what.count(q.scene) == 1 and kind.count(q.scene) == 2 else None


def _other_size_of_the_kind(q: QuestionSlots) -> Phrase:
    """The other thing of the kind of ``a``, by its size."""
    sizes = {thing.size for thing in q.scene.things if thing.kind == q.a.kind} - {q.a.size}
    return Phrase(q.a.kind, None, sizes.pop())


def _sole_color(q: QuestionSlots) -> Phrase | None:
    """A color that only one thing of the whole set has."""
    what = Phrase(None, q.rng.choice(q.scene.things).color)
    return what if sum(map(what.count, q.scenes)) == 1 and len(q.scenes) > 1 else None


def _alone_at_most(q: QuestionSlots) -> Phrase | None:
    """Something of which no scene shows more than one."""
    what = reject_overlap(q, nearly(q, 0.0, 0.0))
    return what if what and max(map(what.count, q.scenes)) == 1 else None


def _off_the_thirds(q: QuestionSlots) -> Phrase | None:
    """A thing alone whose place is clearly in the middle third, or clearly not, both across and down."""
    what: Phrase | None = _the(True, False)(q)
    if what is None:
        return None
    thing = what.the(q.scene)
    edges = (CANVAS / 3, CANVAS * 2 / 3)
    return what if min(abs(at - edge) for at in (thing.x, thing.y) for edge in edges) >= CLEAR / 2 else None


def _colored_kind(q: QuestionSlots) -> Phrase | None:
    """A kind with a color, both of the scene or nearly."""
    what = nearly(q, 0.0, 0.0)
    return what if what.kind and what.color and not what.noun else None


def _other_kind_here(q: QuestionSlots) -> Phrase | None:
    """A kind of the scene other than ``a``."""
    kinds = sorted({thing.kind for thing in q.scene.things} - {q.a.kind})
    return Phrase(q.rng.choice(kinds)) if kinds else None


def _mate(q: QuestionSlots) -> Phrase | None:
    """A kind of one thing, whose color some other thing has."""
    what = _kind_here(q)
    colors = [thing.color for thing in q.scene.things]
    return what if what.count(q.scene) == 1 and colors.count(what.the(q.scene).color) > 1 else None


def _kind_of_distinct_colors(q: QuestionSlots) -> Phrase | None:
    """A kind of which each thing of the scene has a color of its own."""
    what = _kind_here(q)
    colors = [thing.color for thing in what.find(q.scene)]
    return what if len({*colors}) == len(colors) else None


def _color_of_several_kinds(q: QuestionSlots) -> Phrase | None:
    """A color that things of several kinds have, one of each."""
    what = Phrase(None, q.rng.choice(q.scene.things).color)
    kinds = [thing.kind for thing in what.find(q.scene)]
    return what if len({*kinds}) == len(kinds) > 1 else None


def _color_alone(q: QuestionSlots) -> Phrase | None:
    """A color that some thing of the scene has."""
    return reject_overlap(
        q, Phrase(None, q.rng.choice(q.scene.things).color, noun="block" if q.scene.tower else "object")
    )


THING_MAKERS: dict[str, Maker] = {
    "thing": _near(0.06, 0.12),
    "any thing": _near(0.03, 0.12, every=0.12),
    "named thing": _near(0.03, 0.03),
    "alone": _the(True, True),
    "alone by kind": _the(False, False),
    "alone unsized": _the(True, False),
    "alone by color": _alone_by_look(0.0),
    "alone by look": _alone_by_look(0.25),
    "mark": _mark,
    "shared": _kind_of_every_scene,
    "at wall": _thing_at_wall,
    "block": lambda q: Phrase("square", q.rng.choice(q.scene.things).color, noun="block"),
    "blocks": lambda q: Phrase("square", noun="block"),
    "look": lambda q: Phrase((thing := q.rng.choice(q.scene.things)).kind, q.rng.choice((thing.color, None))),
    "color alone": _color_alone,
    "color of several kinds": _color_of_several_kinds,
    "everything": lambda q: Phrase(noun=q.rng.choice(GENERIC)),
    "other kind here": _other_kind_here,
    "mate": _mate,
    "kind of distinct colors": _kind_of_distinct_colors,
    "every": lambda q: Phrase(noun="block" if q.scene.tower else "object", kind="square" if q.scene.tower else None),
    "colored kind": lambda q: Phrase(q.c, q.a.color),
    "sole": _sole,
    "kind here": _kind_here,
    "kind of two": _kind_of_two,
    "colored thing": _colored_kind,
    "kind of several": _kind_of_several,
    "kind of one color": _kind_of_one_color,
    "kind of another number": _kind_of_another_number,
    "kind not here": _kind_not_here,
    "alone of two colors": _of_two_colors,
    "other of the kind": _other_of_the_kind,
    "alone of two sizes": _of_two_sizes,
    "other size of the kind": _other_size_of_the_kind,
    "sole by color": _sole_color,
    "alone at most": _alone_at_most,
    "alone off the thirds": _off_the_thirds,
    "shared apart": lambda q: (what := _kind_of_every_scene(q)) and reject_overlap(q, what),
}
"""Makers by the names that the table of questions gives them."""
