"""Clusters in one line: ``2xRTX3090+1xRTX3070+host, pcie4``, or ``16x8xH100, nvlink, infiniband``.

Before the first comma stand the devices, joined by ``+``. ``host`` is a host (`HOST_KIND`), and so
is every kind that is a CPU; ``host:64GB`` has a memory of its own. ``16x8xH100`` is 16 servers of 8
cards each, and ``2x(4xL40S+host)`` two servers of four cards and a host. Kinds are those of the
catalogue, without regard to case and dashes; suffixes of boards of one card (``-80GB``,
``-PCIe``) may be left out where one board alone is meant, and so may ``RTX`` and ``RX``.

Behind it stand the kinds of links. In a server ``nvlink`` joins the cards that have it, at the rate
of their datasheets, and ``pcie3``, ``pcie4`` or ``pcie5`` all else, by 16 lanes (``pcie4x8``: 8);
every pair has that link to itself; ``measured`` stands in place of ``nvlink``, for equal cards.
``RTX3090@pcie4x4`` has that link to the others, whatever stands behind the comma: of two ends the
slower one counts. ``thunderbolt4`` and ``thunderbolt5`` stand in place of PCIe.
Between servers ``infiniband`` (200 Gbit/s, or ``infiniband-400g``) joins the cards of the same
number, and ``ethernet-10g`` the hosts, or the first cards where there are none. Without servers, a
network joins all devices. Servers of cards with NVLink need no kinds of links: theirs are ``nvlink,
infiniband``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from placegap.instances.costing.catalogue import catalogue
from placegap.instances.problem import DeviceSpec
from placegap.instances.reading.errors import InputError, instead_of, plain_name
from placegap.instances.reading.input_files import MAX_DEVICES, MAX_LINKS

HOST_KIND = "DDR5-2ch"  # what ``host`` stands for: a desktop's CPU and memory
# 16 lanes of 8 GT/s, 128 bits of 130, one way; each later generation doubles it. The first two have
# 2.5 and 5 GT/s, 8 bits of 10: 4 and 8 GB/s.
PCIE3_BYTES_PER_S = 15_750_000_000
# What Thunderbolt takes of PCIe: 32 Gbit/s (of version 3 at most), and 64.
THUNDERBOLT_BYTES_PER_S = {"3": 4_000_000_000, "4": 4_000_000_000, "5": 8_000_000_000}
# By the first word of a link; our assumption, as in the clusters that ship.
LATENCIES_NS = {"pcie": 10_000, "nvlink": 5_000, "ethernet": 50_000, "infiniband": 10_000}
# What links of a family do, where it is not the family's name.
ROLES = {"ethernet": "network", "infiniband": "network", "measured": "nvlink"}

# Kinds of links that messages and lists name; lanes and other rates of networks go, too.
LINK_KINDS = (
    *("pcie3", "pcie4", "pcie5", "thunderbolt4", "thunderbolt5", "nvlink", "measured"),
    *("ethernet-1g", "ethernet-10g", "ethernet-100g", "infiniband"),
)

# A name of a kind that says which board, or which half of one.
BOARD = re.compile(r"(.+)-(?:\d+GB|PCIe|GCD)", re.IGNORECASE)

SERIES = re.compile(r"(?:RTX|RX)-?(?=\w*\d)", re.IGNORECASE)

UNITS = {"mb": 10**6, "gb": 10**9, "tb": 10**12, "mib": 2**20, "gib": 2**30, "tib": 2**40}


@dataclass(frozen=True)
class _Devices:
    """Devices of a kind in one server; a memory of None is the kind's."""

    count: int
    kind: str
    label: str
    memory_bytes: int | None
    slot: LinkKind | None = None  # by what it is joined to the others, if that is stated for it

    def __str__(self) -> str:
        memory = "" if self.memory_bytes is None else f":{Decimal(self.memory_bytes) / 10**9}GB"
        slot = "" if self.slot is None else f"@{self.slot.word}"
        return (f"{self.count}x" if self.count > 1 else "") + self.label + memory + slot


