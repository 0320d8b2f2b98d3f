"""A model written to a file is the model: other readers find its names and its optimum."""

import gzip
from pathlib import Path

import highspy
import pyomo.environ as pyo
import pytest
from doubles import tiny_mip
from doubles.tiny_mip import registered  # noqa: F401

from placegap.instances import InputError, Plan
from placegap.solvers import run_method
from placegap.solvers.models.export import Format, write_model, write_pyomo

pytestmark = pytest.mark.usefixtures("registered")

TIMES = (9, 7, 6, 5, 4)  # 16 at best: 9 + 7, 6 + 5 + 4


def read(path: Path) -> highspy.Highs:
    if path.suffix == ".gz":  # not every build of HiGHS unpacks
        plain = path.parent / "unpacked" / path.with_suffix("").name
        plain.parent.mkdir()
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        path = plain
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    assert solver.readModel(str(path)) == highspy.HighsStatus.kOk
    return solver


def optimum(path: Path) -> float:
    solver = read(path)
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return solver.getInfo().objective_function_value


@pytest.mark.parametrize("name", ["model.mps", "model.lp.gz", "M.LP"])
def test_the_file_has_the_optimum_of_the_method(tmp_path: Path, name: str) -> None:
    instance = tiny_mip.ops_on(*TIMES)
    path = tmp_path / name
    written = write_model(instance, tiny_mip.ANY, tiny_mip.NAME, {}, path)
    # 5 ops on one device each, 2 loads; x[i, k] and the largest load
    assert (written.rows, written.columns, written.unit_ns) == (7, 11, 1.0)
    solved = run_method(instance, tiny_mip.ANY, tiny_mip.NAME)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    if name == "M.LP":  # HiGHS knows small letters only
        path = path.rename(tmp_path / "renamed.lp")
    assert optimum(path) == pytest.approx(16)
    assert solved.value_ns == 16


@pytest.mark.parametrize("kind", ["mps", "lp"])
def test_variables_and_constraints_keep_their_names(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"model.{kind}"
    write_model(tiny_mip.ops_on(1, 2), tiny_mip.ANY, tiny_mip.NAME, {}, path)
    model = read(path).getLp()
    assert {"x(0,0)", "x(0,1)", "x(1,0)", "x(1,1)", "most"} <= set(model.col_names_)
    for family in ("assign_once(0)", "assign_once(1)", "load_covers(0)", "load_covers(1)"):
        assert sum(family in name for name in model.row_names_) == 1


@pytest.mark.parametrize("kind", ["mps", "lp"])
def test_numbers_are_written_to_the_last_digit(tmp_path: Path, kind: str) -> None:
    time_ns, path = 2**52 + 1, tmp_path / f"model.{kind}"
    write_model(tiny_mip.ops_on(time_ns, 1), tiny_mip.ANY, tiny_mip.NAME, {}, path)
    assert str(time_ns) in path.read_text().replace(".0", "")


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.mps.gz", "b.mps.gz"):
        write_model(tiny_mip.ops_on(*TIMES), tiny_mip.ANY, tiny_mip.NAME, {}, tmp_path / name)
    assert (tmp_path / "a.mps.gz").read_bytes() == (tmp_path / "b.mps.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.mps.gz").read_bytes()).count(b"\n") > 10


def test_the_model_has_the_start_that_the_solver_would_have(tmp_path: Path) -> None:
    # 3 and 4 together, 5 apart
    instance, given = tiny_mip.ops_on(3, 4, 5), Plan.on([0, 0, 1])
    path = tmp_path / "a.lp"
    written = write_model(instance, tiny_mip.ANY, tiny_mip.NAME, None, path, incumbent=given)
    assert written.start_ns == 7


def test_a_file_that_cannot_be_written_is_found_out_before_the_model_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_mip, "build", None)
    with pytest.raises(InputError, match=r"a\.mps: "):
        write_model(
            tiny_mip.ops_on(1), tiny_mip.ANY, tiny_mip.NAME, {}, tmp_path / "none" / "a.mps"
        )


def test_a_folder_of_that_name_stays(tmp_path: Path) -> None:
    (tmp_path / "a.mps").mkdir()
    with pytest.raises(InputError, match=r"a\.mps: "):
        write_model(tiny_mip.ops_on(1), tiny_mip.ANY, tiny_mip.NAME, {}, tmp_path / "a.mps")
    assert [file.name for file in tmp_path.iterdir()] == ["a.mps"]


@pytest.mark.parametrize("kind", ["mps", "lp"])
def test_names_of_any_letters_stay_different_and_an_infeasible_model_is_written(
    tmp_path: Path, kind: Format
) -> None:
    ops = ("a b", "ab", "a-b", "a+b", "ab#2", "é/x [1]", "n" * 400)
    model = pyo.ConcreteModel()
    model.x = pyo.Var(ops, domain=pyo.Binary)
    model.row = pyo.Constraint(ops, rule=lambda model, i: model.x[i] == 1)
    model.objective = pyo.Objective(expr=sum(model.x.values()))
    model.x["ab"].fix(0)  # row[ab] is 0 == 1
    path = tmp_path / f"model.{kind}"
    write_pyomo(model, path, kind)
    solver = read(path)
    names = [name for name in solver.getLp().col_names_ if name.startswith("x")]
    assert sorted(names)[:4] == ["x(_.x(1))", "x(a_b)", "x(a_b)#2", "x(ab#2)"]
    assert len(set(names)) == len(ops) - 1  # fixed variables are no columns
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible
