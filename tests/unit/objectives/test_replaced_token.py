"""Replaced token detection and its generator (Clark et al. 2020, section 2)."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bertwright.models.model import DeviceBatch, Model
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.objectives.generator import GeneratorLM
from bertwright.objectives.model_output import GeneratorInput, ModelOutput
from bertwright.testing.toy import TOY_VOCAB_SIZE, randomise, toy_arrays, toy_sequences
from toy_recipes import toy


@pytest.fixture(scope="module")
def model() -> Model:
    model = Model.build(toy("electra"), TOY_VOCAB_SIZE)
    randomise(model, 0.3)
    return model


@pytest.fixture(scope="module")
def batch(model: Model) -> DeviceBatch:
    return DeviceBatch(toy_arrays(model.recipe, 0))


def generator_input(batch: DeviceBatch, step: int = 0, first: int = 0) -> GeneratorInput:
    rng = DropoutRng.for_step(0, step)
    return GeneratorInput(batch.token_ids, batch.token_info, None, rng, first)


@torch.no_grad()
def test_tokens_are_replaced_at_targets_and_scored_against_the_originals(model, batch) -> None:
    generated, head = model.recipe.objectives["generated"], model.heads["generated"]
    targets = batch.targets["generated"]
    token_ids, loss = generated.replace_tokens(targets, generator_input(batch), head)
    is_target = torch.zeros(batch.token_ids.numel(), dtype=torch.bool)
    scored = targets.weights > 0 if targets.weights is not None else slice(None)
    is_target[targets.positions[scored]] = True
    is_changed = (token_ids != batch.token_ids).flatten()
    assert not (is_changed & ~is_target).any()
    logits = generated.generator_logits(targets, generator_input(batch), head)
    losses = F.cross_entropy(logits.float(), targets.labels, reduction="none")
    weights = torch.ones_like(losses) if targets.weights is None else targets.weights
    assert loss.sum.item() == pytest.approx((losses * weights).sum().item(), rel=1e-4)
    assert float(loss.num_correct) == float(((logits.argmax(-1) == targets.labels) * weights).sum())
    again, _ = generated.replace_tokens(targets, generator_input(batch), head)
    assert torch.equal(again, token_ids)
    other, _ = generated.replace_tokens(targets, generator_input(batch, step=1), head)
    assert not torch.equal(other, token_ids)
    # Random numbers belong to the position in the whole step, not in a part of it.
    shifted, _ = generated.replace_tokens(targets, generator_input(batch, first=64), head)
    assert not torch.equal(shifted, token_ids)


@torch.no_grad()
def test_samples_follow_the_softmax(model) -> None:
    head = model.heads["generated"]
    width = model.recipe.objectives["generated"].generator_config(model.recipe.encoder).width
    state = torch.randn(1, width, generator=torch.Generator().manual_seed(0))
    number = 20_000
    samples = head.sample_tokens(
        state.expand(number, width), DropoutRng.for_step(0, 3), torch.arange(number)
    )
    logits = head.output.logits(state, head.encoder.embeddings.table)
    probabilities = logits.float().softmax(-1)[0].numpy()
    counts = np.bincount(samples.numpy(), minlength=TOY_VOCAB_SIZE)
    deviations = (counts - number * probabilities) / np.sqrt(number * probabilities)
    chi_square = float((deviations**2).sum())
    freedom = TOY_VOCAB_SIZE - 1
    assert abs(chi_square - freedom) < 5 * math.sqrt(2 * freedom)


@torch.no_grad()
def test_every_real_token_is_judged_by_whether_it_differs(model, batch) -> None:
    """Equation of the loss: binary cross entropy over all tokens; a correct sample is original."""
    objective, head = model.recipe.objectives["replaced-token"], model.heads["replaced-token"]
    targets = batch.targets["replaced-token"]
    original = torch.from_numpy(toy_sequences(model.recipe).token_ids).long()
    assert torch.equal(targets.labels.view_as(original), original)
    token_ids = original.clone()
    token_ids[:, 3:6] = (token_ids[:, 3:6] + 1) % TOY_VOCAB_SIZE
    states = model.encoder(token_ids, batch.token_info)
    output = ModelOutput(token_ids, states, model.embedding_table, None)
    loss = objective.compute_loss(targets, output, head)
    logits = head.logit(F.gelu(head.dense(states))).squeeze(-1).flatten()
    probabilities = torch.sigmoid(logits.double())
    is_replaced = (token_ids != original).flatten()
    likelihood = torch.where(is_replaced, probabilities, 1 - probabilities)
    is_real = (batch.token_info.document_ids >= 0).flatten()
    assert loss.count == pytest.approx(float(is_real.sum()))
    assert loss.sum.item() == pytest.approx(-likelihood.log()[is_real].sum().item(), rel=1e-4)
    is_correct = (probabilities > 0.5) == is_replaced
    assert float(loss.num_correct) == float(is_correct[is_real].sum())
    by_class = objective.logits(targets, output, head)
    torch.testing.assert_close(by_class.softmax(-1)[:, 1].double(), probabilities)
    classes = objective.true_labels(original.flatten(), token_ids.flatten())
    assert torch.equal(classes, is_replaced.long())


def test_generator_is_narrower_and_shares_the_embeddings(model) -> None:
    generator, encoder = model.heads["generated"].encoder, model.encoder
    objective, config = model.recipe.objectives["generated"], model.recipe.encoder
    assert objective.generator_config(config).width == round(objective.width * config.width)
    assert len(generator.blocks) == len(encoder.blocks)
    assert generator.blocks[0] is not encoder.blocks[0]
    for part in ("tokens", "segments", "positions"):
        assert getattr(generator.embeddings, part) is getattr(encoder.embeddings, part)
    assert generator.embeddings.sum.norm is encoder.embeddings.sum.norm
    shallow = GeneratorLM(width=0.5, layers=1).generator_config(config)
    assert len(shallow.depth.sublayer_orders()) == 1
    assert shallow.width == config.width // 2


@torch.no_grad()
def test_a_diverged_generator_samples_tokens_of_the_vocabulary(model) -> None:
    head = model.heads["generated"]
    width = model.recipe.objectives["generated"].generator_config(model.recipe.encoder).width
    samples = head.sample_tokens(torch.full((3, width), math.nan), None, torch.arange(3))
    assert ((samples >= 0) & (samples < TOY_VOCAB_SIZE)).all()