@dataclass(frozen=True)
class LinkKind:
    """A kind of link, by its first word and its own; no bandwidth is that of the cards."""

    family: str
    word: str
    bandwidth_bytes_per_s: int | None

    def entry(self, bandwidth_bytes_per_s: int | None = None, **ends: Any) -> dict[str, Any]:
        """An entry of a cluster file."""
        rate = self.bandwidth_bytes_per_s or bandwidth_bytes_per_s
        latency = LATENCIES_NS[self.family]
        return {**ends, "bandwidth_bytes_per_s": rate, "latency_ns": latency}


def _sum(parts: Sequence[_Devices]) -> str:
    return "+".join(map(str, parts))


def is_cluster_text(text: str, added: Mapping[str, DeviceSpec] | None = None) -> bool:
    """Whether a text is meant to describe a cluster, rightly or not."""
    if text.endswith((".yaml", ".yml", ".json")):
        return False
    if re.search("[,+(]", text) or re.match(r"\s*\d+\s*[xX*]\s*\w", text):
        return True
    try:
        _devices(text, {**catalogue(), **(added or {})})
    except ValueError:
        return False
    return True


def cluster_content(text: str, added: Mapping[str, DeviceSpec] | None = None) -> dict[str, Any]:
    """What a cluster file would hold, had the text been written as one."""
    # `added` are kinds beside the catalogue's.
    source = f"cluster {text!r}"
    known = {**catalogue(), **(added or {})}
    first, *words = text.split(",")
    try:
        terms = list(_terms(first, known))
        links = _links(words or _usual_links(terms, known))
        total = sum((number or 1) * part.count for number, parts in terms for part in parts)
        MAX_DEVICES.check(total, "it")
        servers = [parts for number, parts in terms for _ in range(number or 1)]
        grouped = terms[0][0] is not None
        entries = list(_entries(servers, known, numbered=grouped))
        joined = list(_joined(entries, known, links, grouped))
    except ValueError as error:
        raise InputError(str(error), source) from None
    shown = "+".join(
        _sum(parts)
        if number is None
        else f"{number}x{parts[0]}"
        if len(parts) == 1
        else f"{number}x({_sum(parts)})"
        for number, parts in terms
    )
    return {
        "name": ", ".join([shown, *(link.word for link in links.values())]),
        "provenance": {
            "source": f"asked for as {text!r}",
            "changes": [
                "latencies of links that are not measured are our assumption",
                "every pair has its link to itself, at the full rate each way",
            ],
        },
        "devices": [{k: v for k, v in entry.items() if k != "slot"} for entry in entries],
        "links": joined,
    }


def _links(words: Sequence[str]) -> dict[str, LinkKind]:
    """The kinds of links by family, networks being one."""
    found: dict[str, LinkKind] = {}
    for word in words:
        link = link_kind(word.strip())
        role = ROLES.get(link.family, link.family)
        if role in found:
            raise ValueError(
                f"{found[role].word} and {link.word} are both of one kind; leave one out"
            )
        found[role] = link
    return found


def _usual_links(
    terms: Sequence[tuple[int | None, tuple[_Devices, ...]]], known: Mapping[str, DeviceSpec]
) -> Sequence[str]:
    """NVLink in servers of cards that have it, and InfiniBand between them, if no link is named."""
    cards = all(known[p.kind].nvlink_bytes_per_s is not None for _, parts in terms for p in parts)
    grouped = terms[0][0] is not None
    return ("nvlink", "infiniband") if grouped and cards else ()


