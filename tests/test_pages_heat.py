"""Heat maps lie where they should: over the right part of the picture, whatever its shape and the grid's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from pages_kit import peaked, picture

from codevqa.models.protocols import Match
from codevqa.pages.heat import overlay, patch_view, relevance_grid, spot
from codevqa.primitives.visual import peak

GRAY = "#808080"


def pixels(image: object) -> npt.NDArray[np.int64]:
    return np.asarray(image, dtype=np.int64)


@pytest.mark.parametrize(("size", "grid"), [((300, 100), (24, 24)), ((480, 720), (5, 9)), ((4000, 30), (24, 24))])
def test_the_map_is_brightest_over_the_most_relevant_patch(size: tuple[int, int], grid: tuple[int, int]) -> None:
    rows, columns = grid
    row, column = rows - 2, 1
    map = relevance_grid(peaked(rows, columns, row, column))
    assert map is not None
    drawn = overlay(picture(*size, GRAY), map, 240)
    assert max(drawn.size) == 240 and drawn.width / drawn.height == pytest.approx(size[0] / size[1], rel=0.2)
    light = pixels(drawn).sum(axis=2)
    down, across = np.nonzero(light >= light.max() - 6)
    assert (across.mean() + 0.5) / light.shape[1] == pytest.approx((column + 0.5) / columns, abs=0.02)
    if drawn.height > 10:
        assert (down.mean() + 0.5) / light.shape[0] == pytest.approx((row + 0.5) / rows, abs=0.02)


def test_what_is_no_relevance_is_no_map() -> None:
    for flat in ((), ((),), ((0.0, -1.0),), ((float("nan"), float("inf")),), ((1.0,), (1.0, 2.0))):
        assert relevance_grid(flat) is None
    grid = relevance_grid(((float("nan"), 1.0), (float("inf"), -3.0)))
    assert grid is not None and grid.tolist() == [[0.0, 1.0], [0.0, 0.0]]


def test_a_position_is_marked_where_the_program_was_told_and_at_the_edge_where_that_is_outside() -> None:
    relevance = np.zeros((16, 16), dtype=np.float32)
    relevance[5, 11] = 1
    assert spot(peak(Match(relevance, 0.0))) == (71.88, 34.38)  # as get_pos() finds it: y upwards
    assert spot((-5.0, 99.0)) == (0.0, 0.0)


def test_patches_that_were_seen_stay_bright_in_an_outline_and_the_rest_is_dim() -> None:
    drawn = pixels(patch_view(picture(160, 80, "#a0c0e0"), (0, 5, 7, -1, 99), (2, 4), 160))  # two are beyond the grid
    bright = np.array([0xA0, 0xC0, 0xE0])
    for place in range(8):
        middle = drawn[place // 4 * 40 + 20, place % 4 * 40 + 20]
        assert np.abs(middle - bright * (1 if place in (0, 5, 7) else 0.28)).max() <= 1, place
    outline = (drawn == (255, 214, 74)).all(axis=2)
    assert outline[40, 45] and outline[45, 40] and not outline[42:78, 42:78].any()
