"""Running a study: every arm with every seed, each once, here or on a cluster.

A run is a function of its recipe, its data and its budget. Its folder is named by a hash of them:
what is finished is not done again, in this study or in another one with the same arm, and what was
interrupted goes on where it was. Where two studies come to the same run, or to the same text, one
waits for the other.
"""

import json
import os
import pickle
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from bertwright import __version__
from bertwright.axes import did_you_mean
from bertwright.errors import MissingExtra, UserError
from bertwright.files import digests, full_disk_named, held, read_findings, write_text
from bertwright.model.folder import is_model
from bertwright.recipes import Recipe
from bertwright.recipes.loading import import_plugin, imported_plugins, read
from bertwright.side_by_side import side_by_side
from bertwright.studies.corpora import Corpus, Written
from bertwright.studies.measures import Measure, Trained
from bertwright.studies.study import Study
from bertwright.text.shards import Data
from bertwright.text.tokenizers import TokenizerChoice
from bertwright.training.pretraining import pretrain
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.run_folder import fitted

Say = Callable[[str], None]
Found = dict[str, dict[int, dict[str, float]]]
Packed = tuple[tuple[Path, ...], bytes]
"""Figures by arm and seed; a figure is named by its measure and itself."""


@dataclass(frozen=True)
class Prepared:
    """A corpus and the data set that was made of it."""

    corpus: Written
    data: Path


@dataclass(frozen=True)
class Run:
    """One arm with one seed: all that a process, here or elsewhere, needs to know.

    Its weights are needed until it is measured, and where another arm starts from them (``kept``).
    """

    recipe: Recipe
    prepared: Prepared
    folder: Path
    seconds: float | None
    measures: Mapping[str, Measure]
    start_from: Path | None = None
    kept: bool = False

    @property
    def done(self) -> bool:
        """Whether nothing has to be trained."""
        if is_model(self.folder):
            return True
        return not self.kept and self._known().keys() >= set(self._stated().values())

    def __call__(self) -> dict[str, float]:
        """Train and measure, as far as that has not been done."""
        with _alone(self.folder.parent.parent, self.folder.name):
            if not self.done:
                self._train()
            return self._measured()

    def _train(self) -> None:
        pretrain(
            self.recipe,
            self.prepared.data,
            self.folder,
            budget=self.seconds,
            resume=True,
            quiet=True,
            start_from=self.start_from,
        )
        shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)

    def _measured(self) -> dict[str, float]:
        known, seed = self._known(), self.recipe.seed
        trained = Trained(self.folder, Data.open(self.prepared.data), self.prepared.corpus, seed)
        figures: dict[str, float] = {}
        for name, stated in self._stated().items():
            if stated not in known:
                known[stated] = dict(self.measures[name].of(trained))
                write_text(self._file, json.dumps(known, indent=1) + "\n")
            figures |= {f"{name}.{figure}": value for figure, value in known[stated].items()}
        return figures

    @property
    def _file(self) -> Path:
        return self.folder / "measures.json"

    def _known(self) -> dict[str, dict[str, float]]:
        """The figures that were found before, by what they hang on."""
        return read_findings(self._file)

    def _stated(self) -> dict[str, str]:
        """By measure, what its figures hang on."""
        return {
            name: _hash(
                [
                    measure.model_dump(mode="json", exclude={"arms"}),
                    [digests(path) for path in measure.reads(self.prepared.corpus)],
                ]
            )
            for name, measure in self.measures.items()
        }


def run_study(
    study: Study,
    out: Path,
    *,
    data: Path | None = None,
    processes: int = 1,
    on: str | None = None,
    say: Say = lambda line: None,
) -> Found:
    """Everything that a study needs, and what it found.

    ``data`` is a data set in the place of the study's corpus; ``processes`` runs so many at once;
    ``on`` "ray" gives the runs to a Ray cluster that shares the folder.

    Errors: UserError for what does not fit together; Interrupted after a signal.
    """
    if study.equal.seconds is not None:
        if on is not None:
            raise UserError(
                f"study {study.name}: equal time is measured on one machine that does nothing "
                f"else: leave out --on, or set equal to tokens or operations"
            )
        processes = 1  # what runs beside an arm takes of its time
    for arm in study.arms:
        read(study.arms[arm].recipe)  # says whether there is one, before any text is prepared
    prepared = prepared_for(study.corpus, study.tokenizer, out) if data is None else _given(data)
    for name, measure in study.measures.items():
        if missing := measure.missing(prepared.corpus):
            raise UserError(f"study {study.name}: measures.{name}: {missing}")
    runs = plan(study, prepared, out)
    _require_fitting(study, runs, Data.open(prepared.data))
    found: Found = {arm: {} for arm in study.arms}
    for arms in _in_turn(study):
        places = [(arm, seed) for seed in range(study.seeds) for arm in arms]
        results = _perform([runs[place] for place in places], processes, on)
        for count, (number, figures) in enumerate(results, 1):
            arm, seed = places[number]
            _require_figures(study, arm, figures)
            found[arm][seed] = figures
            say(f"{count} of {len(places)}: {arm}, seed {seed}")
    return {arm: dict(sorted(by_seed.items())) for arm, by_seed in found.items()}


