"""The one exception that bad input raises, and the one line that it prints, with near names."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from placegap.instances.reading.printable import printable

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


class InputError(ValueError):
    """Input that cannot be used: one line that names the place and the remedy.

    Examples
    --------
    >>> str(InputError("ops: 'conv1' appears twice", source="net.json"))
    "net.json: ops: 'conv1' appears twice"
    """

    def __init__(self, message: str, source: str | Path | None = None) -> None:
        line = " ".join(message.split())
        place = "" if source is None else f"{_cut(printable(str(source)), LONGEST_PLACE)}: "
        super().__init__(place + shorten(line, LONGEST_LINE - len(place)))


LONGEST_LINE = 290  # characters of a message; with what the command line puts before it, 300
LONGEST_PLACE = 150  # characters of the file that a message names first
WORD_LENGTHS = (120, 80, 60, 40, 24)  # a long message's words are cut to these, until it is short


def shorten(line: str, most: int = LONGEST_LINE) -> str:
    """A printable line of at most `most` characters; long words, or the line, lose their middle."""
    line = printable(_cut(line, 100 * most))
    if len(line) <= most:
        return line
    for length in WORD_LENGTHS:
        line = " ".join(_cut(word, length) for word in line.split(" "))
        if len(line) <= most:
            return line
    return _cut(line, most, 0.7)  # file and place stand first


def _cut(text: str, length: int, share: float = 0.5) -> str:
    if len(text) <= length:
        return text
    head = int((length - 3) * share)
    return f"{text[:head]}...{text[len(text) - (length - 3 - head) :]}"


class ClusterError(ValueError):
    """What is wrong with an instance lies in its cluster, not in its model."""


def lies_in_cluster(error: ValidationError) -> bool:
    """Whether the first finding is a `ClusterError`."""
    context = error.errors(include_url=False)[0].get("ctx", {})
    return isinstance(context.get("error"), ClusterError)


class MissingExtra(InputError):
    """A file that no installed package can read; the line says what to install."""


MOST_FINDINGS = 12  # of a file, that one line names


def from_validation_error(
    error: ValidationError,
    raw: Any = None,
    source: str | Path | None = None,
    model: type[BaseModel] | None = None,
) -> InputError:
    """Turn pydantic's report into one line: all findings, or some and the places of the others."""
    # The parsed document `raw` gives the names of ops, edges and devices, `model` those of fields.
    found = dict[str, str]()  # the first of each place: each type that may stand there has its own
    for each in map(_as_literal, error.errors(include_url=False)[:MOST_FINDINGS]):
        place = _place(each["loc"], raw, each["type"] == "missing")
        said = _finding(each, model, lists=raw is None)
        found.setdefault(place, f"{place}: {said}" if place else said)
    inner = [place for place in found if not any(other.startswith(f"{place}[") for other in found)]
    more = ["more"] * (error.error_count() > MOST_FINDINGS)
    for whole in range(len(inner), 0, -1):
        line, rest = "; ".join(found[place] for place in inner[:whole]), [*inner[whole:], *more]
        line += f"; also wrong: {', '.join(rest)}" if rest else ""
        if len(line) + min(len(f"{source}: "), LONGEST_PLACE) <= LONGEST_LINE:
            break
    return InputError(line, source)


def _finding(finding: Mapping[str, Any], model: type[BaseModel] | None, *, lists: bool) -> str:
    """What is wrong, the value, and what may stand there: the nearest, or with `lists` all."""
    message, value = _message(finding), finding.get("input")
    if isinstance(value, str | int | float | bool | None) and finding["type"] not in (
        "value_error",
        "missing",
        "json_invalid",
    ):
        message += f" (got {_short(value)})"
    if finding["type"] == "literal_error" and isinstance(value, str):
        message += question(value, re.findall(CHOICE, finding["ctx"]["expected"]))
    if finding["type"] == "extra_forbidden" and model is not None:
        if lists:
            takes = {name: str(field.annotation) for name, field in model.model_fields.items()}
            texts = [f"{n} ({', '.join(re.findall(CHOICE, it)) or it})" for n, it in takes.items()]
            message += f"; fields: {', '.join(texts) or 'none'}"
        *steps, name = finding["loc"]
        fields = _fields_in(model)
        for step in steps:
            fields = _fields_in(fields[step].annotation) if step in fields else fields
        message += question(str(name), list(fields))
    return message


