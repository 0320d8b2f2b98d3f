from .studies.analysis import (
    anytime,
    compare,
    example_runs,
    explain,
    gap_table,
    load_runs,
    profile,
    regressions,
    summary,
)
from .studies.paper import rank_test, to_latex
from .studies.plots import (
    plot_anytime,
    plot_compare,
    plot_explain,
    plot_gap_table,
    plot_profile,
    plot_regressions,
    plot_summary,
    save_figure,
)
from .studies.run import run_study
from .studies.runs import COLUMNS

__all__ = [
    "COLUMNS",
    "anytime",
    "compare",
    "example_runs",
    "explain",
    "gap_table",
    "load_runs",
    "plot_anytime",
    "plot_compare",
    "plot_explain",
    "plot_gap_table",
    "plot_profile",
    "plot_regressions",
    "plot_summary",
    "profile",
    "rank_test",
    "regressions",
    "run_study",
    "save_figure",
    "summary",
    "to_latex",
]
