from .studies.analysis import (
    compare,
    example_runs,
    explain,
    gap_table,
    load_runs,
    profile,
    regressions,
    summary,
)
from .studies.plots import (
    plot_compare,
    plot_explain,
    plot_gap_table,
    plot_profile,
    plot_regressions,
    plot_summary,
)
from .studies.run import run_study
from .studies.runs import COLUMNS

__all__ = [
    "COLUMNS",
    "compare",
    "example_runs",
    "explain",
    "gap_table",
    "load_runs",
    "plot_compare",
    "plot_explain",
    "plot_gap_table",
    "plot_profile",
    "plot_regressions",
    "plot_summary",
    "profile",
    "regressions",
    "run_study",
    "summary",
]
