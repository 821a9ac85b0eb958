"""Joint training of a teacher and a student with a smaller vocabulary."""

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from bertwright.batches.batch import Batch
from bertwright.compression.compress import num_parameters
from bertwright.compression.distillation.dual_vocabulary_model import DualVocabularyModel
from bertwright.compression.distillation.joint_vocabulary import (
    JointTraining,
    JointVocabularyDistillation,
    unmask,
)
from bertwright.compression.distillation.recipe import DistillationRecipe
from bertwright.compression.distillation.transfer.examples import example_texts
from bertwright.compression.vocabulary.pruning import prune_vocabulary
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.models.model import DeviceBatch, Model
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.training.clock import Progress
from bertwright.training.pretraining_batches import PretrainingBatches
from experiments.analyses.expecting import expect_equal, expect_same
from experiments.compressions.check import CheckResults, CompressionCheck, MeasuredValue
from experiments.compressions.toy_models import ToyModels

SMALL_VOCAB_SIZE = 100
NARROW = ("encoder.width=32", "encoder.mixer.head_width=8")


def run(toy: ToyModels) -> CheckResults:
    """Pre-train the student by itself, beside its teacher, and from embeddings learned there."""
    yield from _same_vocabulary_twice(toy)
    yield from _pruning_is_exact(toy)
    small_data = toy.retokenize("c4-data", WordPieceConfig(vocab_size=SMALL_VOCAB_SIZE))
    yield from _same_text_both_ways(toy, small_data)
    joint, mixed = (
        DistillationRecipe.load(name).distillation(toy.pretrained)
        for name in ("dual-vocabulary", "mixed-vocabulary")
    )
    losses: dict[str, list[float]] = {"alone": [], "joint": [], "from embeddings": []}
    for seed in toy.seeds:
        pretrain = partial(toy.pretrain, recipe=toy.recipe(*NARROW, seed=seed), data=small_data)
        embeddings = pretrain(f"c4-embeddings-{seed}", distillation=mixed).folder
        for name, arm_losses in losses.items():
            start = embeddings if name == "from embeddings" else None
            distillation = joint if name == "joint" else None
            result = pretrain(f"c4-{name}-{seed}", start_from=start, distillation=distillation)
            arm_losses.append(result.metrics["nats_per_masked_word"])
    for name in ("joint", "from embeddings"):
        yield MeasuredValue(f"nats per word, {name}", losses[name], "alone", losses["alone"])


def _same_vocabulary_twice(toy: ToyModels) -> CheckResults:
    """Check that a teacher with its own vocabulary twice has the loss of a masked model.

    With all words in its own tokens, and with all in its student's.
    """
    teacher, recipe, progress = toy.pretrained, toy.recipe(), Progress(0, 0.0)
    student = Model.build(recipe, teacher.tokenizer.vocab_size)
    dual = DualVocabularyModel(teacher.model, student, is_projected=False)
    assert dual.embeddings.student_embedding is not None, "is_projected is False"
    with torch.no_grad():
        dual.embeddings.student_embedding.weight.copy_(dual.embeddings.teacher_embedding.weight)
        dual.student_output.load_state_dict(dual.teacher_output.state_dict())
    objective, step = recipe.objectives["masked"], PretrainingBatches(recipe, toy.data)(progress)
    for fraction in (0.0, 1.0):
        distillation_loss = JointVocabularyDistillation(
            teacher, JointTraining(mixed_word_fraction=fraction)
        ).build_loss(student, toy.data)
        (plain,) = distillation_loss.prepare_step(step, progress).micro_batches
        mixed = plain.teacher_batch
        assert mixed is not None, "prepare_step adds it"
        first, batch = _as_first_vocabulary(mixed, teacher.tokenizer.vocab_size), DeviceBatch(mixed)
        text, expected_text = (unmask(b, "masked").token_ids for b in (first, plain))
        condition = f"with {fraction:.0%} of words in the student's tokens"
        yield expect_same(f"the same text, {condition}", np.array_equal(text, expected_text), True)
        with torch.no_grad():
            loss = dual.loss(batch.token_ids, batch.token_info, batch.targets["masked"], objective)
            expected = teacher.model.losses(DeviceBatch(first), recipe.objectives)["masked"]
        yield expect_equal(f"the same loss, {condition}", float(loss.sum / expected.sum), 1, 1e-5)


def _as_first_vocabulary(batch: Batch, size: int) -> Batch:
    """Return a batch with the tokens of the second vocabulary as those of the first."""
    targets = batch.targets["masked"]
    targets = replace(targets, labels=targets.labels % size)
    return replace(batch, token_ids=batch.token_ids % size, targets={"masked": targets})


def _pruning_is_exact(toy: ToyModels) -> CheckResults:
    """Check that pruning the vocabulary changes no output, and measure what it saves."""
    model, examples = toy.fine_tuned("sentiment"), toy.evaluation_examples("sentiment")
    pruned = prune_vocabulary(model, examples=examples)
    assert isinstance(pruned, FineTunedModel)
    outputs, expected = (
        np.stack(m.head_outputs(m.output_decoder.encode(m.example_encoder, examples)))
        for m in (pruned, model)
    )
    yield expect_equal("outputs without the tokens that no text needs", outputs, expected, 1e-5)
    ratio = num_parameters(pruned)["all"] / num_parameters(model)["all"]
    yield MeasuredValue("fraction of parameters left by pruning", [ratio])


def _same_text_both_ways(toy: ToyModels, small_data: Dataset) -> CheckResults:
    """Check that both vocabularies decode to the same text, and compare the numbers of tokens."""
    texts = [
        text for example in toy.evaluation_examples("sentiment") for text in example_texts(example)
    ]
    token_ids = [data.tokenizer.encode_batch(texts) for data in (small_data, toy.data)]
    decoded = [
        [data.tokenizer.decode(ids) for ids in text_ids]
        for data, text_ids in zip((small_data, toy.data), token_ids, strict=True)
    ]
    yield expect_same("the same texts of either vocabulary", decoded[0] == decoded[1], True)
    ratios = [len(a) / len(b) for a, b in zip(*token_ids, strict=True)]
    yield MeasuredValue("tokens of a text, over those of the teacher", ratios, unit="texts")


CHECK = CompressionCheck(
    "C4",
    "two-vocabularies",
    "Does a student with a small vocabulary learn more beside a teacher that learns it, too?",
    "Zhao et al. 2019, 2021",
    run,
)
