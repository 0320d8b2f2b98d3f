"""Methods made without the text of the paper that they are named after.

The papers' tables compare with them; they are no methods of the package. In a checkout ``--module
placegap.experiments.research.stand_ins`` registers them.
"""

from placegap.experiments.research.stand_ins import fastt, getf_milp, mp_dps, slicegraph

__all__ = ["fastt", "getf_milp", "mp_dps", "slicegraph"]
