"""Compare the compiled and uncompiled step of a small encoder, in a separate process.

Usage: ``python -m bertwright.training.diagnostics.hardware.compiled_block POSITIONS``.
"""

import json
import sys
from dataclasses import asdict
from typing import cast, get_args

from bertwright.core.config import Precision
from bertwright.core.messages import first_line
from bertwright.runtime.compiler import is_compiler_error
from bertwright.runtime.process import configure_process
from bertwright.training.compilation.agreement_cache import StepAgreement

RECIPES_BY_POSITIONS = {"learned": "bert-tiny", "rotary": "modern-tiny"}
"""A recipe for each kind of positions."""

VOCAB_SIZE, NUM_SEQUENCES, SEQUENCE_LENGTH = 512, 8, 128


def compare_compiled_block(positions: str, precision: Precision) -> StepAgreement:
    """Compare loss and gradients of the compiled and the uncompiled step of a block."""
    import torch

    from bertwright.encoder.block import Block
    from bertwright.encoder.encoder import Encoder
    from bertwright.modules.dropout_rng import DropoutRng
    from bertwright.modules.initialisation import initialise
    from bertwright.modules.parameter_roles import get_parameter_roles
    from bertwright.objectives.model_output import Loss
    from bertwright.optimisers.adam import AdamWConfig
    from bertwright.optimisers.master_parameters import MasterParameters
    from bertwright.recipes import Recipe
    from bertwright.runtime.compiler import configure_compiler
    from bertwright.training.clock import Progress, TrainingClock
    from bertwright.training.compilation.agreement import compare_compiled_step
    from bertwright.training.loop import TrainingJob
    from bertwright.training.step_batch import StepBatch

    overrides = ("encoder.depth.layers=1", "encoder.dropout=0.1")
    recipe = Recipe.load(RECIPES_BY_POSITIONS[positions], *overrides)
    encoder = Encoder(recipe.encoder, VOCAB_SIZE)
    initialise(encoder, recipe.encoder.initialisation, seed=0)
    parameters = MasterParameters(encoder, get_parameter_roles(encoder), precision)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCAB_SIZE, (NUM_SEQUENCES, SEQUENCE_LENGTH), generator=generator)
    target = torch.randn(NUM_SEQUENCES, SEQUENCE_LENGTH, recipe.encoder.width, generator=generator)

    def compute_losses(tokens: torch.Tensor, progress: Progress) -> dict[str, Loss]:
        rng = DropoutRng.for_step(0, progress.step, 0, torch.device("cpu"))
        error = (encoder(tokens, dropout_rng=rng).float() - target).square().sum()
        return {"fit": Loss(error, target.numel(), torch.zeros(()))}

    batch = StepBatch([tokens], {"fit": float(target.numel())}, NUM_SEQUENCES, tokens.numel())
    job = TrainingJob(
        parameters=parameters,
        optimiser=AdamWConfig().build(parameters),
        get_batch=lambda progress: batch,
        compute_losses=compute_losses,
        clock=TrainingClock(1),
    )
    configure_compiler()
    for block in encoder.blocks:
        cast(Block, block).compile_parts()
    return compare_compiled_step(job, Progress(0, 0.0))


def main() -> None:
    """Print one line of JSON per precision: the agreement, or the failure of the compiler."""
    configure_process()
    for precision in get_args(Precision):
        try:
            line = asdict(compare_compiled_block(sys.argv[1], precision))
        except Exception as error:
            if not is_compiler_error(error):
                raise
            line = {"failure": first_line(error)}
        print(json.dumps({"precision": precision, **line}), flush=True)


if __name__ == "__main__":
    main()
