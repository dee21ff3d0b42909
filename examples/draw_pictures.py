"""Draws the pictures of the demo: scenes put together by hand in the drawn world.

Run it again after a change of the world: ``python examples/draw_pictures.py``.
"""

from __future__ import annotations

from pathlib import Path

from codevqa.mini.world import RADII, Scene, Thing, draw_scene

PICTURES = Path(__file__).resolve().parent / "pictures"
PAPER = (238, 236, 228)


def thing(color: str, kind: str, x: float, y: float, size: str = "medium") -> Thing:
    """Returns a thing centred at (x, y), in pixels from the top left of 128 x 128."""
    return Thing(kind, color, size, x, y, RADII[size])


SCENES = {
    "garden": [
        thing("red", "house", 36, 84, "large"),
        thing("green", "tree", 94, 76, "large"),
        thing("yellow", "flower", 66, 108),
        thing("blue", "cloud", 62, 24),
    ],
    "harbor": [
        thing("blue", "boat", 34, 88, "large"),
        thing("orange", "fish", 94, 102),
        thing("red", "flag", 98, 40),
        thing("black", "key", 44, 30),
    ],
    "shelf-1": [thing("purple", "cup", 32, 64), thing("yellow", "star", 90, 44), thing("green", "heart", 88, 96)],
    "shelf-2": [thing("red", "crown", 40, 38), thing("orange", "bell", 90, 84, "large")],
    "shelf-3": [
        thing("purple", "cup", 90, 36),
        thing("blue", "moon", 34, 44, "large"),
        thing("red", "heart", 64, 98),
    ],
}


def main() -> None:
    """Writes every picture as PNG, twice its natural size."""
    PICTURES.mkdir(exist_ok=True)
    for name, things in SCENES.items():
        scene = Scene(tuple(things), "plain", PAPER)
        draw_scene(scene, 256).save(PICTURES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
