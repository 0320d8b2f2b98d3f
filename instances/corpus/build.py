"""Builds the corpus: ``python -m placegap.instances.corpus.build instances/data/corpus``.

The same input gives the same decompressed JSON; a file whose content would not change is left
alone, so that another zlib's compression is no change.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from placegap.instances.files.document import Document, load_document, save_document
from placegap.instances.importers.onnx.model import read_onnx
from placegap.instances.problem.instance import Provenance
from placegap.instances.reading.errors import InputError

ONNX_LIGHT = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
    "squeezenet", "vgg19", "zfnet512",
)  # fmt: skip
"""Architectures that ship inside the onnx wheel, with their weights replaced by constants."""


def onnx_light_folder() -> Path:
    """Where the installed onnx package keeps its light models."""
    try:
        import onnx
    except ImportError:
        raise InputError("the corpus needs an extra: pip install 'placegap[onnx]'") from None
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def build_onnx_light(name: str) -> Document:
    """One of the nine architectures as a document of the corpus."""
    file = f"light_{name}.onnx"
    graph = read_onnx(onnx_light_folder() / file).graph
    provenance = Provenance(
        source=f"onnx wheel, onnx/backend/test/data/light/{file}",
        licence="Apache-2.0",
        changes=graph.provenance.changes,
    )
    # the best-known values go by the content of graphs that do not state axes
    ops = tuple(op.model_copy(update={"splittable_axes": (), "axis_sizes": {}}) for op in graph.ops)
    graph = graph.model_copy(update={"name": name, "ops": ops, "provenance": provenance})
    return Document(name=name, graph=graph)


def build_corpus(folder: Path) -> list[Path]:
    """Build every graph of the corpus under a folder; the files that were written."""
    written = []
    for name in ONNX_LIGHT:
        path = folder / "onnx-light" / f"{name}.json.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        document = build_onnx_light(name)
        if not path.exists() or not _same(path, document):
            save_document(document, path)
            written.append(path)
    return written


def _same(path: Path, document: Document) -> bool:
    """Whether a file holds exactly the JSON that the document would be written as."""
    with TemporaryDirectory() as folder:
        fresh = Path(folder) / "fresh.json"
        save_document(document, fresh)
        return gzip.decompress(path.read_bytes()) == fresh.read_bytes()


def main() -> None:
    """Build into the folder that the command line names."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m placegap.instances.corpus.build FOLDER")
    try:
        for path in build_corpus(Path(sys.argv[1])):
            graph = load_document(path).graph
            print(f"{path.name}: {len(graph.ops)} ops, {len(graph.edges)} edges")
    except InputError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
