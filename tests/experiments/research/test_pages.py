"""The pages say what the committed results say."""

from pathlib import Path

import pytest

from placegap.experiments.research.pages import DOCS, STUDIES, figures, load_results, pictures
from placegap.experiments.research.record import HERE
from placegap.experiments.studies.config import load_study
from placegap.experiments.studies.plan import plan_study
from placegap.experiments.studies.runs import run_rows

CONFIGS = [path for path in sorted(HERE.glob("*.yaml")) if path.stem in STUDIES]


def test_what_the_titles_of_the_findings_claim_holds_of_the_figures() -> None:
    found = figures()

    def figure(name: str) -> float:
        return float(found[name].removesuffix("%"))

    # 1: ports against free channels is a larger step than 1,000 ops against 83,206
    assert figure("port_gap") - figure("free_gap") > figure("port_gap") - figure("small_port_gap")
    assert figure("port_gap") - figure("free_gap") > figure("free_gap") - figure("small_free_gap")
    assert 2 * figure("alone_optimal") >= 0.5 * figure("graph_rows")  # 2: a quarter or more
    assert figure("first_share") < 100  # 3
    assert figure("first_worst") > 10
    assert figure("blind_promised") > 0  # 4
    assert figure("blind_aware") > 0
    assert figure("cost_mean") < figure("cost_most")  # 5
    assert figure("rank_apart_same") > figure("rank_same")
    assert figure("scale_topo_gap") > 10 * figure("scale_heft_gap")  # 6
    assert figure("memory_tight_gap") > figure("memory_loose_gap")  # 7
    assert figure("memory_missing") > figure("memory_before")
    assert figure("form_factor") > 1  # 8
    assert figure("pipe_load") > 0  # 9
    assert figure("hybrid_filled") < 5 < figure("hybrid_full") < figure("hybrid_gain")  # 10


def test_every_picture_is_drawn_and_shown_on_the_page() -> None:
    drawn = dict(pictures())
    assert len(drawn) == 3
    shown = (DOCS / "results.md").read_text() + (DOCS.parent / "README.md").read_text()
    for name, content in drawn.items():
        assert content[1:4] == b"PNG"
        assert (DOCS / name).exists()
        assert f"{name})" in shown


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_smallest_form_of_a_study_has_rows_to_record(path: Path) -> None:
    study = load_study(path, smoke=True)
    rows = run_rows(plan_study(study, path), {})
    assert 0 < len({(row.table, row.instance_hash) for row in rows}) <= 10
    assert all((row.num_ops or 0) > 0 and (row.ccr or 0) > 0 for row in rows)
    assert (None in {row.memory_share for row in rows}) != (path.stem == "memory")


@pytest.mark.parametrize("name", STUDIES)
def test_the_committed_runs_contradict_no_bound(name: str) -> None:
    assert (load_results(name)["gap"].dropna() >= 0).all()
