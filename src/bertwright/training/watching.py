"""Held-out text during a run: evaluations, and the warning that nothing is being learned."""

import time
from collections.abc import Callable

from bertwright.errors import UserError
from bertwright.model.model import Model
from bertwright.recipes import Recipe
from bertwright.text.shards import Data
from bertwright.training.clock import Clock, Place, times
from bertwright.training.evaluation import (
    TOKENS_AT_END,
    TOKENS_DURING,
    WORD_BYTES,
    HeldOut,
    evaluate,
    held_out,
    masked_name,
    next_items,
)
from bertwright.training.loop import Evaluation
from bertwright.training.ranking import USERS_DURING
from bertwright.training.reporting import figure_name

PLATEAU = 0.05
"""Nats below the unigram entropy within which a masked loss has not left it."""

WARN_AFTER = 0.8
"""Progress after which that is a reason to warn."""

MOST_OF_BUDGET = 0.1
"""The share of a budget of seconds that evaluations may take."""

SAVING_SECONDS = 1.2
"""For the weights and the picture."""

LARGER_SIZES = ("mini", "small", "medium", "base", "large", "xlarge", "xxlarge")
"""Those that have a smaller one below them."""

WORDS_IN_TOKENS = WORD_BYTES // 3
"""About how many tokens the bits per byte are measured on."""


class HeldOutWatch:
    """Evaluates the questions of the phase that a run is in.

    A data set with too little held-out text for one row is not evaluated; that is said once.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: Data,
        model: Model,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self.warnings: list[str] = []
        self._recipe = recipe
        self._data = data
        self._model = model
        self._clock = clock
        self._say = say
        self._questions: dict[int, HeldOut | None] = {}
        self._last = len(recipe.phases) - 1
        self._seconds = 0.0
        self._ended = 0.0
        self._warned = False

    def due(self, before: Place, after: Place) -> bool:
        """Nine times in a run, less often where that would take too much of a budget."""
        if not times(9)(before, after):
            return False
        since = self._clock.elapsed() - self._ended
        return self._clock.budget is None or self._seconds < MOST_OF_BUDGET * since

    def __call__(self, place: Place) -> Evaluation:
        """The figures of a phase; the score is its first loss, where the last phase asks alike."""
        questions = self._of_phase(place.phase)
        if questions is None:
            return Evaluation(None, {})
        began = time.monotonic()
        figures = questions.figures(self._model, self._model.embedding.device)
        figures |= next_items(
            self._model, self._recipe, place.phase, self._data, most_users=USERS_DURING
        )
        self._seconds = time.monotonic() - began
        self._ended = self._clock.elapsed()
        self._clock.closing = SAVING_SECONDS + self._seconds_at_the_end()
        if place.progress >= WARN_AFTER:
            self._warn_of_plateau(place.phase, figures)
        first = next(name for name in questions.objectives if name not in questions.idle)
        alike = self._asked_of(place.phase) == self._asked_of(self._last)
        score = figures[f"{figure_name(first)}_loss"] if alike else None
        return Evaluation(score, {f"heldout_{name}": value for name, value in figures.items()})

    def at_the_end(self) -> dict[str, float]:
        """The figures of the trained model, on more text than during the run if there is time."""
        try:
            figures = evaluate(self._model, self._data, self._recipe, self._part_at_the_end())
        except UserError:
            return {}
        self._warn_of_plateau(self._last, figures)
        return figures

    def warn(self, warning: str) -> None:
        """Say it, and keep it for the end."""
        self.warnings.append(warning)
        self._say(f"warning: {warning}")

    def _seconds_at_the_end(self) -> float:
        """How long :meth:`at_the_end` takes, by what an evaluation took."""
        tokens = self._part_at_the_end() * (TOKENS_AT_END + WORDS_IN_TOKENS)
        return self._seconds * tokens / TOKENS_DURING

    def _part_at_the_end(self) -> float:
        """The part of the text to read at the end: all of it, unless a budget is too short."""
        whole = self._seconds * (TOKENS_AT_END + WORDS_IN_TOKENS) / TOKENS_DURING
        budget = self._clock.budget
        if budget is None or whole <= MOST_OF_BUDGET * budget:
            return 1.0
        return TOKENS_DURING / TOKENS_AT_END

    def _remedy(self) -> str:
        """Return what to change in a run that has learned too little."""
        longer = "more steps" if self._clock.budget is None else "a longer --budget"
        system, _, size = self._recipe.name.rpartition("-")
        if system and size in LARGER_SIZES:
            return f"give it {longer}, or train a smaller size of {system}"
        return f"give it {longer}, or smaller batches (batch_tokens)"

    def _asked_of(self, phase: int) -> tuple[object, ...]:
        """What figures of a phase depend on beside the parameters."""
        recipe = self._recipe
        return recipe.objectives_of(phase), recipe.assembly_of(phase), recipe.num_blocks_of(phase)

    def _of_phase(self, phase: int) -> HeldOut | None:
        if phase not in self._questions:
            try:
                found = held_out(self._recipe, phase, self._data, TOKENS_DURING)
            except UserError as error:
                self._say(f"nothing is evaluated: {error}")
                found = None
            if found is not None and found.idle:
                self.warn(
                    f"the held-out text has no target for {', '.join(found.idle)}: that is not "
                    f"evaluated; prepare it with a larger --heldout"
                )
            self._questions[phase] = found
        return self._questions[phase]

    def _warn_of_plateau(self, phase: int, figures: dict[str, float]) -> None:
        name = masked_name(self._recipe.objectives_of(phase))
        if name is None or self._warned or "unigram_entropy" not in figures:
            return
        loss, entropy = figures[f"{figure_name(name)}_loss"], figures["unigram_entropy"]
        if loss > entropy - PLATEAU:
            warning = (
                f"the held-out masked loss ({loss:.3f}) has not left the unigram entropy "
                f"({entropy:.3f}): the model has not yet learned more than token frequencies; "
                f"{self._remedy()}"
            )
            self._warned = True
            self.warn(warning)