def _require_fitting(study: Study, runs: Mapping[tuple[str, int], Run], data: Data) -> None:
    """Refuse what the data or the measures do not allow, before anything is trained."""
    for arm in study.arms:
        run = runs[arm, 0]
        if run.done:
            continue
        recipe = fitted(run.recipe, data)
        RecipeBatches(recipe, data).plan()
        for measure in run.measures.values():
            measure.check(recipe, data)


def _require_figures(study: Study, arm: str, figures: Mapping[str, float]) -> None:
    """Refuse what is expected of an arm and is no figure of it, before others are trained."""
    for expectation in study.expected:
        other = expectation.its or expectation.measure
        for own, name in ((expectation.arm, expectation.measure), (expectation.other, other)):
            if own == arm and name not in figures:
                raise UserError(
                    f"study {study.name}: expected: arm {arm} has no figure {name!r}"
                    f"{did_you_mean(name, figures)}"
                )


def plan(study: Study, prepared: Prepared, out: Path) -> dict[tuple[str, int], Run]:
    """The runs of a study, by arm and seed."""
    data = Data.open(prepared.data)
    runs: dict[tuple[str, int], Run] = {}
    for arms in _in_turn(study):
        for arm in arms:
            for seed in range(study.seeds):
                first = study.arms[arm].start_from
                before = runs[first, seed].folder if first is not None else None
                runs[arm, seed] = _run(study, arm, seed, prepared, data, before, out)
    return runs


def _run(
    study: Study,
    arm: str,
    seed: int,
    prepared: Prepared,
    data: Data,
    before: Path | None,
    out: Path,
) -> Run:
    recipe = study.recipe(arm, seed, data.manifest.tokenizer.kind)
    steps = study.equal.steps_of(recipe, data.tokenizer.size)
    if steps is not None:
        recipe = recipe.model_copy(update={"steps": steps})
    deciding = {
        "recipe": {n: v for n, v in recipe.as_dict().items() if n not in ("name", "source")},
        "data": data.manifest.hash,
        "seconds": study.equal.seconds,
        "before": before.name if before else None,
        "version": __version__,
    }
    folder = out / "runs" / _hash(deciding)
    measures = {n: m for n, m in study.measures.items() if m.arms is None or arm in m.arms}
    kept = arm in {other.start_from for other in study.arms.values()}
    seconds = study.equal.seconds
    return Run(recipe, prepared, folder, seconds, measures, before, kept=kept)


def prepared_for(corpus: Corpus, tokenizer: TokenizerChoice, out: Path) -> Prepared:
    """The data set of a corpus, made where it is not there yet."""
    stated = corpus.stated()
    written = Written(out / "corpora" / _hash(stated))
    done = written.folder / "written"
    name = _hash([stated, tokenizer.model_dump(mode="json")])
    data = out / "data" / name
    with _alone(out, written.folder.name):
        if not done.is_file():
            shutil.rmtree(written.folder, ignore_errors=True)
            with full_disk_named(written.folder):
                corpus.write(written)
            done.touch()
        if not data.is_dir():
            corpus.prepare(written, tokenizer, out / "tokenizers" / name, data)
    return Prepared(written, data)


@contextmanager
def _alone(out: Path, name: str) -> Generator[None]:
    """One process at a time does what has this name, whatever study it is of."""
    turn = out / "turns" / name
    turn.mkdir(parents=True, exist_ok=True)
    with held(turn, wait=True):
        yield


def _given(data: Path) -> Prepared:
    return Prepared(Written(data), data)


def _in_turn(study: Study) -> Iterator[list[str]]:
    """The arms in groups: those that start from another one after that one."""
    done: set[str] = set()
    while len(done) < len(study.arms):
        ready = [
            name
            for name, arm in study.arms.items()
            if name not in done and (arm.start_from is None or arm.start_from in done)
        ]
        if not ready:
            raise UserError(f"study {study.name}: arms start from each other in a circle")
        yield ready
        done |= set(ready)


def _perform(
    runs: Sequence[Run], processes: int, on: str | None
) -> Iterator[tuple[int, dict[str, float]]]:
    """The numbers of runs and their figures, as they become known."""
    if on == "ray":
        yield from enumerate(_on_ray(runs))
    elif processes > 1:
        yield from side_by_side([partial(_call, *each) for each in _packed(runs)], processes)
    else:
        yield from side_by_side(runs, 1)


def _on_ray(runs: Sequence[Run]) -> Iterator[dict[str, float]]:
    """The same on the cluster that RAY_ADDRESS names, or on one of this machine alone."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray") from error
    if not ray.is_initialized():
        ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=False)
    remote: Any = ray.remote(max_retries=1)(_call)
    for reference in [remote.remote(*each) for each in _packed(runs)]:
        yield ray.get(reference)


def _packed(runs: Sequence[Run]) -> Iterator[Packed]:
    """Runs for another process, each behind the plugins whose choices it may hold."""
    return ((imported_plugins(), pickle.dumps(run)) for run in runs)


def _call(plugins: tuple[Path, ...], run: bytes) -> dict[str, float]:
    for plugin in plugins:
        import_plugin(plugin)
    return pickle.loads(run)()


def _hash(deciding: Any) -> str:
    return sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:16]
