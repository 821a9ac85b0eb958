"""The loss of skip-gram with negative sampling."""

import math

import pytest
import torch

from bertwright.models import Model
from bertwright.objectives.skip_gram import score_pairs
from toy_recipes import LENGTH, NUM_SEQUENCES, VOCABULARY, shaken, toy, toy_batch


def log_sigmoid(value: float) -> float:
    return -math.log1p(math.exp(-value))


def test_loss_follows_the_equation_of_the_paper():
    recipe = toy("word2vec", "objectives.skip-gram.window=2", "objectives.skip-gram.negatives=4")
    model, batch = shaken(Model.build(recipe, VOCABULARY), 0.5), toy_batch(recipe, 0)
    targets = batch.targets["skip-gram"]
    centres = model.encoder.embeddings.tokens.weight.detach().double()
    contexts = model.heads["skip-gram"].words.weight.detach().double()
    noise = targets.extra_inputs["noise_ids"].view(NUM_SEQUENCES, LENGTH, 3)
    assert (noise == noise[..., :1]).all()
    total, num_pairs, num_correct = 0.0, 0, 0
    for position, label, weight in zip(
        targets.positions.tolist(), targets.labels.tolist(), targets.weights.tolist(), strict=True
    ):
        if weight == 0:
            continue
        num_pairs += 1
        vector = centres[batch.token_ids.flatten()[position]]
        total -= log_sigmoid(float(vector @ contexts[label]))
        scores = (contexts[noise[position // LENGTH, :, 0]] @ vector).tolist()
        total -= 4 * sum(log_sigmoid(-score) for score in scores) / LENGTH
        # A pair is correct if it scores higher than the noise word of the same position.
        is_noise = int(noise[position // LENGTH, position % LENGTH, 0]) == label
        num_correct += not is_noise and float(vector @ contexts[label]) > scores[position % LENGTH]
    loss = model.losses(batch, recipe.objectives)["skip-gram"]
    assert loss.count == num_pairs > 0
    assert float(loss.sum.detach()) == pytest.approx(total, rel=1e-5)
    assert int(loss.num_correct) == num_correct
    assert 0 < num_correct < num_pairs


def test_flops_are_those_of_the_scores():
    recipe = toy("word2vec")
    vectors = torch.zeros(NUM_SEQUENCES, LENGTH, recipe.encoder.width)
    num_products = sum(map(torch.numel, score_pairs(vectors, vectors, vectors)))
    flops = recipe.objectives["skip-gram"].head_flops(recipe.encoder, VOCABULARY, LENGTH, {})
    assert flops * NUM_SEQUENCES * LENGTH == 2 * recipe.encoder.width * num_products
