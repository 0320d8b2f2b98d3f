"""What to say of a name that does not exist: the names that are near it, or those there are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import islice

SIGNS = "_. -"
"""What separates the parts of names."""

ALIKE = 0.65
"""So much of two names is the same, if one may have been meant for the other."""

BEHIND = 0.2
"""Names that are so much less like the one asked for than the nearest are left out."""

MOST_NEAR = 3
"""So many near names are offered at most."""

MOST_COMPARED = 2_000
"""So many of the known names are compared: a cluster may have 100,000 devices."""

LONGEST_LIST = 160
"""Longer lists of names are not printed: a command that prints them is named, if there is one."""


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """The known names that are like a name, the nearest first; case and signs do not count.

    Of names that are equally like it, those of more like length come first.

    Examples
    --------
    >>> near_names("resnet_5", ["resnet50", "vgg19", "ResNet-152"])
    ['resnet50', 'ResNet-152']
    >>> near_names("H100", ["T4", "H100-80GB"])
    ['H100-80GB']
    """
    wanted, compared = _plain(name), islice(known, MOST_COMPARED)
    ranked = sorted(
        (-_likeness(wanted, each), abs(len(each) - len(name)), at, each)
        for at, each in enumerate(compared)
    )
    least = max(ALIKE, -ranked[0][0] - BEHIND) if ranked else ALIKE
    return [each for likeness, *_, each in ranked if -likeness >= least][:MOST_NEAR]


def _likeness(wanted: str, name: str) -> float:
    """0 to 1: of the names, or less a little of `wanted` and how the name begins."""
    plain = _plain(name)
    if len(wanted) > 1 and wanted in plain:
        return 1.0
    head = _plain(re.split(f"[{SIGNS}]", name)[0])
    whole = SequenceMatcher(None, wanted, plain).ratio()
    return max(whole, 0.9 * SequenceMatcher(None, wanted, head).ratio())


def instead_of(name: str, known: Iterable[str], listed_by: str = "") -> str:
    """The end of a sentence such as "there is no method 'heff'": what to choose instead.

    Parameters
    ----------
    name : str
        What was asked for.
    known : iterable of str
        What there is.
    listed_by : str
        A command that lists what there is, for lists too long for a line.

    Examples
    --------
    >>> instead_of("heff", ["heft", "cp-sat"])
    "; did you mean 'heft'?"
    >>> instead_of("magic", ["heft", "cp-sat"])
    '; choose from heft, cp-sat'
    """
    names = list(known)
    near = near_names(name, names)
    if near:
        quoted = [repr(each) for each in near]
        return f"; did you mean {' or '.join(filter(None, (', '.join(quoted[:-1]), quoted[-1])))}?"
    listed = ", ".join(names)
    if len(listed) > LONGEST_LIST:
        return f"; '{listed_by}' lists them" if listed_by else ""
    return f"; choose from {listed}"


def _plain(name: str) -> str:
    return name.casefold().translate({ord(sign): None for sign in SIGNS})
