"""Interpreters of the programs of GQA and COVR, written from the descriptions of those data sets alone."""

from __future__ import annotations

import re
from typing import Any


class Interpreter:
    """GQA's operations over a scene graph, written from the data set's description alone."""

    def __init__(self, graph: dict[str, Any]) -> None:
        self.objects: dict[str, Any] = graph["objects"]
        self.width, self.height = graph["width"], graph["height"]

    def run(self, steps: list[dict[str, Any]]) -> str:
        values: list[Any] = []
        said: list[str] = []
        for step in steps:
            inputs = [values[place] for place in step["dependencies"]]
            words = said[step["dependencies"][0]] if inputs else ""
            value, word = self.step(step["operation"], step["argument"], inputs, words)
            values.append(value)
            said.append(word)
            if step["operation"].startswith("choose ") and step["argument"] == "":
                values[-1] = said[step["dependencies"][0 if value else 1]]
        return values[-1] if isinstance(values[-1], str) else "yes" if values[-1] else "no"

    def named(self, name: str) -> list[str]:
        return [key for key, one in self.objects.items() if name in ("object", one["name"])]

    def related(self, one: str, name: str, other: str) -> bool:
        return {"name": name, "object": other} in self.objects[one]["relations"]

    def position(self, key: str, axis: str) -> str:
        one = self.objects[key]
        if axis == "hposition":
            return "left" if one["x"] + one["w"] / 2 < self.width / 2 else "right"
        return "top" if one["y"] + one["h"] / 2 < self.height / 2 else "bottom"

    def attribute(self, found: list[str], sort: str) -> str:
        (key,) = found
        if sort in ("hposition", "vposition"):
            return self.position(key, sort)
        if sort == "name":
            return str(self.objects[key]["name"])
        sizes = ("small", "medium", "large")
        return next(str(one) for one in self.objects[key]["attributes"] if (one in sizes) == (sort == "size"))

    def step(self, operation: str, argument: str, inputs: list[Any], words: str) -> tuple[Any, str]:
        verb, _, sort = operation.partition(" ")
        name = re.sub(r" \([\d,-]+\)$", "", argument)
        if verb == "select":
            return self.named(name), name
        if verb == "filter":
            return [key for key in inputs[0] if name in self.objects[key]["attributes"]], f"{words}+{sort} {name}"
        if verb == "exist":
            return bool(inputs[0]), ""
        if verb in ("and", "or"):
            return (all if verb == "and" else any)(inputs), ""
        if verb in ("same", "different"):
            return (self.attribute(inputs[0], sort) == self.attribute(inputs[1], sort)) == (verb == "same"), ""
        if verb == "query":
            return self.attribute(inputs[0], argument), ""
        if verb == "relate" or sort == "rel":
            return self.relation(verb, name, inputs[0]), name.split(",")[0]
        if verb == "verify":
            return self.attribute(inputs[0], sort) == name, ""
        assert verb == "choose", operation
        if argument:
            answer = self.attribute(inputs[0], sort)
            assert answer in name.split("|")
            return answer, ""
        relation = {"higher": "above", "lower": "below", "further left": "to the left of"}.get(sort, "to the right of")
        return self.related(inputs[0][0], relation, inputs[1][0]), ""

    def relation(self, verb: str, argument: str, inputs: list[str]) -> Any:
        name, relation, role = argument.split(",")

        def holds(one: str, other: str, which: str) -> bool:
            return self.related(one, which, other) if role == "s" else self.related(other, which, one)

        found = [
            (key, which)
            for key in self.named(name)
            for other in inputs
            for which in relation.split("|")
            if key != other and holds(key, other, which)
        ]
        if verb == "relate":
            return list(dict.fromkeys(key for key, _ in found))
        if verb == "verify":
            return bool(found)
        ((_, which),) = found
        return which.removeprefix("to the ").removesuffix(" of")


def spoken(answer: str) -> str:
    """What a chain of select and filters says, in the words of a question: size, color, kind."""
    head, *rest = answer.split("+")
    parts = dict(part.split(" ") for part in rest)
    return " ".join(part for part in (parts.get("size"), parts.get("color"), head) if part)


def covr_run(steps: list[dict[str, Any]], scenes: list[Any]) -> Any:
    """Runs COVR's operations; None for a program in Python."""
    values: list[Any] = []
    for step in steps:
        inputs = [values[place] for place in step["dependencies"]]
        words: list[Any] = step["arguments"]
        match step["operation"]:
            case "python":
                return None
            case "find":
                found = [(at, one) for at, scene in enumerate(scenes) for one in scene.things]
                values.append([(at, one) for at, one in found if words[0] in ("object", one.kind)])
            case "filter":
                values.append([(at, one) for at, one in inputs[0] if words[0] in (one.color, one.size)])
            case "unique_images":
                values.append({at for at, _ in inputs[0]})
            case "scene":
                values.append(scenes)
            case "count":
                values.append(len(inputs[0]))
            case sign:
                one, two = *inputs, *words
                values.append({"geq": one >= two, "eq": one == two, "gt": one > two, "lt": one < two}[sign])
    return values[-1]