CHOICE = "'([^']*)'"


def _fields_in(kind: Any) -> dict[Any, Any]:
    """The fields of the models that a type names."""
    own: dict[Any, Any] = getattr(kind, "model_fields", {})
    return own or {name: it for part in get_args(kind) for name, it in _fields_in(part).items()}


@contextmanager
def as_input_error(
    raw: Any = None, source: str | Path | None = None, model: type[BaseModel] | None = None
) -> Iterator[None]:
    """Within it, what pydantic refuses is an `InputError` (`from_validation_error`)."""
    from pydantic import ValidationError  # loaded where anything is validated

    try:
        yield
    except ValidationError as error:
        raise from_validation_error(error, raw, source, model) from None
    except RecursionError:
        raise InputError("nested too deeply", source) from None


def _as_literal(finding: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is wrong with the tag of a tagged union, as if it were a field like any other."""
    if finding["type"] not in ("union_tag_invalid", "union_tag_not_found"):
        return finding
    name = finding["ctx"]["discriminator"].strip("'")
    loc = (*finding["loc"], name)
    if finding["type"] == "union_tag_not_found":
        return {**finding, "type": "missing", "loc": loc}
    *others, last = finding["ctx"]["expected_tags"].split(", ")
    expected = f"{', '.join(others)} or {last}"
    return {
        "type": "literal_error",
        "loc": loc,
        "msg": f"Input should be {expected}",
        "input": finding["input"][name],
        "ctx": {"expected": expected},
    }


def _message(finding: Mapping[str, Any]) -> str:
    match finding["type"]:
        case "extra_forbidden":
            return "unknown field"
        case "missing":
            return "field is missing"
        case "too_short" | "string_too_short":
            least = finding["ctx"]["min_length"]
            return "must not be empty" if least == 1 else f"must have {least} items or more"
        case "int_type" if "bytes" in str(finding["loc"][-1]):
            return "must be a whole number: 24 GB are 24e9"
        case "tuple_type" | "list_type":
            return "must be a list"
        case "model_type" | "dict_type" | "model_attributes_type":
            return "must be an object"
        case _:
            text = str(finding["msg"]).removeprefix("Value error, ")
            text = text.replace("Input should be", "must be").partition(", unable")[0]
            text = text.replace("greater than or equal to", "at least")
            return text.replace("less than or equal to", "at most")


def _short(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 1000:
        return "an integer of hundreds of digits"  # Python refuses to write thousands
    text = repr(value[:200] if isinstance(value, str) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def _place(loc: Sequence[int | str], raw: Any, is_missing: bool) -> str:
    """``graph.ops[3] 'conv1'.time_ns.gpu`` from a location path, without the tags of unions."""
    # A tag is a value where other steps are keys.
    text, node = "", raw
    for number, step in enumerate(loc, start=1):
        is_key = isinstance(step, int) or not isinstance(node, Mapping) or step in node
        if not is_key and step in node.values() and not (is_missing and number == len(loc)):
            continue
        node = _child(node, step)
        if isinstance(step, int):
            text += f"[{step}]{_name_of(node)}"
        else:
            text += f".{step}" if text else str(step)
    return text


def _child(node: Any, step: int | str) -> Any:
    if isinstance(node, Mapping):
        return node.get(step)
    if isinstance(node, Sequence) and not isinstance(node, str) and isinstance(step, int):
        return node[step] if step < len(node) else None
    return None


def _name_of(node: Any) -> str:
    if not isinstance(node, Mapping):
        return ""
    if isinstance(node.get("name"), str):
        return f" {_short(node['name'])}"
    if isinstance(node.get("producer"), str) and isinstance(node.get("consumer"), str):
        return f" {_short(node['producer'] + ' -> ' + node['consumer'])}"
    return ""


SIGNS = "_. -"  # what separates the parts of names
ALIKE = 0.65  # so much of two names is the same, if one may have been meant for the other
BEHIND = 0.2  # names whose likeness is this much below that of the nearest are left out
MOST_NEAR = 3  # most near names that are offered
MOST_COMPARED = 2_000  # most known names that are compared: a cluster may have 100,000 devices
LONGEST_LIST = 160  # longer lists of names are not printed, but the command that prints them


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """The known names that are like a name, the nearest first; case and signs do not count."""
    # Of names that are equally like it, those of more like length come first.
    name = str(name)  # of a call in Python it may be anything
    wanted, compared = plain_name(name), islice(known, MOST_COMPARED)
    ranked = sorted(
        (-_likeness(wanted, each), abs(len(each) - len(name)), at, each)
        for at, each in enumerate(compared)
    )
    least = max(ALIKE, -ranked[0][0] - BEHIND) if ranked else ALIKE
    return [each for likeness, *_, each in ranked if -likeness >= least][:MOST_NEAR]


def _likeness(wanted: str, name: str) -> float:
    """0 to 1: of the names, or less a little of `wanted` and how the name begins."""
    plain = plain_name(name)
    if len(wanted) > 9 * len(plain):
        return 0.0  # at most a fifth is alike; with a name of a megabyte that takes a minute
    if len(wanted) > 1 and wanted in plain:
        return 1.0
    head = plain_name(re.split(f"[{SIGNS}]", name)[0])
    whole = SequenceMatcher(None, wanted, plain).ratio()
    return max(whole, 0.9 * SequenceMatcher(None, wanted, head).ratio())


# Our name -> what it is, and words of the field for it.
OTHER_WORDS: Mapping[str, tuple[str, str]] = {
    "makespan": ("the latency of one request", "latency runtime delay response_time ttft tpot"),
    "max_load": ("the time per sample of a full pipeline", "throughput bottleneck period rate"),
    "pipeline_iteration": ("the time of one training step", "iteration step_time training_time"),
    "max_context": ("the number of tokens that fit", "context context_length tokens kv_cache"),
}


def question(name: str, known: Sequence[str]) -> str:
    """The end of a sentence that refuses a name: whether the nearest known one was meant."""
    for ours, (meaning, words) in OTHER_WORDS.items():
        if ours in known and plain_name(name) in map(plain_name, words.split()):
            return f"; did you mean {ours!r}, {meaning}?"
    near = near_names(name, known)
    return f"; did you mean {near[0]!r}?" if near else ""


def instead_of(name: str, known: Iterable[str], listed_by: str = "") -> str:
    """The end of a sentence such as "there is no method 'heff'": what to choose instead."""
    # `listed_by` is a command that lists what there is, for lists too long for a line.
    names = list(known)
    near = near_names(name, names)
    if near:
        quoted = [repr(each) for each in near]
        return f"; did you mean {' or '.join(filter(None, (', '.join(quoted[:-1]), quoted[-1])))}?"
    listed = ", ".join(names)
    if len(listed) > LONGEST_LIST:
        return f"; '{listed_by}' lists them" if listed_by else ""
    return f"; choose from {listed}"


T = TypeVar("T")


def look_up(what: str, name: str, known: Mapping[str, T], listed_by: str = "") -> T:
    """What goes by a name; of an unknown one an InputError that offers others."""
    if name in known:
        return known[name]
    raise InputError(f"there is no {what} {name!r}{instead_of(name, known, listed_by)}")


def plain_name(name: str) -> str:
    """A name without case and signs, by which it is compared."""
    return name.casefold().translate({ord(sign): None for sign in SIGNS})


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the cyclic garbage collector while many objects are made: half of the loading time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
