"""How far estimates are from measurements: relative deviations, their mean and distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placegap.instances.problem.array_types import Floats

EXACT = 0.005
"""Up to this relative deviation an estimate counts as exact: it rounds to 0 %."""

LEVELS = (0.05, 0.1, 0.2, 0.3, 0.5)


@dataclass(frozen=True, eq=False)
class Deviations:
    """Relative deviations of estimates from what was measured, ascending (Celeritas, 6.3).

    Attributes
    ----------
    relative : (c,) float64
        Of all items with a measured value above 0, and 0 for those where both are 0.
    undefined : int
        Items that were estimated above 0 but measured as 0; they have no relative deviation.
    """

    relative: Floats
    undefined: int

    @property
    def mean(self) -> float | None:
        """The mean, as in Table 5 of the paper; None without items."""
        return float(self.relative.mean()) if len(self.relative) else None

    def share_within(self, level: float) -> float | None:
        """The distribution function: share of items that deviate by at most `level`.

        Examples
        --------
        >>> found = deviations(np.array([100.0, 90.0, 50.0]), np.array([100.0, 100.0, 100.0]))
        >>> found.share_within(0.1)  # 0 %, 10 % and 50 %
        0.6666666666666666
        """
        if not len(self.relative):
            return None
        within = np.searchsorted(self.relative, level * (1 + 1e-12), side="right")
        return float(within / len(self.relative))

    def quantile(self, share: float) -> float | None:
        """The least deviation that at least this share of the items does not exceed."""
        if not len(self.relative):
            return None
        return float(self.relative[max(0, int(np.ceil(share * len(self.relative))) - 1)])

    def summary(self) -> dict[str, float | int | None]:
        """Figures of the report: number of items, mean, median, 90 % quantile, distribution."""
        return {
            "compared": len(self.relative),
            "undefined": self.undefined,
            "mean": self.mean,
            "median": self.quantile(0.5),
            "quantile_90": self.quantile(0.9),
            "exact": self.share_within(EXACT),
            **{f"within_{100 * level:g}_percent": self.share_within(level) for level in LEVELS},
        }


def deviations(estimated: Floats, measured: Floats) -> Deviations:
    """Compare estimates with measurements, item by item.

    Examples
    --------
    >>> found = deviations(np.array([100.0, 110.0, 5.0, 0.0]), np.array([100.0, 100.0, 0.0, 0.0]))
    >>> round(found.mean, 6), found.undefined
    (0.033333, 1)
    """
    defined = (measured > 0) | (estimated == 0)
    distance = np.abs(estimated - measured)[defined]
    base = np.where(measured > 0, measured, 1.0)[defined]
    return Deviations(np.sort(distance / base), int((~defined).sum()))
