"""The instance format: one JSON document for a graph, with or without its cluster."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError

from placegap.instances.costing.costing import costed
from placegap.instances.costing.runtime_memory import with_reserve
from placegap.instances.files.output_files import write_text
from placegap.instances.problem import (
    BestKnown,
    Cluster,
    Graph,
    Instance,
    InstancePart,
    Name,
    Semantics,
    StatedSemantics,
)
from placegap.instances.reading.errors import (
    InputError,
    as_input_error,
    from_validation_error,
    lies_in_cluster,
    paused_collector,
)
from placegap.instances.reading.input_files import MAX_LINKS, MAX_VALUES, read_content
from placegap.instances.reading.printable import json_text

if TYPE_CHECKING:
    import networkx as nx

Part = TypeVar("Part", bound=InstancePart)
FORMAT = "placegap"
VERSION = 1

# In JSON, an escape of half a letter of UTF-16; mostly the other half follows.
HALF_LETTER = r"\\u[dD][89a-fA-F]"


def _integer(value: Any) -> Any:
    if type(value) is not int:  # True == 1 == 1.0 would pass for a literal 1
        raise ValueError("must be an integer")
    return value


Version = Annotated[Literal[1], BeforeValidator(_integer)]  # of a format; there is one so far
# Of a format with rules: in version 2 they mean chains where they state no plans (`OLD_PLANS`).
AnyVersion = Annotated[Literal[1, 2], BeforeValidator(_integer)]


class Document(InstancePart):
    """Content of a model file: a graph, and optionally a cluster, semantics and best values.

    Examples
    --------
    >>> from placegap.instances import example
    >>> document = Document.of(example())
    >>> document.cluster.name, document.instance().content_hash == example().content_hash
    ('two-gpus', True)
    """

    format: Literal["placegap"] = "placegap"
    version: AnyVersion = 1
    name: Name
    graph: Graph
    cluster: Cluster | None = None
    semantics: StatedSemantics | None = None
    best_known: tuple[BestKnown, ...] = Field(default=())

    @classmethod
    def of(cls, instance: Instance) -> Document:
        """The document that describes an instance."""
        return cls(
            name=instance.name,
            graph=instance.graph,
            cluster=instance.cluster,
            semantics=instance.semantics,
            best_known=instance.best_known,
        )

    def instance(self, cluster: Cluster | None = None) -> Instance:
        """The instance on the given cluster, or on the file's own.

        Ops without a time for one of the cluster's device kinds are costed from their FLOPs and
        bytes moved, where the catalogue knows the kind (`costing`).

        Raises
        ------
        InputError
            If there is no cluster, or an op cannot run on any of its devices.
        """
        chosen = cluster if cluster is not None else self.cluster
        if chosen is None:
            raise InputError("has no default cluster; pass one (--cluster)", self.source)
        bare = (
            self.name if self.cluster is None else self.name.removesuffix(f"@{self.cluster.name}")
        )
        graph = costed(self.graph, chosen)
        chosen = with_reserve(chosen, graph)
        own = chosen == self.cluster
        try:
            with paused_collector():
                return Instance(
                    name=self.name if own else f"{bare}@{chosen.name}",
                    graph=graph,
                    cluster=chosen,
                    semantics=self.semantics,
                    best_known=self.best_known if own else (),
                )
        except ValidationError as error:
            source = self.source
            if not own and lies_in_cluster(error):
                is_file = not chosen.source.startswith("cluster ")
                source = chosen.source if is_file else f"{source} on {chosen.source}"
            raise from_validation_error(error, source=source) from None

    @cached_property
    def source(self) -> str:
        """The name used in messages: the file of the document, else its own name."""
        return self.name

    def read_from(self, path: str | Path) -> Document:
        """Note the file that messages about the document name, and return the document."""
        self.__dict__["source"] = str(path)  # like a cached property: no part of its value
        return self


def load_document(path: str | Path) -> Document:
    """Read a ``.json`` or ``.json.gz`` document in placegap's own format.

    Parameters
    ----------
    path : str or Path

    Raises
    ------
    InputError
        One line that names the file, the place and the error.

    Examples
    --------
    >>> from placegap.instances.reading.input_files import data_path
    >>> load_document(data_path("corpus/onnx-light/bvlc_alexnet.json.gz")).name
    'bvlc_alexnet'
    """
    return parse_document(read_json(path), path)


def parse_document(raw: Any, source: str | Path) -> Document:
    """Validate parsed JSON as a document that comes from `source`."""
    return of_version(Document, raw, source).read_from(source)


def of_version(kind: type[Part], raw: Any, source: str | Path) -> Part:
    """Validate parsed JSON with what its version means by rules that state no plans."""
    context = {"version": raw.get("version") if isinstance(raw, dict) else None}
    with as_input_error(raw, source, kind), paused_collector():
        found = kind.model_validate(raw, context=context)
    if "is_old" in context:
        warn_of_plans(source)
    return found


def warn_of_plans(source: str | Path) -> None:
    """Warn of a file whose rules state no class of plans (`OLD_PLANS`)."""
    said = (
        "its semantics states no plans, which means any plans before version 2 and chains from"
        " then on; state plans: any or plans: chain, or version: 2"
    )
    warnings.warn(str(InputError(said, source)), stacklevel=1)


def save_document(document: Document, path: str | Path) -> None:
    """Write a document; the bytes depend only on its content.

    Fields at their default are left out, so that files stay small, but for rules of the semantics
    that are stated; reading gives back an equal document.

    Parameters
    ----------
    document : Document
    path : str or Path
        Ends in ``.json`` or ``.json.gz``.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from placegap.instances import example
    >>> document = Document(name="first", graph=example().graph)
    >>> with TemporaryDirectory() as folder:
    ...     save_document(document, f"{folder}/first.json")
    ...     load_document(f"{folder}/first.json") == document
    True
    """
    if document.cluster is not None:
        MAX_LINKS.check(len(document.cluster.links), "the cluster, written link by link,", path)
    content = document.model_dump(mode="json", exclude_defaults=True)
    stated: list[tuple[dict[str, Any], Semantics]] = [
        (entry, known.semantics)
        for entry, known in zip(content.get("best_known", ()), document.best_known, strict=True)
    ]
    if document.semantics is not None:
        stated.append((content, document.semantics))
    for entry, rules in stated:
        entry["semantics"] = rules.model_dump(mode="json", exclude_unset=True)
    head = {"format": FORMAT, "version": VERSION}
    write_json({**head, **content}, path)


def read_json(path: str | Path) -> Any:
    """Parse a JSON file, gzipped or not; a key that appears twice in an object is an error."""
    return parse_json(read_content(path), path)


def parse_json(
    data: bytes | str, source: str | Path, parse_float: Callable[[str], Any] = float
) -> Any:
    """Parse JSON text of a file; `parse_float` makes the numbers that are no integers."""
    # NaN and Infinity come through, for the models to refuse them by the name of their place.
    _count_values(data, source)
    try:
        with paused_collector():
            found = json.loads(data, object_pairs_hook=_no_duplicates, parse_float=parse_float)
    except RecursionError:
        raise InputError("nested too deeply", source) from None
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 text: {error}", source) from None
    except ArithmeticError:  # of a parse_float
        raise InputError("holds a number that is out of range", source) from None
    except ValueError as error:  # JSONDecodeError, the hook, and integers of thousands of digits
        if "integer string conversion" in str(error):
            raise InputError("holds an integer of thousands of digits", source) from None
        raise InputError(f"is not valid JSON: {error}", source) from None
    _refuse_half_letters(data, found, source)
    return found


def _refuse_half_letters(data: bytes | str, found: Any, source: str | Path) -> None:
    """Refuse text that no file and no terminal can hold: an escape of half a letter."""
    if isinstance(data, bytes):
        may_hold = re.search(HALF_LETTER.encode(), data) is not None
    else:
        may_hold = re.search(HALF_LETTER, data) is not None
    if may_hold:
        try:
            json.dumps(found, ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start : error.start + 1]
            raise InputError(f"holds {half!a}, half a letter of UTF-16", source) from None


def _count_values(data: bytes | str, source: str | Path) -> None:
    """Refuse, before anything is built, what may hold more values than the limit."""
    # Every value but the first follows one of three characters; in texts they count as well.
    if isinstance(data, bytes):
        most = data.count(b",") + data.count(b"[") + data.count(b"{")
    else:
        most = data.count(",") + data.count("[") + data.count("{")
    MAX_VALUES.check(most, "the file", source)


def write_json(content: Any, path: str | Path) -> None:
    """Write JSON, gzipped without a time stamp if the name ends in ``.gz``; never half a file."""
    write_text(json_text(content, indent=1) + "\n", path)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        count = Counter(key for key, _ in pairs)
        twice = next(key for key in count if count[key] > 1)
        name = content.get("name")
        where = f"the object of name {name!r}" if isinstance(name, str) else "one object"
        raise ValueError(f"key {twice!r} appears twice in {where}")
    return content


def to_networkx(graph: Graph) -> nx.MultiDiGraph[str]:
    """The graph as a networkx multigraph: ops by name, all other fields as attributes.

    Edges carry an attribute `position`, their place in ``graph.edges``, so that
    ``from_networkx(to_networkx(graph)) == graph``. O(n + m).

    Examples
    --------
    >>> from placegap.instances import example
    >>> import networkx as nx
    >>> network = to_networkx(example().graph)
    >>> nx.dag_longest_path(network)
    ['op1', 'op2', 'op4']
    >>> network.nodes["op2"]["time_ns"], network.edges["op1", "op2", 0]["bytes"]
    ({'gpu': 20}, 1)
    """
    import networkx as nx  # loaded when used: a tenth of a second

    network: nx.MultiDiGraph[str] = nx.MultiDiGraph(
        name=graph.name, provenance=graph.provenance.model_dump()
    )
    with paused_collector():
        network.add_nodes_from((op.name, op.model_dump(exclude={"name"})) for op in graph.ops)
        network.add_edges_from(
            (
                edge.producer,
                edge.consumer,
                edge.model_dump(exclude={"producer", "consumer"}) | {"position": position},
            )
            for position, edge in enumerate(graph.edges)
        )
    return network


def from_networkx(network: nx.DiGraph[Any]) -> Graph:
    """Make a graph from a directed networkx graph or multigraph.

    Nodes become ops, named by ``str(node)``; their attributes are the fields of `Op`, those of
    edges the fields of `Edge`. Absent attributes take their defaults. Edges are in the order of
    their attribute `position` if all have one, else in networkx's.

    Raises
    ------
    InputError
        If the network is not directed, an attribute is unknown or wrong, or the ops and edges are
        not a valid `Graph`.

    Examples
    --------
    >>> import networkx as nx
    >>> network = nx.DiGraph(name="pair")
    >>> network.add_node("a", time_ns={"gpu": 5})
    >>> network.add_edge("a", "b", bytes=1024)
    >>> [op.name for op in from_networkx(network).ops]
    ['a', 'b']
    """
    if not network.is_directed():
        raise InputError("networkx: the graph must be directed")
    arcs = list(network.edges(data=True))
    if all("position" in data for _, _, data in arcs):
        arcs.sort(key=lambda arc: arc[2]["position"])
    content = {
        "name": network.graph.get("name") or "networkx",
        "provenance": network.graph.get("provenance", {}),
        "ops": tuple({**data, "name": str(node)} for node, data in network.nodes(data=True)),
        "edges": tuple(
            {
                **{key: value for key, value in data.items() if key != "position"},
                "producer": str(a),
                "consumer": str(b),
            }
            for a, b, data in arcs
        ),
    }
    with as_input_error(content, "networkx"), paused_collector():
        return Graph.model_validate(content)
