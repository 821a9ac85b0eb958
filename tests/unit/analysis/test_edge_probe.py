"""Edge probing: spans with labels, pooling of spans, expected layers and entity files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.claims import ClaimResult
from bertwright.analysis.core.result import StoredResult
from bertwright.analysis.core.texts import add_entities, encode_texts, read_source_texts
from bertwright.analysis.core.word_states import WordStates, compute_word_states
from bertwright.analysis.probing.chunks import NO_CHUNK, chunk_examples, chunk_spans
from bertwright.analysis.probing.edge_probe import (
    GAIN_OVER_EMBEDDINGS,
    SCORE,
    EdgeProbe,
    expected_layer,
    paired_layer_difference,
)
from bertwright.analysis.probing.edge_tasks import (
    DEEP_ARGUMENTS,
    EDGE_TASKS,
    ENTITIES,
    PARTS_OF_SPEECH,
    RELATIONS,
    LabelledEdge,
    deep_argument_edges,
)
from bertwright.analysis.probing.span_probe import EdgeExamples, ProbeData, ScalarMixProbe
from bertwright.core.errors import UserError
from bertwright.tasks.formats.dependency_trees import DependencyTree, read_trees
from experiments.analyses.models import small_model
from experiments.analyses.trees import random_trees

# Word, tag, head from 1, relation, entity.
PASSIVE = """
John PROPN 4 nmod:poss B-PER
's PART 1 case O
old ADJ 4 amod O
car NOUN 8 nsubj:pass O
has AUX 8 aux O
not PART 8 advmod O
been AUX 8 aux:pass O
sold VERB 0 root O
by ADP 11 case O
the DET 11 det O
men NOUN 8 obl:agent O
of ADP 13 case O
Smith PROPN 11 nmod B-ORG
and CCONJ 15 cc I-ORG
Jones PROPN 13 conj I-ORG
. PUNCT 8 punct O
"""
ACTIVE = """
they PRON 3 nsubj O
never ADV 3 advmod O
want VERB 0 root O
to PART 5 mark O
give VERB 3 xcomp O
her PRON 5 iobj O
two NUM 8 nummod O
books NOUN 5 obj O
in ADP 10 case O
May PROPN 5 obl O
. PUNCT 3 punct O
"""


def conllu(*sentences: str) -> str:
    """Return sentences as a CoNLL-U file."""
    text = ""
    for sentence in sentences:
        for number, line in enumerate(sentence.strip().splitlines(), 1):
            word, tag, head, relation, _ = line.split()
            text += f"{number}\t{word}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_\n"
        text += "\n"
    return text


def iob2(sentence: str) -> str:
    """Return a sentence as an IOB2 file of Universal NER."""
    rows = enumerate(sentence.strip().splitlines(), 1)
    return "".join(f"{n}\t{line.split()[0]}\t{line.split()[4]}\t-\t-\n" for n, line in rows)


@pytest.fixture
def trees(tmp_path: Path) -> list[DependencyTree]:
    (tmp_path / "trees.conllu").write_text(conllu(PASSIVE, ACTIVE))
    return read_trees(tmp_path / "trees.conllu")


def phrases(tree: DependencyTree, spans: dict[tuple[int, int], str]) -> dict[str, str]:
    return {" ".join(tree.words[start:stop]): label for (start, stop), label in spans.items()}


def test_chunks_are_base_noun_phrases_and_verb_groups(trees: list[DependencyTree]) -> None:
    passive, active = (phrases(tree, chunk_spans(tree)) for tree in trees)
    assert passive == {
        "John 's old car": "noun phrase",
        "has not been sold": "verb group",
        "the men": "noun phrase",
        "Smith": "noun phrase",
        "Jones": "noun phrase",
    }
    assert active == {
        "they": "noun phrase",
        "want": "verb group",
        "to give": "verb group",
        "her": "noun phrase",
        "two books": "noun phrase",
        "May": "noun phrase",
    }


def test_a_cycle_is_no_noun_phrase() -> None:
    relations, tags = ("amod", "amod", "root"), ("ADJ", "ADJ", "NOUN")
    cycle = DependencyTree(("old", "red", "lamp"), (1, 0, -1), relations, tags)
    assert chunk_spans(cycle) == {(2, 3): "noun phrase"}


def test_only_the_mark_of_a_possessor_is_inside_a_noun_phrase() -> None:
    words, tags = ("of", "John", "'s", "car"), ("ADP", "PROPN", "PART", "NOUN")
    relations, subtypes = ("case", "nmod", "case", "root"), ("", "poss", "", "")
    tree = DependencyTree(words, (1, 3, 1, -1), relations, tags, subtypes=subtypes)
    assert chunk_spans(tree) == {(1, 4): "noun phrase"}
    words, tags = ("two", "years", "after", "party"), ("NUM", "NOUN", "ADP", "NOUN")
    relations = ("nummod", "compound", "case", "root")
    tree = DependencyTree(words, (1, 3, 1, -1), relations, tags)
    assert (3, 4) in chunk_spans(tree)


def test_a_name_of_several_words_is_one_noun_phrase() -> None:
    relations, tags = ("nsubj", "flat", "flat", "root"), ("PROPN", "PROPN", "PROPN", "VERB")
    tree = DependencyTree(("Mary", "Ann", "Lee", "sings"), (3, 0, 0, -1), relations, tags)
    assert chunk_spans(tree) == {(0, 3): "noun phrase", (3, 4): "verb group"}


def test_spans_that_are_no_chunks_are_as_long_as_chunks(trees: list[DependencyTree]) -> None:
    for tree in trees:
        examples, chunks = chunk_examples(tree), chunk_spans(tree)
        others = [span for span, label in examples.items() if label == NO_CHUNK]
        assert examples.items() - chunks.items() == {(span, NO_CHUNK) for span in others}
        assert all((start - 1, stop - 1) in chunks for start, stop in others)
        assert all(stop <= len(tree.words) for _, stop in others)
    assert phrases(trees[1], chunk_examples(trees[1]))["give her"] == NO_CHUNK


def test_deep_arguments_undo_the_passive(trees: list[DependencyTree]) -> None:
    model = small_model()
    passive, active = (
        {
            " ".join(text.words[slice(*edge.spans[1])]): edge.label
            for edge in deep_argument_edges(text)
        }
        for text in encode_texts(model, trees)
    )
    assert passive == {
        "John 's old car": "deep object",
        "by the men of Smith and Jones": "deep subject",
    }
    assert active == {
        "they": "deep subject",
        "her": "indirect object",
        "two books": "deep object",
        "in May": "oblique",
    }
    tree = DependencyTree(
        ("he", "got", "a", "book"),
        (1, -1, 3, 1),
        ("nsubj", "root", "det", "obj"),
        ("PRON", "VERB", "DET", "NOUN"),
        subtypes=("pass", "", "", ""),
    )
    labels = [edge.label for edge in deep_argument_edges(*encode_texts(model, [tree]))]
    assert labels == ["indirect object", "deep object"]


def test_truncated_words_have_no_edges(trees: list[DependencyTree]) -> None:
    (text,) = encode_texts(small_model(), trees[:1], max_length=11)
    assert len(text.words) == 8
    for name, find_edges in EDGE_TASKS.items():
        assert all(stop <= 8 for edge in find_edges(text) for _, stop in edge.spans), name
    assert [edge.label for edge in deep_argument_edges(text)] == ["deep object"]


def test_entities_are_read_for_the_sentences_with_the_same_words(tmp_path: Path) -> None:
    (tmp_path / "trees.conllu").write_text(conllu(PASSIVE, ACTIVE))
    (tmp_path / "tags.iob2").write_text(iob2(PASSIVE))
    texts = read_source_texts(tmp_path / "trees.conllu")
    passive, active = add_entities(texts, tmp_path / "tags.iob2")
    first, second = encode_texts(small_model(), [passive, active])
    edges = [(edge.spans, edge.label) for edge in EDGE_TASKS[ENTITIES](first)]
    assert edges == [(((0, 1),), "PER"), (((12, 15),), "ORG")]
    assert EDGE_TASKS[ENTITIES](second) == []
    (tmp_path / "trees.conllu").write_text(conllu(ACTIVE))
    texts = read_source_texts(tmp_path / "trees.conllu")
    with pytest.raises(UserError, match=r"tags.iob2 line 1 and others\) has the words"):
        add_entities(texts, tmp_path / "tags.iob2")
    (tmp_path / "lines.txt").write_text("they sold it\n")
    with pytest.raises(UserError, match="give a CoNLL-U file"):
        add_entities(read_source_texts(tmp_path / "lines.txt"), tmp_path / "tags.iob2")


def test_examples_are_words_and_words_with_heads() -> None:
    model, trees = small_model(), random_trees(2)
    inputs = AnalysisInput(model, encode_texts(model, trees))
    states = compute_word_states(inputs)

    def examples(name: str) -> EdgeExamples:
        edges = [EDGE_TASKS[name](text) for text in inputs.texts]
        edge_examples = EdgeExamples.from_edges(states, edges)
        assert edge_examples is not None
        return edge_examples

    words = examples(PARTS_OF_SPEECH).spans[:, 0]
    assert words.tolist() == [[word, word + 1] for word in range(16)]
    expected = [
        [[8 * n + word, 8 * n + word + 1], [8 * n + head, 8 * n + head + 1]]
        for n, tree in enumerate(trees)
        for word, head in enumerate(tree.heads)
        if head >= 0
    ]
    assert examples(RELATIONS).spans.tolist() == expected
    half = examples(RELATIONS).select(np.arange(16) < 8)
    assert len(half.spans) == len(half.labels) == 7


def test_a_span_is_the_attention_weighted_mean_of_its_words() -> None:
    generator = torch.Generator().manual_seed(0)
    states = WordStates(
        np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32),
        np.zeros(6, int),
        ("",) * 6,
    )
    spans = torch.tensor([[[0, 3]], [[5, 6]], [[2, 6]]])
    probe = ScalarMixProbe(
        states, 2, EdgeExamples(spans, torch.arange(3), 3), 5, generator
    ).double()
    probe.hidden_states = probe.hidden_states.double()
    with torch.no_grad():
        for parameter in probe.score.parameters():
            parameter.normal_(generator=generator)
        probe.mix.copy_(torch.tensor([0.5, -1.0]))
    weights = probe.mix.softmax(0)
    (project,), (score,) = probe.project, probe.score
    words = project(torch.einsum("l,lwd->wd", weights, probe.hidden_states))
    for (start, stop), pooled in zip(spans[:, 0].tolist(), probe.pool(spans[:, 0], 0), strict=True):
        attention = score(words[start:stop])[:, 0].softmax(0)
        torch.testing.assert_close(pooled, attention @ words[start:stop])


def test_a_gain_in_one_layer_is_its_expected_layer() -> None:
    for layer in range(1, 5):
        num_correct = np.where(np.arange(5) < layer, 10.0, 30.0)
        for num_targets in (40.0, 80.0):
            assert expected_layer(np.append(num_correct, num_targets)) == layer
    assert expected_layer(np.full(6, 7.0)) == 0


def test_tasks_are_compared_only_if_the_blocks_add_to_both() -> None:
    states = WordStates(np.zeros((3, 12, 4), np.float32), np.arange(12), ("",) * 12)
    edges = [[LabelledEdge(((0, 1),), "ab"[n % 2])] for n in range(12)]
    data = ProbeData.split(states, edges, 0)
    assert data is not None
    gain, none = np.tile([0.0, 1, 1, 1], (6, 1)), np.tile([1.0, 1, 1, 1], (6, 1))
    late = np.tile([0.0, 0, 1, 1], (6, 1))
    difference = paired_layer_difference((data, late), (data, gain), 0)
    assert difference is not None
    assert (difference.value, difference.num_units) == (1, 6)
    assert paired_layer_difference((data, late), (data, none), 0) is None


def few_epochs(inputs: AnalysisInput) -> dict[str, ClaimResult]:
    analysis = EdgeProbe(epochs=1, num_seeds=2)
    result = analysis.run(inputs)
    stored = StoredResult({}, [f.as_dict() for f in result.findings], result.arrays)
    return {claim.claim: claim for claim in analysis.check_claims(stored)}


def test_gains_are_differences_of_scores() -> None:
    model = small_model()
    inputs = AnalysisInput(model, encode_texts(model, random_trees(8)))
    findings = EdgeProbe(epochs=1, num_seeds=2).run(inputs).findings
    by_layer = {(f.metric, f.layer): f.value for f in findings}
    gains = []
    for (metric, layer), gain in by_layer.items():
        name, _, rest = metric.partition(": ")
        if rest.startswith("gain of this layer"):
            up_to = f"{name}: score of the layers up to this one"
            assert gain == pytest.approx(by_layer[up_to, layer] - by_layer[up_to, layer - 1])
            gains.append(gain)
        if rest == GAIN_OVER_EMBEDDINGS:
            up_to = f"{name}: score of the layers up to this one"
            expected = by_layer[f"{name}: {SCORE}", None] - by_layer[up_to, 0]
            assert gain == pytest.approx(expected)
            gains.append(gain)
    assert any(gains)


def test_claims_are_about_the_annotated_test_sentences() -> None:
    model = small_model()
    trees = [
        replace(tree, entities=("B-PER", "B-ORG", *"O" * 6) if n % 4 == 0 else None)
        for n, tree in enumerate(random_trees(16))
    ]
    inputs = AnalysisInput(model, encode_texts(model, trees))
    claims = few_epochs(inputs)
    edges = [EDGE_TASKS[ENTITIES](text) for text in inputs.texts]
    data = ProbeData.split(compute_word_states(inputs), edges, inputs.seed)
    assert data is not None
    num_annotated = len(data.test_texts)
    assert 0 < num_annotated < 4
    for text, claim in claims.items():
        is_entity = ENTITIES in text
        if DEEP_ARGUMENTS not in text:
            assert claim.num_units == (num_annotated if is_entity else 8), text
        assert claim.interval is not None
        assert claim.interval[0] <= claim.value <= claim.interval[1]
    without = [replace(tree, entities=None) for tree in trees]
    others = few_epochs(AnalysisInput(model, encode_texts(model, without)))
    assert not [text for text in others if ENTITIES in text]
    assert others.keys() == {text for text in claims if ENTITIES not in text}
