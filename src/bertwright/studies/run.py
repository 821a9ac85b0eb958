"""Run a study: every arm with every seed, in this process, in parallel, or on a Ray cluster.

A run depends only on its recipe, its data and its budget, and its folder is named by a hash of
these. Finished runs are therefore reused, also by other studies with the same arm, and interrupted
runs resume. If two studies need the same run or the same text, one waits for the other. The figures
of a study's runs are also in its ``runs.json``, so that it continues on another machine without
their folders.
"""

import json
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
from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.core.files import (
    explain_full_disk,
    file_digests,
    file_lock,
    read_results,
    write_text,
)
from bertwright.core.ray_cluster import connect
from bertwright.core.verdicts import look_sizes
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import TokenizerConfig
from bertwright.models.saving import is_model_folder
from bertwright.recipes import Recipe
from bertwright.recipes.loading import import_plugin, imported_plugins, read_recipe
from bertwright.runtime.parallel import run_parallel
from bertwright.studies.corpora import Corpus, CorpusFolder
from bertwright.studies.measures import Measure, TrainedArm
from bertwright.studies.study import Study, StudyResults
from bertwright.studies.verdict import all_metrics, evaluate
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.pretraining.run_folder import fit_recipe_to_data
from bertwright.training.pretraining_batches import PretrainingBatches

RUNS_FILE = "runs.json"
"""Figures of the runs of a study by the name of their folder, beside its results."""

Log = Callable[[str], None]
PickledRun = tuple[tuple[Path, ...], bytes]
"""Plugins to import, and a pickled run."""


@dataclass(frozen=True)
class PreparedCorpus:
    """A corpus with its data set."""

    corpus: CorpusFolder
    data: Path


@dataclass(frozen=True)
class ArmRun:
    """One arm with one seed, and everything that a process needs to train and measure it.

    ``keeps_weights`` is True if another arm starts from its weights, which are needed until then.
    """

    recipe: Recipe
    prepared: PreparedCorpus
    folder: Path
    seconds: float | None
    measures: Mapping[str, Measure]
    start_from: Path | None = None
    keeps_weights: bool = False

    @property
    def is_done(self) -> bool:
        """True if nothing is left to train."""
        if is_model_folder(self.folder):
            return True
        return not self.keeps_weights and self.stored_metrics().keys() >= set(
            self._measure_hashes().values()
        )

    def __call__(self) -> dict[str, float]:
        """Train and measure what is not done yet."""
        with _exclusive(self.folder.parent.parent, self.folder.name):
            if not self.is_done:
                self._train()
            return self._measure()

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

    def _measure(self) -> dict[str, float]:
        stored, seed = self.stored_metrics(), self.recipe.seed
        trained = TrainedArm(
            self.folder, Dataset.open(self.prepared.data), self.prepared.corpus, seed
        )
        metrics: dict[str, float] = {}
        for name, key in self._measure_hashes().items():
            if key not in stored:
                stored[key] = dict(self.measures[name].compute(trained))
                write_text(self._measures_file, json.dumps(stored, indent=1) + "\n")
            metrics |= {f"{name}.{metric}": value for metric, value in stored[key].items()}
        return metrics

    def restore(self, stored: Mapping[str, Mapping[str, float]]) -> None:
        """Store metrics of this run from another machine, by the hash of their inputs."""
        if not self._measures_file.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self._measures_file, json.dumps(stored, indent=1) + "\n")

    @property
    def _measures_file(self) -> Path:
        return self.folder / "measures.json"

    def stored_metrics(self) -> dict[str, dict[str, float]]:
        """Return the metrics computed earlier, by the hash of their inputs."""
        return read_results(self._measures_file)

    def _measure_hashes(self) -> dict[str, str]:
        """Return the hash of the inputs of each measure."""
        return {
            name: _hash(
                [
                    measure.model_dump(mode="json", exclude={"arms"}),
                    [file_digests(path) for path in measure.input_files(self.prepared.corpus)],
                ]
            )
            for name, measure in self.measures.items()
        }


