"""A small encoder whose compiled step is compared with the uncompiled one, in a process of its own:
``python -m bertwright.training.doctor.compiled_block POSITIONS``."""

import json
import sys
from dataclasses import asdict
from typing import cast, get_args

from bertwright.axes import Precision
from bertwright.machine.compiler import raised_by_compiler
from bertwright.machine.process import tune_process
from bertwright.notices import first_line
from bertwright.training.compilation.verdicts import Verdict

SYSTEMS = {"learned": "bert-tiny", "rotary": "modern-tiny"}
"""A system with each kind of positions."""

VOCABULARY_SIZE, SEQUENCES, LENGTH = 512, 8, 128


def compiled_block(positions: str, precision: Precision) -> Verdict:
    """Return whether the compiled step of a block agrees with the uncompiled one: its loss and the
    gradient of every parameter."""
    import torch

    from bertwright.encoder.block import Block
    from bertwright.encoder.encoder import Encoder
    from bertwright.encoder.initialisation import initialise
    from bertwright.encoder.kernels.noise import Noise
    from bertwright.encoder.roles import roles
    from bertwright.machine.compiler import tune_compiler
    from bertwright.objectives.objective import Loss
    from bertwright.optimisers.adam import AdamW
    from bertwright.optimisers.parameters import MasterParameters
    from bertwright.recipes import Recipe
    from bertwright.training.batch_source import StepBatch
    from bertwright.training.clock import Clock, Place
    from bertwright.training.compilation.agreement import verdict_on
    from bertwright.training.loop import Job

    changes = ("encoder.depth.layers=1", "encoder.dropout=0.1")
    recipe = Recipe.load(SYSTEMS[positions], *changes)
    encoder = Encoder(recipe.encoder, VOCABULARY_SIZE)
    initialise(encoder, recipe.encoder.initialisation, seed=0)
    parameters = MasterParameters(encoder, roles(encoder), precision)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCABULARY_SIZE, (SEQUENCES, LENGTH), generator=generator)
    target = torch.randn(SEQUENCES, LENGTH, recipe.encoder.width, generator=generator)

    def losses(tokens: torch.Tensor, place: Place) -> dict[str, Loss]:
        noise = Noise.of(0, place.step, 0, torch.device("cpu"))
        error = (encoder(tokens, noise=noise).float() - target).square().sum()
        return {"fit": Loss(error, target.numel(), torch.zeros(()))}

    batch = StepBatch([tokens], {"fit": float(target.numel())}, SEQUENCES, tokens.numel())
    job = Job(
        parameters=parameters,
        update=AdamW().build(parameters),
        batch=lambda place: batch,
        losses=losses,
        clock=Clock(1),
    )
    tune_compiler()
    for block in encoder.blocks:
        cast(Block, block).compile_parts()
    return verdict_on(job, Place(0, 0.0))


def main() -> None:
    """Print the verdict in every precision on a kind of positions, or why the compiler failed, each
    as a line of JSON."""
    tune_process()
    for precision in get_args(Precision):
        try:
            line = asdict(compiled_block(sys.argv[1], precision))
        except Exception as error:
            if not raised_by_compiler(error):
                raise
            line = {"failure": first_line(error)}
        print(json.dumps({"precision": precision, **line}), flush=True)


if __name__ == "__main__":
    main()
