"""Rows of several assemblies in one run, and of several languages.

Which rows a step reads is a function of its place alone. Every source of rows has a *quota*: of
each round of turns so many are its own, spread by a permutation of the round; and its own turns go
through its rows epoch after epoch, each in an order of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator, model_validator

from bertwright.errors import UserError
from bertwright.examples.assembly.source import Assembly, RowSource
from bertwright.examples.coordinates import Coordinates, Need, Relation, Rows
from bertwright.randomness import Counters, Permutation, key, round_by_round
from bertwright.text.languages import smoothed
from bertwright.text.selected import languages_apart, translations_apart

if TYPE_CHECKING:
    from bertwright.text.shards import Split
    from bertwright.text.tokenizers import Specials

STEPS_IN_ROUND = 10_000
"""Where the rows of a step are alike: how finely shares are kept."""


class Mixture(Assembly):
    """Rows of several assemblies, ``parts`` by name, all of this one's length.

    ``shares`` are those of the parts among the rows that are read (where it names none, they are
    alike). ``alpha`` reads the languages of each part apart, and pairs of languages where its rows
    are translations, by their shares of its rows raised to ``alpha`` (Lample and Conneau 2019,
    section 3.1, who count sentences): 1 reads everything equally often, less reads small languages
    more often. A language without text for a single row is left out; ``languages`` names those that
    are read where it is not all. ``alike``: all rows of a step are of one part and language, as in
    XLM; else each row is drawn by itself, as in XLM-R.
    """

    kind: Literal["mixture"] = "mixture"
    parts: dict[str, Assembly] = Field(min_length=1)
    shares: dict[str, float] = Field(default_factory=dict[str, float])
    alpha: float | None = Field(default=None, ge=0.0, le=1.0)
    languages: tuple[str, ...] = ()
    alike: bool = False

    @field_validator("parts")
    @classmethod
    def _parts_that_mix(
        cls, parts: dict[str, Assembly], info: ValidationInfo
    ) -> dict[str, Assembly]:
        for name, part in parts.items():
            if isinstance(part, Mixture) or part.in_order or part.directions > 1:
                raise ValueError(
                    f"{name} is {part.kind}, whose rows have an order of their own: choose "  # type: ignore[attr-defined]
                    f"another assembly"
                )
        length = {"length": info.data.get("length", 128)}
        return {name: part.model_copy(update=length) for name, part in parts.items()}

    @model_validator(mode="after")
    def _a_share_for_each(self) -> Self:
        if self.shares and (
            self.shares.keys() != self.parts.keys() or min(self.shares.values()) <= 0
        ):
            raise ValueError(f"shares needs a positive number for each of: {', '.join(self.parts)}")
        if self.languages and self.alpha is None:
            raise ValueError("languages needs alpha, by which they are read apart (1: as they are)")
        return self

    @property
    def needs(self) -> frozenset[Need]:
        own = frozenset[Need](() if self.alpha is None else {"languages"})
        return own.union(*(part.needs for part in self.parts.values()))

    @property
    def relations(self) -> frozenset[Relation]:
        of_parts = [part.relations for part in self.parts.values()]
        return frozenset[Relation]().union(*of_parts) if all(of_parts) else frozenset()

    @property
    def parted_by(self) -> str | None:
        return next((key for part in self.parts.values() if (key := part.parted_by)), None)

    @property
    def evaluated(self) -> "Mixture":
        return self.model_copy(update={"parts": {n: p.evaluated for n, p in self.parts.items()}})

    def plan(self, split: "Split", specials: "Specials", seed: int) -> "MixedRows":
        sources: list[RowSource] = []
        shares: list[float] = []
        labels: list[str] = []
        for name, part in self.parts.items():
            sized = part.model_copy(update={"length": self.length})
            planned = self._planned(sized, name, split, specials, seed)
            sources += planned.values()
            labels += planned
            of_part = self.shares.get(name, 1.0)
            sizes = [source.num_rows for source in planned.values()]
            exponent = 1.0 if self.alpha is None else self.alpha
            shares += [of_part * share for share in smoothed(sizes, exponent)]
        return MixedRows(tuple(sources), np.array(shares), tuple(labels), self.alike, self.length)

    def _planned(
        self, part: Assembly, name: str, split: "Split", specials: "Specials", seed: int
    ) -> dict[str, RowSource]:
        """The rows of one part, by language where these are read apart."""
        if self.alpha is None:
            return {name: part.plan(split, specials, seed)}
        if split.languages is None:
            raise UserError(
                "assembly.alpha reads languages apart, and the data do not say them: prepare them "
                "with en=FILE or --language-column"
            )
        unknown = set(self.languages).difference(split.language_names)
        if unknown:
            raise UserError(
                f"assembly.languages: the data have no {min(unknown)}, but "
                f"{', '.join(sorted(split.language_names))}"
            )
        planned: dict[str, RowSource] = {}
        refused: UserError | None = None
        apart = translations_apart if "translations" in part.needs else languages_apart
        for own in apart(split, self.languages):
            try:
                planned[own.name] = part.plan(own, specials, seed)
            except UserError as error:
                refused = error
        if not planned:
            raise refused or UserError(
                f"the {split.name} split holds nothing for assembly.parts.{name}: prepare some "
                f"translations, as en,de=FILE,FILE, or leave it out with assembly.parts.{name}=null"
            )
        return planned


@dataclass(frozen=True, eq=False)
class MixedRows:
    """The rows of several sources, one after the other; ``shares`` (S,) and ``labels`` are theirs.

    Row ``index`` is of the first source if it is less than that one's number of rows, and so on.
    """

    sources: tuple[RowSource, ...]
    shares: NDArray[np.float64]
    labels: tuple[str, ...]
    alike: bool
    length: int

    @property
    def num_rows(self) -> int:
        return int(self.bounds[-1])

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """(S + 1,): the first row of each source, then the end."""
        return np.append(0, np.cumsum([source.num_rows for source in self.sources]))

    def source_of(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which source each row is of."""
        return np.searchsorted(self.bounds, index, side="right") - 1

    def rows(self, index: NDArray[np.int64], epoch: Counters) -> Rows:
        index, epoch = np.broadcast_arrays(index, epoch)
        source = self.source_of(index)
        found: list[tuple[NDArray[np.bool_], Rows]] = []
        for number in np.unique(source).tolist():
            mine = source == number
            within = index[mine] - self.bounds[number]
            found.append((mine, self.sources[number].rows(within, epoch[mine])))
        return found[0][1] if len(found) == 1 else _together(found, self.length)

    def read_at(
        self, seed: int, step: int, first_row: int, of_step: NDArray[np.int64], at_once: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which rows a step reads: index and epoch of those numbered ``of_step`` (B,) within it.

        ``first_row`` counts the rows of the steps before, ``at_once`` those of this one.
        """
        if self.alike:
            size = max(STEPS_IN_ROUND, len(self.sources))
            source, turn = self._turn(seed, np.full_like(of_step, step), size)
            return self._in_source(seed, source, turn * at_once + of_step)
        source, turn = self._turn(seed, first_row + of_step, self.num_rows)
        return self._in_source(seed, source, turn)

    def _turn(
        self, seed: int, number: NDArray[np.int64], size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Whose turn it is the ``number``-th time, and which of its own turns that is."""
        quotas = _quotas(self.shares, size)
        ends = np.cumsum(quotas)
        around, slot = np.divmod(number, size)
        place = round_by_round(partial(_order, size, seed, "turns"), around, slot)
        source = np.searchsorted(ends, place, side="right")
        return source, around * quotas[source] + place - (ends - quotas)[source]

    def _in_source(
        self, seed: int, source: NDArray[np.int64], turn: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The row of its source that is read in one of its turns, and in which epoch of it."""
        sizes = np.diff(self.bounds)
        epoch, place = np.divmod(turn, sizes[source])
        index = np.empty_like(place)
        for number in np.unique(source).tolist():
            mine, size = source == number, int(sizes[number])
            order = partial(_order, size, seed, f"rows {number}")
            index[mine] = round_by_round(order, epoch[mine], place[mine])
        return self.bounds[source] + index, epoch


def _quotas(shares: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """Whole parts of ``size`` by shares, at least 1 each: the largest remainders are rounded up."""
    wanted = size * shares / shares.sum()
    quotas = np.maximum(np.floor(wanted + 1e-9).astype(np.int64), 1)
    left = size - int(quotas.sum())
    for _ in range(left, 0):
        quotas[quotas.argmax()] -= 1
    quotas[np.argsort(quotas - wanted, kind="stable")[: max(left, 0)]] += 1
    return quotas


@lru_cache(maxsize=1024)
def _order(size: int, seed: int, purpose: str, around: int) -> Permutation:
    return Permutation(size, key(seed, "mixture", purpose, around))


def _together(parts: Sequence[tuple[NDArray[np.bool_], Rows]], length: int) -> Rows:
    """Rows of several assemblies as one batch: what one of them leaves out is spelled out."""
    num_rows = len(parts[0][0])

    def joined(
        arrays: Sequence[NDArray[Any] | None], otherwise: NDArray[Any] | int
    ) -> NDArray[np.int32]:
        grid = np.empty((num_rows, length), np.int32)
        for (mine, _), array in zip(parts, arrays, strict=True):
            grid[mine] = otherwise if array is None else array
        return grid

    said = {"position": np.arange(length), "segment": 0, "document": 0}
    coordinates = Coordinates()
    for field in fields(Coordinates):
        arrays = [getattr(rows.coordinates, field.name) for _, rows in parts]
        if any(array is not None for array in arrays):
            whole = joined(arrays, said.get(field.name, -1))
            coordinates = replace(coordinates, **{field.name: whole})
    relations = [(mine, rows.relation) for mine, rows in parts if rows.relation is not None]
    relation = None
    if len(relations) == len(parts):
        relation = np.empty(num_rows, np.int64)
        for mine, own in relations:
            relation[mine] = own
    pieces = joined([rows.pieces for _, rows in parts], 0)
    special = joined([rows.special for _, rows in parts], 0) > 0
    cuts = [rows.cut for _, rows in parts]
    cut = joined(cuts, 0) > 0 if any(own is not None for own in cuts) else None
    return Rows(pieces, coordinates, special, relation, cut)
