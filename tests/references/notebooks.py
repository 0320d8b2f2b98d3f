"""The notebooks: run in a kernel, what they show, and their outputs made anew."""

import base64
import io
import re
from pathlib import Path

import nbformat
from jupyter_client.manager import KernelManager, start_new_kernel
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "notebooks"
TIME_LIMIT_S = 600
"""For one cell; the first run on a machine compiles kernels."""


def committed(name: str) -> NotebookNode:
    """A notebook as it lies in the repository."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def executed(name: str, kernel: KernelManager | None = None) -> NotebookNode:
    """The notebook, run in its own folder: in a kernel of its own, or in one that is there."""
    notebook = committed(name)
    client = NotebookClient(
        notebook,
        km=kernel,
        timeout=TIME_LIMIT_S,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    if kernel is None:
        client.execute()
    else:
        fresh = nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {FOLDER}")
        notebook.cells.insert(0, fresh)
        client.execute()
        del notebook.cells[0]
    # what differs from machine to machine
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def new_kernel() -> KernelManager:
    """A kernel that several notebooks may share, one after the other."""
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(FOLDER))
    client.stop_channels()
    return manager


def update(name: str) -> None:
    """Store the outputs of a notebook anew, and its first picture beside the pages."""
    now = executed(name)
    (FOLDER / f"{name}.ipynb").write_text(nbformat.writes(now) + "\n")
    picture_of(name).write_bytes(first_picture(now))


def picture_of(name: str) -> Path:
    """Where docs/own-methods.md has its picture of a notebook."""
    return FOLDER.parents[1] / "docs" / f"notebook-{name}.png"


def first_picture(notebook: NotebookNode) -> bytes:
    """The first image that a cell shows, as PNG."""
    return base64.b64decode(outputs(notebook, "image/png")[0])


def outputs(notebook: NotebookNode, kind: str) -> list[str]:
    """What the cells show, of one type of data."""
    return [
        output["data"][kind]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if kind in output.get("data", {})
    ]


def shown_text(notebook: NotebookNode) -> list[str]:
    """What each cell shows or prints as text; what a clock decides is left out."""
    texts = []
    for cell in notebook.cells:
        said = [
            output.get("text", "") or output.get("data", {}).get("text/plain", "")
            for output in cell.get("outputs", [])
        ]
        texts.append(re.sub(r" in \d+\.\d+s", "", "".join(said)))
    return texts


def pictures(notebook: NotebookNode) -> list[Image.Image]:
    """The images that the cells show."""
    return [
        Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
        for data in outputs(notebook, "image/png")
    ]


def vivid_pixels(image: Image.Image) -> int:
    """Pixels that are more than white paper, grey text and grid."""
    colours = image.getcolors(maxcolors=1 << 24)
    assert colours is not None
    return sum(count for count, (r, g, b) in colours if max(r, g, b) - min(r, g, b) > 60)
