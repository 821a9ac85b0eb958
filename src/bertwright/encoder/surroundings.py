"""What a sublayer that mixes places is told of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from bertwright.encoder.positions import Relation, Rotation
from bertwright.encoder.runs import Runs
from bertwright.encoder.visibility import View, Way


@dataclass(frozen=True, eq=False)
class Across:
    """What a decoder reads from: states (B, S, D) of an encoder, and which of them are seen."""

    states: Tensor
    view: View


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Who sees whom, and where everything stands, for one pass.

    ``key_rotation`` is that of keys which are not the same places as the queries: what is
    remembered comes before them. ``runs`` are those that a recurrent mixer reads, by the way.
    """

    view: View
    rotation: Rotation | None = None
    key_rotation: Rotation | None = None
    relation: Relation | None = None
    runs: Mapping[Way, Runs] = field(default_factory=dict[Way, Runs])
    across: Across | None = None

    @property
    def bias(self) -> Tensor | None:
        """What every attention adds to its scores, broadcast to (B, H, L, L)."""
        return None if self.relation is None else self.relation.bias