def link_kind(word: str) -> LinkKind:
    """The link that a word stands for."""
    plain = plain_name(word)
    if match := re.fullmatch(r"pcie([1-5])(?:x(1|2|4|8|16))?", plain):
        lanes, generation = int(match[2] or 16), int(match[1])
        full = PCIE3_BYTES_PER_S * 2**generation // 8 if generation > 2 else 4 * 10**9 * generation
        rate = full * lanes // 16
        return LinkKind("pcie", plain, rate)
    if (match := re.fullmatch(r"thunderbolt(\d)", plain)) and match[1] in THUNDERBOLT_BYTES_PER_S:
        return LinkKind("pcie", plain, THUNDERBOLT_BYTES_PER_S[match[1]])
    if plain in ("nvlink", "measured"):
        return LinkKind(plain, plain, None)
    if match := re.fullmatch(r"(ethernet|infiniband)([1-9][0-9]{0,3})g", plain):
        return LinkKind(match[1], f"{match[1]}-{match[2]}g", int(match[2]) * 125_000_000)
    if plain == "infiniband":
        return LinkKind("infiniband", plain, 25_000_000_000)
    hint = instead_of(word, LINK_KINDS)
    raise ValueError(f"there is no kind of link {word!r}{hint} ('+' joins devices)")


def _terms(
    text: str, known: Mapping[str, DeviceSpec]
) -> Iterator[tuple[int | None, tuple[_Devices, ...]]]:
    """How many servers there are of each sort, and what each holds; None, if none is named."""
    flat: list[_Devices] = []
    servers = False
    for term in _split(text):
        if match := re.fullmatch(r"(?:(\d{1,9})\s*[xX*]\s*)?\((.*)\)", term):
            parts = tuple(_devices(part, known) for part in _split(match[2]))
            servers = True
            yield _count(match[1]), parts
        elif match := re.fullmatch(r"(\d{1,9})\s*[xX*]\s*(\d{1,9}\s*[xX*].*)", term):
            servers = True
            yield _count(match[1]), (_devices(match[2], known),)
        else:
            flat.append(_devices(term, known))
    if flat and servers:
        raise ValueError(
            f"{flat[0]} is not in a server, as others are; write 1x({flat[0]}) for its own server"
        )
    if flat:
        yield None, tuple(flat)


def _split(text: str) -> list[str]:
    """The parts between the plus signs that stand in no brackets."""
    parts = [part.strip() for part in re.split(r"\+(?![^()]*\))", text)]
    if not all(parts):
        raise ValueError("one of its parts is empty; write 2xRTX3090+host, for example")
    return parts


def _count(text: str | None) -> int:
    count = int(text or 1)
    if not count:
        raise ValueError("0 devices: leave that part out")
    return count


