"""Read a model file of any supported kind, which is found by the content."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from placegap.instances.files.document import Document, parse_document, parse_json
from placegap.instances.files.plan_file import is_plan
from placegap.instances.importers.dnn_partitioning import is_dnn_partitioning, load_dnn_partitioning
from placegap.instances.importers.helix import is_helix, load_helix_model
from placegap.instances.importers.moirai_workbook import is_workbook, load_moirai_workbook
from placegap.instances.importers.piper import is_piper, load_piper
from placegap.instances.importers.serving import is_serving, load_serving
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import kind_of, read_content, read_head
from placegap.instances.reading.time_unit import TimeUnit
from placegap.instances.reading.yaml_file import read_yaml

KINDS = "placegap JSON, dnn-partitioning JSON, Piper JSON, Moirai workbook (.xls, .xlsx), ONNX"


def load_model(
    path: str | Path,
    time_unit: TimeUnit | None = None,
    dims: Mapping[str, int] | None = None,
    weights: str | None = None,
) -> Document:
    """Read a model file, its format detected by its content.

    Parameters
    ----------
    path : str or Path
        placegap, dnn-partitioning or Piper JSON (also gzipped), a Moirai workbook, or an ONNX
        model.
    time_unit : {"ns", "us", "ms", "s"}, optional
        Unit of the times in files that do not state it: dnn-partitioning and Moirai (default ms),
        Piper (default s).
    dims : mapping of str to int, optional
        Sizes of the dynamic dimensions of an ONNX file; see `load_onnx`.
    weights : str, optional
        How the weights of an ONNX model are stored; see `weight_format`.

    Returns
    -------
    Document
        A graph, with the cluster and the semantics of the file if it has them.

    Raises
    ------
    InputError
        One line that names the file, the place and the error.

    Examples
    --------
    >>> import tempfile
    >>> from placegap.instances import example
    >>> from placegap.instances.files.document import save_document
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "diamond.json.gz"
    ...     save_document(Document.of(example()), path)
    ...     load_model(path).instance().num_ops
    4
    """
    if _is_onnx(read_head(path, 2), path):
        _refuse_unit(time_unit, "has no times: they are costed", path)
        from placegap.instances.costing.weight_formats import weight_format
        from placegap.instances.importers.onnx_model import load_onnx

        form = None if weights is None else weight_format(weights)
        return load_onnx(path, dims, form).read_from(path)
    if read_head(path, 4) == b"GGUF":
        raise InputError(
            "is a GGUF file, which placegap.solve traces; end its name with .gguf", path
        )
    if weights is not None:
        raise InputError("is not an ONNX file, and states its bytes; leave out --weights", path)
    if dims:
        raise InputError("is not an ONNX file: its dimensions cannot be chosen (--dim)", path)
    data = read_content(path)
    if _is_onnx(data, path):
        raise InputError("is a zipped ONNX file; unzip it", path)
    if is_workbook(data):
        return load_moirai_workbook(path, time_unit or "ms")
    if is_helix(data):
        _refuse_unit(time_unit, "states tokens per second", path)
        return load_helix_model(path)
    if _is_json(data, path):
        return _read_json_model(parse_json(data, path), path, time_unit)
    if Path(path).suffix in (".yaml", ".yml"):
        raw = read_yaml(path)
        if is_serving(raw):
            _refuse_unit(time_unit, "states tokens per second", path)
            return load_serving(raw, path)
        raise InputError(f"is YAML: a cluster (--cluster) or a study; a model is {KINDS}", path)
    raise InputError(f"is of no kind that placegap reads: {KINDS}", path)


def _read_json_model(raw: Any, path: str | Path, time_unit: TimeUnit | None) -> Document:
    if is_dnn_partitioning(raw):
        return load_dnn_partitioning(path, time_unit or "ms")
    if is_piper(raw):
        return load_piper(path, time_unit or "s")
    if is_plan(raw):
        raise InputError("is a plan; name the model or instance that it is for", path)
    if isinstance(raw, dict) and "format" not in raw and ("fpgas" in raw or "cpus" in raw):
        raise InputError("is a split of a dnn-partitioning input; name the input itself", path)
    if kind_of(raw) in ("a cluster", "a study"):
        raise InputError(f"is {kind_of(raw)}, no model", path)
    if not isinstance(raw, dict) or not raw.keys() & {"format", "graph"}:
        raise InputError(f"is JSON, but of no kind that placegap reads: {KINDS}", path)
    _refuse_unit(time_unit, "states its times in ns", path)
    return parse_document(raw, path)


def _refuse_unit(time_unit: str | None, why: str, path: str | Path) -> None:
    if time_unit is not None:
        raise InputError(f"{why}; a time unit cannot be chosen", path)


def _is_onnx(data: bytes, path: str | Path) -> bool:
    # an ONNX file is a protobuf message that starts with field 1, the IR version, a small varint
    return Path(path).suffix == ".onnx" or (data[:1] == b"\x08" and b"\x00" < data[1:2] < b"\x40")


def _is_json(data: bytes, path: str | Path) -> bool:
    text = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    named = Path(path).name.endswith((".json", ".json.gz"))
    return named or text.startswith((b"{", b"["))