def run_study(
    study: Study,
    output: Path,
    *,
    data: Path | None = None,
    max_seeds: int | None = None,
    num_processes: int = 1,
    backend: str | None = None,
    log: Log = lambda line: None,
) -> StudyResults:
    """Run everything that a study needs; return its results.

    ``data`` is a data set to use instead of the study's corpus. With ``max_seeds`` the study begins
    with three seeds, and adds three more for the arms of undecided expectations, up to
    ``max_seeds``. ``num_processes`` runs are trained in parallel; with ``backend`` "ray" they run
    on a Ray cluster that shares the folder.

    Raises UserError for incompatible settings, and Interrupted after a signal.
    """
    if study.equal.seconds is not None:
        if backend is not None:
            raise UserError(
                f"study {study.name}: equal time needs a machine without other work: leave out "
                f"--on, or set equal to tokens or flops"
            )
        num_processes = 1  # parallel runs would slow each other down
    for arm in study.arms.values():
        read_recipe(arm.recipe)  # raises before any text is prepared
    prepared = _prepare_arms(study, data, output)
    runs = plan_runs(study, prepared, output, max_seeds or study.seeds)
    runs_file = output / study.name / RUNS_FILE
    stored: Mapping[str, Any] = read_results(runs_file)
    for run in runs.values():
        if run.folder.name in stored:
            run.restore(stored[run.folder.name])
    _require_compatible(study, runs)
    results: StudyResults = {arm: {} for arm in study.arms}
    arms = set(study.arms)
    for num_seeds in [study.seeds] if max_seeds is None else look_sizes(max_seeds):
        for group in _arms_in_order(study):
            keys = [(a, s) for s in range(num_seeds) for a in group if a in arms]
            keys = [(arm, seed) for arm, seed in keys if seed not in results[arm]]
            finished = _execute([runs[key] for key in keys], num_processes, backend)
            for count, (index, metrics) in enumerate(finished, 1):
                arm, seed = keys[index]
                _require_metrics(study, arm, metrics)
                results[arm][seed] = metrics
                if all(results.values()):
                    _require_shown(study, results)
                log(f"{count} of {len(keys)}: {arm}, seed {seed}")
        arms = set() if max_seeds is None else _undecided_arms(study, results, max_seeds)
    finished = {run.folder.name: run.stored_metrics() for run in runs.values()}
    content = {**stored, **{name: metrics for name, metrics in finished.items() if metrics}}
    write_text(runs_file, json.dumps(content, indent=1) + "\n")
    return {arm: dict(sorted(by_seed.items())) for arm, by_seed in results.items()}


def _undecided_arms(study: Study, results: StudyResults, max_seeds: int) -> set[str]:
    """Return the arms that need more seeds, with the arms that they start from."""
    names: set[str] = set()
    for verdict in evaluate(study, results, max_seeds):
        if not verdict.verdict.is_decided:
            names |= {verdict.expectation.arm, str(verdict.expectation.baseline)}
    for group in reversed(list(_arms_in_order(study))):
        names |= {study.arms[arm].start_from or arm for arm in group if arm in names}
    return names


def _prepare_arms(study: Study, data: Path | None, output: Path) -> dict[str, PreparedCorpus]:
    """Return the data set of every arm; UserError if an input of a measure is missing."""
    prepared: dict[str, PreparedCorpus] = {}
    for name, arm in study.arms.items():
        if data is not None and (arm.corpus or arm.tokenizer):
            raise UserError(
                f"study {study.name}: arms.{name} has a text of its own: leave out --data"
            )
        prepared[name] = (
            prepare_corpus(*study.text_of(name), output) if data is None else _existing_data(data)
        )
        for measure_name, measure in study.measures.items():
            if missing := measure.missing_input(prepared[name].corpus):
                raise UserError(f"study {study.name}: measures.{measure_name}: {missing}")
    return prepared


def _require_compatible(study: Study, runs: Mapping[tuple[str, int], ArmRun]) -> None:
    """Raise UserError, before training, for arms that the data or the measures do not support."""
    for arm in study.arms:
        run = runs[arm, 0]
        if run.is_done:
            continue
        data = Dataset.open(run.prepared.data)
        recipe = fit_recipe_to_data(run.recipe, data)
        PretrainingBatches(recipe, data).check_data()
        for measure in run.measures.values():
            measure.check(recipe, data)


def _require_metrics(study: Study, arm: str, metrics: Mapping[str, float]) -> None:
    """Raise UserError for expected metrics that are missing, before other arms are trained."""
    for expectation in study.expected:
        other = expectation.other_measure or expectation.measure
        for name, metric in ((expectation.arm, expectation.measure), (expectation.baseline, other)):
            if name == arm and metric not in metrics:
                raise UserError(
                    f"study {study.name}: expected: arm {arm} has no metric {metric!r}"
                    f"{did_you_mean(metric, metrics)}"
                )


def _require_shown(study: Study, results: StudyResults) -> None:
    """Raise UserError for a displayed metric that no arm has, before other seeds are trained."""
    metrics = all_metrics(results)
    for name in study.shown:
        if name not in metrics:
            raise UserError(
                f"study {study.name}: shown: no arm has a metric {name!r}"
                f"{did_you_mean(name, metrics)}"
            )