def _devices(text: str, known: Mapping[str, DeviceSpec]) -> _Devices:
    text, at, word = text.partition("@")
    match = re.fullmatch(r"(?:(\d{1,9})\s*[xX*]\s*)?([^:()]+?)\s*(?::(.*))?", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a number of devices and their kind, as in 2xRTX3090")
    name, memory = match[2], match[3]
    is_host = plain_name(name) == "host" and "host" not in known
    kind = HOST_KIND if is_host else find_kind(name, known)
    memory_bytes = None if memory is None else _memory_bytes(memory)
    slot = link_kind(word.strip()) if at else None
    if slot is not None and slot.family != "pcie":
        raise ValueError(f"{slot.word} cannot follow a card; write it after the comma")
    return _Devices(_count(match[1]), kind, "host" if is_host else kind, memory_bytes, slot)


def _memory_bytes(text: str) -> int:
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([kmgt]i?b)\s*", text.casefold())
    if match is None or match[2] not in UNITS:
        raise ValueError(f"{text.strip()!r} is not a memory size, such as 64GB in host:64GB")
    return int(Decimal(match[1]) * UNITS[match[2]])


def find_kind(name: str, known: Mapping[str, DeviceSpec]) -> str:
    """The device kind of a name, in full or as `_short_names` has it; case and dashes go."""
    # Of several boards the one counts with which all others begin: H100-80GB before H100-80GB-PCIe.
    boards = _kinds_named(name, known)
    for kind in boards:
        if all(plain_name(other).startswith(plain_name(kind)) for other in boards):
            return kind
    hint = instead_of(name, sorted(known), "placegap instances")
    raise ValueError(
        f"there is no device kind {name!r}{hint}{' ' if hint.endswith('?') else '; '}{OTHER_KINDS}"
    )


OTHER_KINDS = "--devices FILE states other kinds, and host is a CPU"


def _kinds_named(name: str, known: Iterable[str]) -> list[str]:
    """The kinds that a name may mean: the one that it names in full, else all whose boards fit."""
    wanted = plain_name(name)
    exact = [kind for kind in known if plain_name(kind) == wanted]
    return exact[:1] or [kind for kind in known if wanted in _short_names(kind)]


def listed_devices(text: str, known: Iterable[str]) -> tuple[str, list[str]] | None:
    """The counts of ``4xV100`` or ``2x8xH100``, and the kinds that it may mean, or None."""
    match = re.fullmatch(r"\s*((?:\d{1,9}\s*[xX*]\s*){0,2})([^+:@(),]+?)\s*", text)
    kinds = [] if match is None else _kinds_named(match[2], known)
    return None if match is None or not kinds else (match[1], kinds)


def _short_names(kind: str) -> set[str]:
    """A kind without its boards, one after the other, and without its series, in plain letters."""
    names = [kind]
    while board := BOARD.fullmatch(names[-1]):
        names.append(board[1])
    names += [SERIES.sub("", name, count=1) for name in names if SERIES.match(name)]
    return {plain_name(name) for name in names}


def _entries(
    servers: Sequence[Sequence[_Devices]], known: Mapping[str, DeviceSpec], *, numbered: bool
) -> Iterator[dict[str, Any]]:
    """Entries of devices, whose names are their kinds, with numbers where there are several."""
    for number, parts in enumerate(servers):
        server = f"s{number}"
        several = {
            part.label
            for part in parts
            if sum(other.count for other in parts if other.label == part.label) > 1
        }
        next_number = dict.fromkeys((part.label for part in parts), 0)
        for part in parts:
            begin = next_number[part.label]
            next_number[part.label] = begin + part.count
            stem = f"{server}." * numbered + part.label
            count = range(begin, begin + part.count)
            yield {
                "names": tuple(f"{stem}-{k}" if part.label in several else stem for k in count),
                "kind": part.kind,
                **(
                    {}
                    if part.memory_bytes is None  # else it is what is free
                    else {"memory_bytes": part.memory_bytes, "reserved_bytes": 0}
                ),
                "is_host": known[part.kind].is_cpu,
                **({"server": server} if numbered else {}),
                **({} if part.slot is None else {"slot": part.slot}),
            }


def _joined(
    entries: Sequence[Mapping[str, Any]],
    known: Mapping[str, DeviceSpec],
    links: Mapping[str, LinkKind],
    grouped: bool,
) -> Iterator[dict[str, Any]]:
    """The links in the servers, and those between them."""
    servers: dict[str, list[Mapping[str, Any]]] = {}
    for entry in entries:
        servers.setdefault(entry.get("server", ""), []).append(entry)
    network = links.get("network")
    largest = max(sum(len(entry["names"]) for entry in parts) for parts in servers.values())
    local = [link for role, link in links.items() if role != "network"]
    local += [entry["slot"] for entry in entries if "slot" in entry]
    if largest > 1 and not local and (grouped or network is None):
        what = "the devices of a server" if grouped else "its devices"
        raise ValueError(f"what joins {what}? Add a kind of link: {', '.join(LINK_KINDS[:7])}")
    if grouped and len(servers) > 1 and network is None:
        raise ValueError(f"what joins the servers? Add a kind of link: {', '.join(LINK_KINDS[7:])}")
    if network is not None and not grouped:
        if local:
            raise ValueError(
                f"{network.word} joins servers, but none are named; write 2x4xT4 or 1x(2xT4)+1x(P4)"
            )
        yield network.entry(all_to_all="all")
        return
    for parts in servers.values():
        yield from _in_server(parts, known, links, alone=not grouped)
    if network is not None and len(servers) > 1:
        for group in _rails(network, list(servers.values())):
            yield network.entry(all_to_all=group)


def _in_server(
    parts: Sequence[Mapping[str, Any]],
    known: Mapping[str, DeviceSpec],
    links: Mapping[str, LinkKind],
    *,
    alone: bool,
) -> Iterator[dict[str, Any]]:
    """NVLink between the cards that have it, PCIe between all others."""
    everyone = tuple(name for entry in parts for name in entry["names"])
    if len(everyone) < 2:
        return
    nvlink, pcie = links.get("nvlink"), links.get("pcie")
    if nvlink is None and pcie is not None and not any("slot" in entry for entry in parts):
        yield pcie.entry(all_to_all="all" if alone else everyone)
        return
    rates = {entry["kind"]: known[entry["kind"]].nvlink_bytes_per_s for entry in parts}
    measured = nvlink is not None and nvlink.family == "measured"
    no_rate = [e for e in parts if (e["is_host"] if measured else rates[e["kind"]] is None)]
    without = list(parts) if nvlink is None else no_rate
    open_ends = [e for e in without if pcie is None and "slot" not in e]
    if open_ends and not (any("slot" in e for e in parts) and all(e["is_host"] for e in open_ends)):
        word = "" if nvlink is None else f"{nvlink.word} "
        raise ValueError(
            f"{open_ends[0]['kind']} has no {word}link: add pcie3, pcie4 or pcie5 for it"
        )
    fast = tuple(name for entry in parts if entry not in without for name in entry["names"])
    if nvlink is not None and len(fast) > 1:
        least = min((rate for rate in rates.values() if rate is not None), default=None)
        two = {"all_to_all": fast, "measured": True}
        yield two if measured else nvlink.entry(least, all_to_all=fast)
    if without:
        MAX_LINKS.check(len(everyone) ** 2 - len(fast) ** 2, "by PCIe, a server")
        ends = {name: entry.get("slot", pcie) for entry in parts for name in entry["names"]}
        yield {"matrix_bytes_per_s": dict(_slots(ends, fast)), "latency_ns": LATENCIES_NS["pcie"]}


def _slots(
    ends: Mapping[str, LinkKind | None], fast: Sequence[str]
) -> Iterator[tuple[str, dict[str, int | None]]]:
    """What each device sends to the others, but among `fast`: the slower end counts."""
    # A host whose link is not stated is the other end of all of them.
    for one, own in ends.items():
        others = [other for other in ends if other != one and not {one, other} <= {*fast}]
        yield (
            one,
            {
                other: min(
                    end.bandwidth_bytes_per_s or 0 for end in (own, ends[other]) if end is not None
                )
                for other in others
            },
        )


def _rails(
    network: LinkKind, servers: Sequence[Sequence[Mapping[str, Any]]]
) -> Iterator[tuple[str, ...]]:
    """Devices of several servers that a network joins."""
    hosts = [_names(parts, hosts=True) for parts in servers]
    cards = [_names(parts, hosts=False) for parts in servers]
    if network.family == "ethernet":
        yield tuple((mine or others)[0] for mine, others in zip(hosts, cards, strict=True))
        return
    ends = [others or mine for mine, others in zip(hosts, cards, strict=True)]
    for number in range(max(map(len, ends))):
        rail = tuple(names[number] for names in ends if number < len(names))
        if len(rail) > 1:
            yield rail


def _names(parts: Sequence[Mapping[str, Any]], *, hosts: bool) -> tuple[str, ...]:
    return tuple(name for entry in parts if entry["is_host"] == hosts for name in entry["names"])
