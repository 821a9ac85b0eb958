"""The runs of text that a recurrent mixer reads on end: from where a place sees nothing before it.

So neither padding nor another document is ever met while a run is read, whichever way.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bertwright.encoder.visibility import View, Way


@dataclass(frozen=True, eq=False)
class Runs:
    """How the places of a batch (B, L) lie in runs (R, T), each in the order of its reading.

    ``places`` (N,) int64 are the flat places that are read; the n-th of them is at ``offset[n]`` of
    run ``run[n]``. ``lengths`` (R,) are those of the runs, ``rows`` (R,) their rows; ``continued``
    (R,) bool says which go on from what is remembered of the rows before, ``last`` (B,) which run
    ends each row. ``whole`` is None, or the way in which every row is one run, so that nothing
    needs to be moved.
    """

    places: Tensor
    run: Tensor
    offset: Tensor
    lengths: Tensor
    rows: Tensor
    continued: Tensor
    last: Tensor
    whole: Way | None

    def read(self, x: Tensor) -> Tensor:
        """x (B, L, D) in runs (R, T, D); behind the end of a run stands 0."""
        if self.whole is not None:
            return x if self.whole == "forward" else x.flip(1)
        read = x.new_zeros(len(self.lengths), int(self.lengths.max()), x.shape[2])
        return read.index_put((self.run, self.offset), x.flatten(0, 1)[self.places])

    def written(self, x: Tensor, like: Tensor) -> Tensor:
        """What was made of runs, (R, T, H), at the places of rows ``like`` (B, L, D): (B, L, H),
        0 where nothing was read."""
        if self.whole is not None:
            return x if self.whole == "forward" else x.flip(1)
        rows = x.new_zeros(like.shape[0] * like.shape[1], x.shape[2])
        return rows.index_put((self.places,), x[self.run, self.offset]).view(
            *like.shape[:2], x.shape[2]
        )


def runs(view: View, way: Way, rows: Tensor) -> Runs:
    """The runs of rows (B, L), where places see one another as the view says.

    A place goes on from the nearest real place on its way if it sees that place, else it begins a
    run. What is remembered stands before the first place.
    """
    batch, length = rows.shape
    real = torch.ones(batch, length, dtype=torch.bool, device=rows.device)
    remembered = 0 if view.mask is None else view.mask.shape[-1] - length
    if view.real is not None:
        real = view.real[:, remembered:].expand(batch, -1)
    before = _neighbours(real, way)
    sees = (before >= -remembered) & (before < length) & real
    if view.mask is not None:
        at = (before + remembered).clamp(0, remembered + length - 1)
        mask = view.mask[:, 0].expand(batch, -1, -1)
        sees = sees & mask.gather(2, at[..., None]).squeeze(2)
    inside = (before >= 0) & (before < length)
    return _laid_out(real, real & ~(sees & inside), sees & ~inside, way)


def _neighbours(real: Tensor, way: Way) -> Tensor:
    """For every place (B, L) the real place before it on the way; -1 or L where there is none."""
    length = real.shape[1]
    place = torch.arange(length, device=real.device)
    if way == "forward":
        nearest = torch.where(real, place, -1).cummax(1).values
        return torch.nn.functional.pad(nearest[:, :-1], (1, 0), value=-1)
    nearest = torch.where(real, place, length).flip(1).cummin(1).values.flip(1)
    return torch.nn.functional.pad(nearest[:, 1:], (0, 1), value=length)


def _laid_out(real: Tensor, begins: Tensor, continued: Tensor, way: Way) -> Runs:
    batch, length = real.shape
    places = torch.arange(batch * length, device=real.device).view(batch, length)
    places = places[real] if way == "forward" else places.flip(1)[real.flip(1)]
    first = begins.flatten()[places]
    run = first.cumsum(0) - 1
    starts = first.nonzero().squeeze(1)
    end = torch.tensor([len(places)], device=real.device)
    lengths = torch.diff(torch.cat((starts, end)))
    offset = torch.arange(len(places), device=real.device) - starts[run]
    rows = places[starts] // length
    number = torch.arange(len(rows), device=real.device)
    last = rows.new_zeros(batch).scatter_reduce(0, rows, number, "amax")
    there = continued.flatten()[places[starts]]
    whole = way if len(rows) == batch and len(places) == real.numel() else None
    return Runs(places, run, offset, lengths, rows, there, last, whole)
