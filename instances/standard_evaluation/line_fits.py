"""Many straight lines at once: least squares per group, and what speaks against each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from placegap.instances.problem.array_types import Flags, Floats, Ints

Doubt = Literal["single", "falling", "two", "poor", "negative"]

DOUBTS: dict[Doubt, str] = {
    "single": "measured at one size only: this value is taken, nothing is extrapolated",
    "falling": "falls as the size grows: the largest measured value is taken, not the line",
    "two": "measured at two sizes only: nothing shows whether a line fits",
    "poor": "a line fits badly (R2)",
    "negative": "the line is below zero there: 0 is taken",
}
"""What can speak against an estimate, and what is done about it."""

MIN_R2 = 0.9
"""Below this a fit is called poor."""


@dataclass(frozen=True, eq=False)
class Lines:
    """Least-squares lines y = slope (x - mean_x) + mean_y of g groups of points.

    Attributes
    ----------
    points, sizes : (g,) int64
        Points and different x of each group; at least one.
    mean_x, mean_y, slope, r2, largest_y : (g,) float64
        `slope` is 0 where there is one x only; `r2` is 1 where a horizontal line leaves no error.
    """

    points: Ints
    sizes: Ints
    mean_x: Floats
    mean_y: Floats
    slope: Floats
    r2: Floats
    largest_y: Floats

    @property
    def intercept(self) -> Floats:
        """Value of each line at 0."""
        return self.mean_y - self.slope * self.mean_x

    def estimate(self, x: float, min_r2: float = MIN_R2) -> tuple[Floats, list[tuple[int, Doubt]]]:
        """Value of each group at x, and the doubts about it as (group, doubt).

        A line with three sizes or more is an estimate as it is, also a poor one. Neither a falling
        line nor a single size is extrapolated (`DOUBTS`).

        Examples
        --------
        >>> lines = fit_lines(np.array([0, 0, 0, 1]), np.array([1, 2, 3, 1]),
        ...                   np.array([5.0, 7.0, 9.0, 4.0]), 2)
        >>> value, doubts = lines.estimate(10)
        >>> value.tolist(), doubts
        ([23.0, 4.0], [(1, 'single')])
        """
        value = self.mean_y + self.slope * (x - self.mean_x)
        falling = self.slope < 0
        value[falling] = self.largest_y[falling]
        negative = value < 0
        value[negative] = 0.0
        tests: dict[Doubt, Flags] = {
            "single": self.sizes == 1,
            "falling": falling,
            "two": self.sizes == 2,
            "poor": (self.sizes > 2) & ~falling & (self.r2 < min_r2),
            "negative": negative,
        }
        doubts = [
            (group, doubt)
            for doubt, found in tests.items()
            for group in np.flatnonzero(found).tolist()
        ]
        return value, doubts


def fit_lines(group: Ints, x: Ints, y: Floats, num_groups: int) -> Lines:
    """Fit a line to the points of each group, by least squares.

    Ordinary linear regression with one variable; sums about the means, so that exact lines through
    whole numbers give whole numbers back. O(p log p) for p points.

    Parameters
    ----------
    group : (p,) int64
        Group of each point, 0 .. `num_groups` - 1; every group has a point.
    x : (p,) int64
    y : (p,) float64
    """
    points = np.bincount(group, minlength=num_groups)
    order = np.lexsort((x, group))
    new = np.ones(len(x), np.bool_)
    new[1:] = (np.diff(group[order]) != 0) | (np.diff(x[order]) != 0)
    sizes = np.bincount(group[order][new], minlength=num_groups)
    mean_x = np.bincount(group, x, num_groups) / points
    mean_y = np.bincount(group, y, num_groups) / points
    dx, dy = x - mean_x[group], y - mean_y[group]
    var_x = np.bincount(group, dx * dx, num_groups)
    var_y = np.bincount(group, dy * dy, num_groups)
    spread = sizes > 1
    slope = np.zeros(num_groups)
    np.divide(np.bincount(group, dx * dy, num_groups), var_x, out=slope, where=spread)
    error = dy - slope[group] * dx
    left = np.zeros(num_groups)  # share of the variance that the line leaves
    np.divide(np.bincount(group, error * error, num_groups), var_y, out=left, where=var_y > 0)
    largest_y = np.full(num_groups, -np.inf)
    np.maximum.at(largest_y, group, y)
    return Lines(points, sizes, mean_x, mean_y, slope, 1 - left, largest_y)
