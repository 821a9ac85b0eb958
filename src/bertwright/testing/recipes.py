"""The contract of a recipe."""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import yaml

from bertwright.batches.batch import Batch
from bertwright.models.costs import num_parameters_by_part
from bertwright.models.model import Model
from bertwright.models.saving import load_model, save_model
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.modules.token_tensors import TokenInfo
from bertwright.objectives.schedule import group_at_step
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.recipes import Recipe
from bertwright.testing.laws import TOLERANCE, failing_with, require, require_close
from bertwright.testing.toy import (
    NUM_SEQUENCES,
    TOY_LENGTH,
    TOY_VOCAB_SIZE,
    toy_arrays,
    toy_recipe,
    toy_tokenizer,
    toy_tokens,
)
from bertwright.training.checkpoints import CheckpointManager, open_checkpoint
from bertwright.training.clock import Progress, TrainingClock, every_n_steps
from bertwright.training.loop import TrainingJob, train
from bertwright.training.pretraining.job import pretraining_job
from bertwright.training.step_batch import StepBatch

NUM_STEPS = 3


def check_recipe(name_or_path: str | Path, *overrides: str) -> None:
    """Check the requirements of a recipe at toy size on random text.

    The recipe is unchanged after writing and reading. Its initial parameters depend only on the
    seed, and each is counted and has a role. Padding and other sequences of the batch do not change
    hidden states. Three steps have finite losses, and give the same bits if the run is resumed
    after the first step. A model is unchanged after saving and loading.

    ``overrides``, such as a smaller attention window, are applied last. Errors: AssertionError with
    one sentence.
    """
    with failing_with(f"recipe {name_or_path}"):
        recipe = toy_recipe(name_or_path, *overrides)
        stored = Recipe.model_validate(yaml.safe_load(recipe.as_yaml()))
        require(stored == recipe, f"recipe {recipe.name} changes when it is stored and read")
        model = Model.build(recipe, TOY_VOCAB_SIZE)
        check_parameters(model)
        check_padding(model)
        check_training(recipe)
        check_saving(recipe)


def check_parameters(model: Model) -> None:
    """Check the initial parameters of a model, their number and their roles."""
    again, roles = Model.build(model.recipe, TOY_VOCAB_SIZE), get_parameter_roles(model)
    for (path, parameter), other in zip(model.named_parameters(), again.parameters(), strict=True):
        require(torch.equal(parameter, other), f"the initial {path} depends on more than the seed")
        require(path in roles, f"{path} has no role, so no optimiser updates it")
        require(
            (roles[path].kind in ("matrix", "table")) == (parameter.ndim == 2),
            f"{path} has {parameter.ndim} dimensions and the role {roles[path].kind}",
        )
        require(
            parameter.shape[0] % roles[path].num_parts == 0,
            f"{path} does not divide into {roles[path].num_parts} parts",
        )
    counted = sum(num_parameters_by_part(model.recipe, TOY_VOCAB_SIZE).values())
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    require(
        counted == num_parameters,
        f"its parts have {counted:,} parameters and the model {num_parameters:,}",
    )


@torch.no_grad()
def check_padding(model: Model) -> None:
    """Check that padding and other sequences of the batch do not change hidden states."""
    token_ids, length = toy_tokens(3), 15
    document_ids = torch.zeros(3, TOY_LENGTH, dtype=torch.int64)
    document_ids[1, length:] = -1
    token_info = TokenInfo(torch.arange(TOY_LENGTH)[None], document_ids=document_ids)
    states, alone = model(token_ids, token_info), model(token_ids[:1])
    require_close(
        states[0], alone[0], "a hidden state depends on the other sequences of the batch", TOLERANCE
    )
    require_close(
        states[1, :length],
        model(token_ids[1:2, :length])[0],
        "a hidden state depends on padding",
        TOLERANCE,
    )


def check_training(recipe: Recipe) -> None:
    """Check that three training steps work, and that a resumed run gives the same result."""
    with TemporaryDirectory() as folder, failing_with("it does not train"):
        job = _training_job(recipe, Path(folder))
        train(job)
        first = open_checkpoint(Path(folder) / f"step-{1:08d}")
        require(first is not None, "it wrote no checkpoint")
        resumed = _training_job(recipe, Path(folder) / "resumed")
        train(resumed, first)
    expected, actual = job.parameters.state_dict(), resumed.parameters.state_dict()
    for path, tensor in expected.items():
        require(
            torch.equal(actual[path], tensor),
            "resumed after its first step, it ends with other parameters",
        )


def check_saving(recipe: Recipe) -> None:
    """Check that a model is unchanged after saving and loading."""
    tokenizer = toy_tokenizer()
    model = Model.build(recipe, TOY_VOCAB_SIZE, tokenizer)
    with TemporaryDirectory() as folder:
        save_model(Path(folder), model, tokenizer)
        loaded, loaded_tokenizer = load_model(Path(folder))
    require(
        loaded.recipe == recipe and loaded_tokenizer.hash == tokenizer.hash,
        "it is not the recipe of the model that is loaded",
    )
    for path, tensor in model.state_dict().items():
        require(
            torch.equal(loaded.state_dict()[path], tensor),
            f"{path} changes when the model is saved and loaded",
        )
    with torch.no_grad():
        require(
            torch.equal(loaded(toy_tokens(2)), model(toy_tokens(2))),
            "the loaded model computes other hidden states",
        )


def _training_job(recipe: Recipe, folder: Path) -> TrainingJob[Batch]:
    model = Model.build(recipe, TOY_VOCAB_SIZE)
    parameters = MasterParameters(model, get_parameter_roles(model), "float32")

    def get_batch(progress: Progress) -> StepBatch[Batch]:
        groups = recipe.objective_schedule(progress.phase)
        turn = groups.index(group_at_step(groups, recipe.seed, progress.step))
        batch = toy_arrays(
            recipe,
            progress.phase,
            progress.step,
            turn,
            continues_previous=bool(recipe.encoder.memory_length) and progress.step > 0,
        )
        counts = {name: float(targets.weights.sum()) for name, targets in batch.targets.items()}
        return StepBatch([batch], counts, NUM_SEQUENCES, batch.num_tokens)

    return pretraining_job(
        model,
        parameters,
        TrainingClock(NUM_STEPS, [phase.fraction for phase in recipe.phases]),
        get_batch=get_batch,
        checkpoints=CheckpointManager(folder, num_kept=NUM_STEPS),
        checkpoint_trigger=every_n_steps(1),
        dump_folder=folder,
    )