def plan_runs(
    study: Study, prepared: Mapping[str, PreparedCorpus], output: Path, num_seeds: int
) -> dict[tuple[str, int], ArmRun]:
    """Return the runs of a study by arm and seed."""
    runs: dict[tuple[str, int], ArmRun] = {}
    for arms in _arms_in_order(study):
        for arm in arms:
            for seed in range(num_seeds):
                parent = study.arms[arm].start_from
                start_from = runs[parent, seed].folder if parent is not None else None
                runs[arm, seed] = _plan_run(study, arm, seed, prepared[arm], start_from, output)
    return runs


def _plan_run(
    study: Study,
    arm: str,
    seed: int,
    prepared: PreparedCorpus,
    start_from: Path | None,
    output: Path,
) -> ArmRun:
    data = Dataset.open(prepared.data)
    recipe = study.recipe(arm, seed, data.manifest.tokenizer.kind)
    steps = study.equal.num_steps(recipe, data.tokenizer.vocab_size)
    factor, seconds = study.arms[arm].cost, study.equal.seconds
    if steps is not None:
        recipe = recipe.model_copy(update={"steps": max(1, round(factor * steps))})
    if seconds is not None:
        seconds *= factor
    inputs = {
        "recipe": {n: v for n, v in recipe.as_dict().items() if n not in ("name", "source")},
        "data": data.manifest.hash,
        "seconds": seconds,
        "before": start_from.name if start_from else None,
        "version": __version__,
    }
    folder = output / "runs" / _hash(inputs)
    measures = {n: m for n, m in study.measures.items() if m.arms is None or arm in m.arms}
    keeps_weights = arm in {other.start_from for other in study.arms.values()}
    return ArmRun(recipe, prepared, folder, seconds, measures, start_from, keeps_weights)


def prepare_corpus(corpus: Corpus, tokenizer: TokenizerConfig, output: Path) -> PreparedCorpus:
    """Return the data set of a corpus, which is created on first use."""
    identity = corpus.identity()
    corpus_folder = CorpusFolder(output / "corpora" / _hash(identity))
    marker = corpus_folder.folder / "written"
    name = _hash([identity, tokenizer.model_dump(mode="json")])
    data = output / "data" / name
    with _exclusive(output, corpus_folder.folder.name):
        if not marker.is_file():
            shutil.rmtree(corpus_folder.folder, ignore_errors=True)
            with explain_full_disk(corpus_folder.folder):
                corpus.write(corpus_folder)
            marker.touch()
        if not data.is_dir():
            corpus.prepare(corpus_folder, tokenizer, output / "tokenizers" / name, data)
    return PreparedCorpus(corpus_folder, data)


@contextmanager
def _exclusive(output: Path, name: str) -> Generator[None]:
    """Hold a lock on a name, shared by all studies in a folder."""
    lock = output / "turns" / name
    lock.mkdir(parents=True, exist_ok=True)
    with file_lock(lock, wait=True):
        yield


def _existing_data(data: Path) -> PreparedCorpus:
    return PreparedCorpus(CorpusFolder(data), data)


def _arms_in_order(study: Study) -> Iterator[list[str]]:
    """Yield groups of arms; an arm that starts from another arm comes after it."""
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


def _execute(
    runs: Sequence[ArmRun], num_processes: int, backend: str | None
) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield the indices of finished runs with their metrics, in the order in which they finish."""
    if backend == "ray":
        yield from enumerate(_execute_on_ray(runs))
    elif num_processes > 1:
        yield from run_parallel(
            [partial(_unpickle_and_run, *pickled) for pickled in _pickle_runs(runs)],
            num_processes,
        )
    else:
        yield from run_parallel(runs, 1)


def _execute_on_ray(runs: Sequence[ArmRun]) -> Iterator[dict[str, float]]:
    """Yield the metrics of runs on the cluster of RAY_ADDRESS, or on a local one."""
    ray = connect()
    remote: Any = ray.remote(max_retries=1)(_unpickle_and_run)
    for reference in [remote.remote(*pickled) for pickled in _pickle_runs(runs)]:
        yield ray.get(reference)


def _pickle_runs(runs: Sequence[ArmRun]) -> Iterator[PickledRun]:
    """Return runs in a form that another process can load, with the plugins that they may need."""
    return ((imported_plugins(), pickle.dumps(run)) for run in runs)


def _unpickle_and_run(plugins: tuple[Path, ...], run: bytes) -> dict[str, float]:
    for plugin in plugins:
        import_plugin(plugin)
    return pickle.loads(run)()


def _hash(contents: Any) -> str:
    return sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()[:16]
