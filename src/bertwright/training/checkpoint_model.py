"""The model of a checkpoint of a pre-training run, which need not be finished."""

from pathlib import Path

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE, Tokenizer
from bertwright.models.model import Model
from bertwright.models.saving import RECIPE_FILE, load_model, load_recipe, load_tensors
from bertwright.training.callbacks.ema import ExponentialMovingAverage
from bertwright.training.callbacks.feature_redraw import FeatureRedraw
from bertwright.training.callbacks.progressive_stacking import ProgressiveStacking
from bertwright.training.checkpoints import MANIFEST_FILE, callback_group, open_checkpoint
from bertwright.training.distillation_loss import DISTILLATION_PREFIX

PARAMETER_GROUPS = (callback_group(ExponentialMovingAverage.name), "parameters")
"""Groups with the parameters of the model; the average comes first."""

BUFFER_GROUP = callback_group(FeatureRedraw.name)
DEPTH_GROUP = callback_group(ProgressiveStacking.name)


def is_checkpoint(path: Path) -> bool:
    """Return whether a folder is a checkpoint ``RUN/checkpoints/step-N``."""
    run = run_of_checkpoint(path)
    return (path / MANIFEST_FILE).is_file() and all(
        (run / name).is_file() for name in (RECIPE_FILE, TOKENIZER_FILE)
    )


def run_of_checkpoint(checkpoint: Path) -> Path:
    """Return the folder of the run of a checkpoint."""
    return checkpoint.absolute().parent.parent


def load_checkpoint_model(path: Path) -> tuple[Model, Tokenizer]:
    """Return the model of a checkpoint in float32, and its tokenizer.

    Parameters are the moving average if the run has ``ema_decay``, as in the final model.
    Errors: UserError if the checkpoint is damaged, is of a phase with fewer blocks than the model,
    or does not fit the recipe of its run.
    """
    checkpoint = open_checkpoint(path)
    if checkpoint is None:
        raise UserError(f"{path} is a damaged checkpoint: use another one of the run")
    run = run_of_checkpoint(path)
    tokenizer = Tokenizer.load(run)
    model = Model.build(load_recipe(run), tokenizer.vocab_size, tokenizer)
    depth = checkpoint.load_tensors(DEPTH_GROUP).get("depth")
    if depth is not None and depth < len(model.encoder.blocks):
        raise UserError(
            f"{path} has trained {depth} of {len(model.encoder.blocks)} blocks: use a later "
            f"checkpoint of the run"
        )
    stored = next(filter(None, map(checkpoint.load_tensors, PARAMETER_GROUPS)))
    tensors = {n: t for n, t in stored.items() if not n.startswith(DISTILLATION_PREFIX)}
    tensors |= dict(model.named_buffers()) | checkpoint.load_tensors(BUFFER_GROUP)
    load_tensors(model, tensors, str(path))
    return model.eval(), tokenizer


def load_model_or_checkpoint(path: Path) -> tuple[Model, Tokenizer]:
    """Return the model of a model folder, a checkpoint, or a name on the Hub, in float32.

    Errors: UserError if there is none, or if it is damaged.
    """
    return load_checkpoint_model(path) if is_checkpoint(path) else load_model(path)
