"""Parameter sharing between blocks: its modes, and the sharing of a trained model."""

from collections.abc import Mapping

import torch
from torch import nn

from bertwright.compression.parameter_sharing import ParameterSharing
from bertwright.compression.vocabulary.narrower_embeddings import factorise_embeddings
from bertwright.models.costs import num_parameters_by_part
from bertwright.models.model import Model
from experiments.analyses.expecting import ExpectedValue, expect_equal
from experiments.compressions.check import CheckResults, CompressionCheck, MeasuredValue
from experiments.compressions.toy_models import ToyModels

LAYERS = 4
MODES = {"none": (4, 4), "attention": (1, 4), "feed-forward": (4, 1), "all": (1, 1)}
"""The numbers of attentions and feed-forwards by mode."""


def run(toy: ToyModels) -> CheckResults:
    """Compare the four modes in pre-training, and share the blocks of a fine-tuned model."""
    yield from _parameter_counts(toy)
    yield from _shared_equals_unrolled(toy)
    yield from _merge_is_exact(toy)
    losses: dict[str, list[float]] = {mode: [] for mode in MODES}
    for seed in toy.seeds:
        for mode, mode_losses in losses.items():
            recipe = toy.recipe(_sharing_change(mode), seed=seed)
            result = toy.pretrain(f"c12-{mode}-{seed}", recipe)
            mode_losses.append(result.metrics["masked_loss"])
    yield MeasuredValue("masked loss, nothing shared", losses["none"])
    for mode in ("attention", "feed-forward", "all"):
        yield MeasuredValue(f"masked loss, {mode} shared", losses[mode], "nothing", losses["none"])
    shared = toy.compress(toy.fine_tuned("sentiment"), "albert-share", with_baseline=True)
    yield MeasuredValue(
        "accuracy, shared blocks", shared.scores, "labels only", shared.baseline_scores
    )
    yield MeasuredValue("accuracy, teacher", [shared.teacher_score])


def _sharing_change(mode: str) -> str:
    return f"encoder.depth.sharing={mode}"


def _parameter_counts(toy: ToyModels) -> CheckResults:
    """Check the parameters of blocks by mode."""
    width = 64
    attention = 4 * width * (width + 1) + 2 * width
    feed_forward = 8 * width * width + 5 * width + 2 * width
    size = toy.data.tokenizer.vocab_size
    for mode, (attentions, feed_forwards) in MODES.items():
        count = num_parameters_by_part(toy.recipe(_sharing_change(mode)), size)["blocks"]
        expected = attentions * attention + feed_forwards * feed_forward
        yield expect_equal(f"parameters of blocks, {mode}", count, expected, 0)


def _shared_equals_unrolled(toy: ToyModels) -> CheckResults:
    """Check a stack with sharing against one with equal, separate blocks.

    The states are equal, and shared gradients are the sums of separate ones.
    """
    size = toy.data.tokenizer.vocab_size
    shared = Model.build(toy.recipe(_sharing_change("all")), size).encoder.double()
    unrolled = Model.build(toy.recipe(), size).encoder.double()
    unrolled.load_state_dict(shared.state_dict())
    token_ids = torch.randint(5, size, (3, 12), generator=torch.Generator().manual_seed(0))
    states = [encoder(token_ids) for encoder in (shared, unrolled)]
    values, expected = (s.detach().numpy() for s in states)
    yield expect_equal("states, shared against unrolled", values, expected, 1e-12)
    for encoder_states in states:
        encoder_states.square().sum().backward()
    yield _gradients(dict(shared.named_parameters()), dict(unrolled.named_parameters()))


def _merge_is_exact(toy: ToyModels) -> CheckResults:
    """Check that sharing equal blocks and factorising low-rank embeddings changes no state."""
    size, rank = toy.data.tokenizer.vocab_size, 8
    model = Model.build(toy.recipe("encoder.norm.placement=post"), size)
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(rank, 64, generator=generator)
    for block in model.encoder.blocks:
        block.load_state_dict(model.encoder.blocks[0].state_dict())
    for table in model.encoder.embeddings.parameters():
        if table.ndim == 2:
            table.data = torch.randn(len(table), rank, generator=generator) @ basis
    small = factorise_embeddings(ParameterSharing().share_blocks(model), rank + 1)
    token_ids = torch.randint(5, size, (3, 12), generator=generator)
    with torch.no_grad():
        states = [m.encoder.double()(token_ids).numpy() for m in (small, model)]
    yield expect_equal("states, equal blocks, low-rank embeddings", states[0], states[1], 1e-4)


def _gradients(
    shared: Mapping[str, nn.Parameter], unrolled: Mapping[str, nn.Parameter]
) -> ExpectedValue:
    max_error = 0.0
    for name, parameter in shared.items():
        if not name.startswith("blocks.0."):
            continue
        assert parameter.grad is not None, "every parameter of a block is used"
        grads = [unrolled[name.replace("blocks.0.", f"blocks.{n}.")].grad for n in range(LAYERS)]
        total = torch.stack([grad for grad in grads if grad is not None]).sum(0)
        error = float((parameter.grad - total).abs().max() / total.abs().max())
        max_error = max(max_error, error)
    return expect_equal("shared gradients, against the sum over blocks", max_error, 0, 1e-10)


CHECK = CompressionCheck(
    "C12",
    "sharing",
    "What does it cost to share attention, feed-forward, or both, from the start or later?",
    "Lan et al. 2020",
    run,
)
