"""Heat maps lie where they should: over the right part of the picture, whatever its shape and the grid's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from pages_kit import peaked, picture

from codevqa.core.images import Picture
from codevqa.core.trace import ImageRef
from codevqa.models.base import Match
from codevqa.pages.heat import overlay, patch_view, peak_place, relevance_grid
from codevqa.pages.words import call_words, number, seconds, value_words
from codevqa.primitives.visual import peak

GRAY = "#808080"


def pixels(image: object) -> npt.NDArray[np.int64]:
    return np.asarray(image, dtype=np.int64)


def brightest(drawn: object) -> tuple[float, float]:
    """Where a picture is lightest, as shares of its width and height from the top left."""
    light = pixels(drawn).sum(axis=2)
    rows, columns = np.nonzero(light >= light.max() - 6)
    return (columns.mean() + 0.5) / light.shape[1], (rows.mean() + 0.5) / light.shape[0]


@pytest.mark.parametrize("size", [(120, 120), (300, 100), (60, 90)])
@pytest.mark.parametrize("grid", [(24, 24), (16, 16), (5, 9)])
def test_the_map_is_brightest_over_the_most_relevant_patch(size: tuple[int, int], grid: tuple[int, int]) -> None:
    rows, columns = grid
    row, column = rows - 2, 1
    drawn = overlay(picture(*size, GRAY), peaked(rows, columns, row, column), 240)
    across, down = brightest(drawn)
    assert across == pytest.approx((column + 0.5) / columns, abs=0.02)
    assert down == pytest.approx((row + 0.5) / rows, abs=0.02)
    assert max(drawn.size) == 240 and drawn.mode == "RGB"
    assert drawn.width / drawn.height == pytest.approx(size[0] / size[1], rel=0.02)


def test_the_map_is_smooth_between_patches() -> None:
    drawn = pixels(overlay(picture(200, 200, GRAY), ((0.0, 1.0), (0.0, 1.0)), 200)).sum(axis=2)
    row = drawn[100]
    assert row[20] < row[90] < row[110] < row[180]
    steps = np.abs(np.diff(row))
    assert steps.max() <= 14  # no edge of a patch is seen


def test_more_relevance_is_lighter_over_the_whole_scale() -> None:
    ramp = (tuple(float(step) for step in range(1, 21)),)
    drawn = pixels(overlay(picture(400, 20, GRAY), ramp, 400)).astype(float) @ [0.2126, 0.7152, 0.0722]
    middle = drawn[10, 10::20]
    assert (np.diff(middle[3:]) > 0).all() and middle[-1] - middle[3] > 60


def test_only_shares_of_the_greatest_relevance_count() -> None:
    one, other = (overlay(picture(), tuple(tuple(k * v for v in r) for r in peaked(4, 4, 1, 2)), 64) for k in (1, 1e-6))
    assert (pixels(one) == pixels(other)).all()


@pytest.mark.parametrize(
    "flat",
    [(), ((),), ((0.0, 0.0),), ((-1.0, -2.0),), ((float("nan"), float("inf")),), ((1.0,), (1.0, 2.0)), (("a",),)],
)
def test_a_map_without_relevance_leaves_the_picture_alone(flat: tuple[tuple[float, ...], ...]) -> None:
    one = picture(40, 40, "#3366cc")
    assert (pixels(overlay(one, flat, 40)) == pixels(one.pixels)).all()
    assert relevance_grid(flat) is None and peak_place(flat) == ""


def test_what_is_no_number_counts_as_irrelevant() -> None:
    grid = relevance_grid(((float("nan"), 1.0), (float("inf"), -3.0)))
    assert grid is not None and grid.tolist() == [[0.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize("size", [(100, 100), (200, 80)])
@pytest.mark.parametrize("grid", [16, 24])
def test_the_mark_of_a_position_sits_where_the_program_was_told(size: tuple[int, int], grid: int) -> None:
    relevance = np.zeros((grid, grid), dtype=np.float32)
    relevance[5, grid - 5] = 1
    position = peak(Match(relevance, 0.0))  # as get_pos() finds it: y upwards
    one = picture(*size, GRAY)
    marked = pixels(overlay(one, (), 240, positions=[position]))
    plain = pixels(overlay(one, (), 240))
    rows, columns = np.nonzero((marked != plain).any(axis=2))
    assert (columns.mean() + 0.5) / plain.shape[1] == pytest.approx((grid - 4.5) / grid, abs=0.01)
    assert (rows.mean() + 0.5) / plain.shape[0] == pytest.approx(5.5 / grid, abs=0.01)
    assert marked.max() == 255 and marked.min() == 0  # white in a dark edge, seen on any ground
    center = plain.shape[0] * 5.5 / grid, plain.shape[1] * (grid - 4.5) / grid
    assert (marked[int(center[0]), int(center[1])] == plain[0, 0]).all()  # the place itself stays in sight


def test_a_position_outside_is_marked_at_the_edge_and_one_that_is_no_number_not_at_all() -> None:
    one = picture(60, 60, GRAY)
    outside = overlay(one, (), 60, positions=[(-5.0, 99.0)])
    assert (pixels(outside) == pixels(overlay(one, (), 60, positions=[(0.0, 24.0)]))).all()
    assert (pixels(overlay(one, (), 60, positions=[(float("nan"), 1.0)])) == pixels(one.pixels)).all()


def test_the_picture_itself_is_never_changed() -> None:
    one = picture(50, 50)
    before = pixels(one.pixels).copy()
    overlay(one, peaked(4, 4, 0, 0), 50, positions=[(3, 3)])
    patch_view(one, (1, 2), (4, 4), 50)
    assert (pixels(one.pixels) == before).all()


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (2, 4), (4, 2)])
def test_patches_that_were_seen_stay_bright_in_an_outline_and_the_rest_is_dim(rows: int, columns: int) -> None:
    one = picture(160, 80, "#a0c0e0")
    chosen = (0, columns + 1, rows * columns - 1)
    drawn = pixels(patch_view(one, chosen, (rows, columns), 160))
    seen, dimmed = np.array([0xA0, 0xC0, 0xE0]), np.array([0xA0, 0xC0, 0xE0]) * 0.28
    high, wide = 80 // rows, 160 // columns
    for row in range(rows):
        for column in range(columns):
            middle = drawn[row * high + high // 2, column * wide + wide // 2]
            wanted = seen if row * columns + column in chosen else dimmed
            assert np.abs(middle - wanted).max() <= 1, (row, column)
    outline = (drawn == (255, 214, 74)).all(axis=2)
    assert outline[high, wide + 5] and outline[high + 5, wide]  # the upper and left edge of the second one
    assert not outline[high + 2 : 2 * high - 2, wide + 2 : 2 * wide - 2].any()


def test_patches_beyond_the_grid_are_left_out() -> None:
    one = picture(40, 40)
    assert (pixels(patch_view(one, (-1, 4, 99), (2, 2), 40)) == pixels(patch_view(one, (), (2, 2), 40))).all()


def test_maps_and_patches_are_drawn_without_a_picture() -> None:
    assert overlay(None, peaked(3, 3, 1, 1), 90).size == (90, 90)
    assert patch_view(None, (1,), (3, 3), 30).size == (30, 30)


def test_large_and_thin_pictures_are_shrunk() -> None:
    thin: Picture = picture(4000, 3)
    assert overlay(thin, peaked(2, 2, 0, 0), 400).size == (400, 1)


@pytest.mark.parametrize(
    ("row", "column", "place"),
    [
        (0, 0, "the upper left"),
        (0, 5, "the top"),
        (5, 5, "the middle"),
        (10, 5, "the bottom"),
        (5, 10, "the right"),
        (10, 10, "the lower right"),
    ],
)
def test_the_place_of_the_peak_in_words(row: int, column: int, place: str) -> None:
    assert peak_place(peaked(11, 11, row, column)) == place


# -- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0 s"),
        (float("nan"), "0 s"),
        (-1.0, "0 s"),
        (0.00005, "50 µs"),
        (0.0042, "4.2 ms"),
        (0.00995, "10 ms"),
        (0.0999, "100 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (9.994, "9.99 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (187.0, "3 min 7 s"),
    ],
)
def test_times_in_words(value: float, words: str) -> None:
    assert seconds(value) == words


def test_values_in_words() -> None:
    images = [ImageRef(1), ImageRef(2), ImageRef(3)]
    assert value_words(images) == "images 1 to 3" and value_words([images[0], images[2]]) == "images 1, 3"
    assert value_words(images[:1]) == "[image 1]" and value_words(ImageRef(2)) == "image 2"
    assert value_words((1, 2.5, "x", None, True)) == "(1, 2.5, 'x', None, True)" and value_words((1,)) == "(1,)"
    assert value_words({"a": [ImageRef(1)], 2: 0.1}) == "{'a': [image 1], 2: 0.1}"
    assert value_words(float("inf")) == "inf" and value_words([]) == "[]"
    assert len(value_words("x" * 1000)) == 200 and value_words("x" * 1000).endswith("…")
    assert call_words("query", {"img": ImageRef(1), "question": "Is it?"}) == "query(image 1, 'Is it?')"
    assert number(3.14159265) == "3.142" and number(float("nan")) == "nan"
