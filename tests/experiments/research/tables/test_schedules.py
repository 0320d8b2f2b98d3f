"""The table of pipelines: rows are proven, and no method is below the bound."""

from placegap.experiments.research.tables import pipelines


def test_rows_of_pipelines_are_proven_and_no_method_is_below_the_bound() -> None:
    found = list(pipelines.rows(["llama-7b"], stages=(2,)))
    assert [row[2] for row in found] == ["2", "4", "8", "16"]
    for row in found:
        assert len(row) == len(pipelines.HEADS)
        assert row[pipelines.HEADS.index("gap")] == "0"
        assert all(cell.startswith("+") for cell in row[3:6])
