"""Special tokens in a text are read, but never masked or predicted."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tokenizers as library

from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import Tokenizer, TokenizerConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.recipes import Recipe
from bertwright.training.diagnostics.doctor.batch_samples import sample_batches
from bertwright.training.diagnostics.doctor.data_checks import check_data
from bertwright.training.diagnostics.doctor.target_checks import check_targets
from bertwright.training.evaluation.held_out import make_held_out_evaluation
from bertwright.training.evaluation.masked_words import iter_masked_words
from bertwright.training.sequence_sources import SequenceSources
from small_recipe import CHANGES
from toy_stories import stories

KINDS = {
    "wordpiece": {"vocab_size": 200},
    "byte-bpe": {"vocab_size": 400},
    "unigram": {"vocab_size": 200},
    "words": {"vocab_size": 200},
    "sentinels": {"kind": "unigram", "vocab_size": 220, "sentinels": 20},
    "added": {"kind": "byte-bpe", "vocab_size": 400},
}
ADDED = "<|user|>"


@cache
def tokenizer_of(kind: str) -> Tokenizer:
    config = TokenizerConfig.parse({"kind": kind, **KINDS[kind]})
    tokenizer = train_tokenizer(stories(100), config)
    if kind != "added":
        return tokenizer
    tokenizer.backend.add_special_tokens([ADDED])
    return Tokenizer(library.Tokenizer.from_str(tokenizer.backend.to_str()))


@pytest.fixture(scope="module", params=KINDS)
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Stories with mask, padding and other reserved tokens after every sentence."""
    tokenizer = tokenizer_of(request.param)
    reserved = tokenizer.reserved_ids - {
        tokenizer.special_tokens.end,
        tokenizer.special_tokens.start,
    }
    spelled = " ".join(tokenizer.id_to_token(i) for i in sorted(reserved)[:4])
    texts = [text.replace(". ", f". {spelled} ") for text in stories(80)]
    folder = tmp_path_factory.mktemp("spelled")
    (folder / "text.txt").write_text("\n\n".join(texts))
    return prepare(folder / "text.txt", folder / "data", tokenizer, heldout=0.2, num_workers=1)


SYSTEMS = [
    "bert",
    "bert-whole-words",
    "spanbert",
    "albert",
    "electra",
    "structbert",
    "xlnet",
    "gpt",
    "gpt-bert",
    "elmo",
    "bart",
    "t5",
    "lstm-autoencoder",
]


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_reserved_token_of_the_text_is_masked_or_predicted(data: Dataset, system: str) -> None:
    recipe = Recipe.load(system, *CHANGES[3:])
    tokenizer = data.tokenizer
    ends = {
        tokenizer.special_tokens.start,
        tokenizer.special_tokens.end,
        tokenizer.special_tokens.unknown,
    }
    reserved = tokenizer.reserved_ids - ends
    sentinels = {i for i in reserved if tokenizer.id_to_token(i).startswith("<extra_id_")}
    assert reserved
    for phase in range(len(recipe.phases)):
        for group in recipe.objective_schedule(phase):
            samples = sample_batches(recipe, data, phase, group.objectives)
            originals = samples.originals
            in_text = np.isin(originals.token_ids, list(reserved)) & ~originals.is_special
            assert in_text.any()
            predicting = {
                n: o for n, o in group.objectives.items() if o.capabilities.predicts_tokens
            }
            for name, objective in predicting.items():
                targets = samples.batch.targets[name]
                labels = targets.labels[targets.weights > 0]
                allowed = sentinels if objective.capabilities.uses_decoder else set()
                if system == "t5" and not sentinels:
                    continue  # its last tokens serve as sentinels
                assert not set(labels.tolist()) & (reserved - allowed), name
            if not any(o.permutes_input for o in group.objectives.values()):
                input_ids = samples.batch.token_ids[:, : in_text.shape[1]]
                assert (input_ids[in_text] == originals.token_ids[in_text]).all()
            results = check_targets(samples, group.objectives, tokenizer)
            assert all(d.severity == "ok" for d in results if d.check == "masks.special-tokens")
        for batch in make_held_out_evaluation(recipe, phase, data, 500).batches:
            for name in set(batch.targets) & predicting.keys():
                targets = batch.targets[name]
                if not predicting[name].capabilities.uses_decoder:
                    labels = targets.labels[targets.weights > 0]
                    assert not set(labels.tolist()) & reserved


def test_bits_per_byte_masks_no_reserved_token(data: Dataset) -> None:
    split, specials = data.split("heldout"), data.tokenizer.special_tokens
    reserved = data.tokenizer.reserved_ids
    for masked in iter_masked_words(split, specials, specials.start, 32, 10**6, reserved):
        token_ids = masked.sequences.token_ids[masked.is_masked]
        assert not np.isin(token_ids, list(reserved)).any()


def test_the_doctor_counts_special_tokens(data: Dataset) -> None:
    checks = {d.check: d for d in check_data(data, Recipe.load("bert", *CHANGES[3:]))}
    diagnostic = checks["data.special-tokens"]
    expected = np.isin(
        data.split("train").token_ids(0, 10**9), list(data.tokenizer.reserved_ids)
    ).sum()
    assert expected > 0
    assert (diagnostic.severity, diagnostic.metrics["num_special_tokens"]) == ("note", expected)


def test_the_doctor_reports_a_masked_reserved_token(data: Dataset) -> None:
    recipe = Recipe.load("bert", *CHANGES[3:], "phases=[{objectives: {masked: {}}}]")
    samples = sample_batches(recipe, data, 0)
    is_reserved = np.isin(samples.originals.token_ids, list(data.tokenizer.reserved_ids))
    positions = np.flatnonzero(is_reserved & ~samples.originals.is_special)
    targets = samples.batch.targets["masked"]
    targets.positions[:1], targets.weights[:1] = positions[0], 1
    results = check_targets(samples, recipe.objectives_of(0), data.tokenizer)
    assert {d.check: d.severity for d in results}["masks.special-tokens"] == "error"


def test_sources_do_not_mark_special_tokens_of_the_text(data: Dataset) -> None:
    """Reserved tokens are recognised by their ids, so that the doctor sees the original text."""
    recipe = Recipe.load("bert", *CHANGES[3:])
    source = SequenceSources(recipe, data, "train", 0).get(0, recipe.objectives_of(0))
    assert not source.sequences(np.arange(4), 0).is_spelled_special.any()


def test_the_unknown_token_is_reserved_for_byte_level_tokenizers(tmp_path: Path) -> None:
    for kind in KINDS:
        tokenizer = tokenizer_of(kind)
        unknown = tokenizer.special_tokens.unknown in tokenizer.reserved_ids
        assert unknown == (tokenizer.kind == "byte-bpe")
    assert tokenizer_of("added").token_to_id(ADDED) in tokenizer_of("added").reserved_ids
