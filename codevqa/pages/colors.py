"""The colors of the pages, light and dark, and the scale of the heat maps."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DARK", "HEAT", "LIGHT", "heat_gradient"]

LIGHT: Mapping[str, str] = {
    "paper": "#fbfaf7",
    "sheet": "#ffffff",
    "code": "#f5f3ee",
    "ink": "#1d1f21",
    "soft": "#5a5e63",
    "line": "#dcd8cf",
    "track": "#ebe8e1",
    "accent": "#1f5fa8",
    "accent-soft": "#e6eef8",
    "good": "#19663a",
    "good-soft": "#e4f2e9",
    "warn": "#80500a",
    "warn-soft": "#fbf0da",
    "bad": "#a3271d",
    "bad-soft": "#fbe9e6",
    "keyword": "#7a2e94",
    "string": "#1a6340",
    "number": "#8a4b08",
}
"""Every text color has a contrast of at least 4.5:1 on every ground it is used on; the tests compute it."""

DARK: Mapping[str, str] = {
    "paper": "#15171a",
    "sheet": "#1c1f23",
    "code": "#22262b",
    "ink": "#e9e7e2",
    "soft": "#adb1b7",
    "line": "#383d44",
    "track": "#2c3137",
    "accent": "#86b9f5",
    "accent-soft": "#1d2c3f",
    "good": "#7bd39d",
    "good-soft": "#1a3023",
    "warn": "#e6b565",
    "warn-soft": "#35290f",
    "bad": "#f59c90",
    "bad-soft": "#3c1f1c",
    "keyword": "#d3a6ea",
    "string": "#93d3ae",
    "number": "#e8b274",
}

HEAT: tuple[tuple[int, int, int], ...] = (
    (0, 0, 4),
    (31, 12, 72),
    (85, 15, 109),
    (136, 34, 106),
    (186, 54, 85),
    (227, 89, 51),
    (249, 140, 10),
    (249, 201, 50),
    (252, 255, 164),
)
"""Evenly spaced colors of matplotlib's inferno (public domain, CC0): lightness rises evenly, also without red-green."""


def heat_gradient() -> str:
    """Returns the heat scale as a CSS gradient, least on the left."""
    return "linear-gradient(to right, " + ", ".join(f"rgb({r},{g},{b})" for r, g, b in HEAT) + ")"
