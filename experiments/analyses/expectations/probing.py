"""Hidden states with planted information, and what probes read from them."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.result import AnalysisResult
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.core.word_states import word_states_file
from bertwright.analysis.identifiability.token_identity import TokenIdentity
from bertwright.analysis.probing.coreference_probe import (
    COREFERENCE,
    MENTION_FORMS,
    CoreferenceProbe,
)
from bertwright.analysis.probing.description_length import (
    DescriptionLength,
    online_code_lengths,
)
from bertwright.analysis.probing.edge_probe import EXPECTED_LAYER, EdgeProbe
from bertwright.analysis.probing.edge_tasks import PARTS_OF_SPEECH, RELATIONS
from bertwright.analysis.probing.feature_layers import (
    EMBEDDINGS,
    FEATURE_SETS,
    LAST_LAYER,
    FeatureLayers,
)
from bertwright.analysis.probing.linear_probe import LinearProbe
from bertwright.analysis.probing.main_auxiliary import (
    AUXILIARIES,
    AuxiliarySentence,
    best_positions,
    sample_sentence,
    train_scorer,
)
from bertwright.analysis.probing.numeracy import Numeracy
from bertwright.analysis.probing.structural_probe import StructuralProbe
from bertwright.analysis.probing.word_positions import WordPositions
from bertwright.analysis.syntax.stories import PERSON_FORMS, CoreferenceStory
from bertwright.tasks.formats.dependency_trees import DependencyTree
from bertwright.tasks.formats.examples import Example
from experiments.analyses.expecting import (
    ExpectedValue,
    expect_above,
    expect_below,
    expect_equal,
    expect_verdicts,
)
from experiments.analyses.models import WORDS, small_model
from experiments.analyses.trees import RELATIONS as TREE_RELATIONS
from experiments.analyses.trees import TAGS, path_vectors, random_trees

FloatArray = NDArray[np.float32]


@contextmanager
def planted_states(trees: Sequence[DependencyTree], states: FloatArray) -> Generator[AnalysisInput]:
    """Yield inputs whose word states (layers + 1, W, D) are read from the cache."""
    model = small_model("bert", f"encoder.depth.layers={len(states) - 1}")
    with TemporaryDirectory() as folder:
        inputs = AnalysisInput(model, encode_texts(model, trees), cache_folder=Path(folder))
        np.save(word_states_file(inputs, Path(folder)), states)
        yield inputs


def noise_states(num_layers: int, num_words: int, width: int) -> FloatArray:
    """Return random states."""
    return (
        np.random.default_rng(1).normal(0, 0.3, (num_layers, num_words, width)).astype(np.float32)
    )


def expect_edge_probe() -> Iterator[ExpectedValue]:
    """Check the expected layers of tags planted in layer 1 and relations planted in layer 2."""
    trees = random_trees(80)
    words = [(tree, n) for tree in trees for n in range(len(tree.words))]
    states = noise_states(3, len(words), 8)
    for index, (tree, n) in enumerate(words):
        states[1, index, TAGS.index(tree.tags[n])] += 1
        if tree.heads[n] >= 0:
            states[2, index, 3 + TREE_RELATIONS.index(tree.relations[n])] += 1
    with planted_states(trees, states) as inputs:
        # The seed of the random weights, which must not be those of the model itself.
        result = EDGE_PROBE.run(replace(inputs, seed=1))
    yield from _expect_layers(result, {PARTS_OF_SPEECH: 1, RELATIONS: 2})
    gains = (f"embeddings tell about {RELATIONS}", f"weights tell more about {RELATIONS}")
    expected = {RELATIONS_ABOVE: "seen", **dict.fromkeys(gains, "seen")}
    yield from expect_verdicts("relations in layer 2", EDGE_PROBE, result, expected)
    with planted_states(trees, states[[0, 2, 1]]) as inputs:
        result = EDGE_PROBE.run(replace(inputs, seed=1))
    expected = {RELATIONS_ABOVE: "opposite"}
    yield from expect_verdicts("relations in layer 1", EDGE_PROBE, result, expected)


def expect_coreference_probe() -> Iterator[ExpectedValue]:
    """Check gender and number planted in layer 1 and coreference planted in layer 2."""
    analysis = CoreferenceProbe(num_stories=20, width=16, num_seeds=2, epochs=8, learning_rate=3e-2)
    above = {f"resolve {MENTION_FORMS} in lower layers than {COREFERENCE}": "seen"}
    for layers, verdict in (([0, 1, 2], "seen"), ([0, 2, 1], "opposite")):
        with TemporaryDirectory() as folder:
            inputs = AnalysisInput(small_model(), [], cache_folder=Path(folder))
            stories, texts = analysis.sample_stories(inputs)
            states = _story_states(stories)[layers]
            np.save(word_states_file(replace(inputs, texts=texts), Path(folder)), states)
            result = analysis.run(inputs)
        above = dict.fromkeys(above, verdict)
        yield from expect_verdicts(f"coreference, layers {layers}", analysis, result, above)
    yield from _expect_layers(result, {COREFERENCE: 1, MENTION_FORMS: 2}, chance=0.7)


def _story_states(stories: Sequence[CoreferenceStory]) -> FloatArray:
    """Return states with the form of mentions in layer 1, and their person in layer 2."""
    starts = np.cumsum([0, *(len(story.words) for story in stories)]).tolist()
    states = noise_states(3, starts[-1], 8)
    forms = (*PERSON_FORMS, "one")
    for start, story in zip(starts, stories, strict=False):
        for mention in story.mentions:
            word = start + mention.word_index
            states[1, word, forms.index(mention.form)] += 2
            is_same = mention.person_index == story.anaphor.person_index
            states[2, word, 4] += 2 if is_same else -2
    return states


EDGE_PROBE = EdgeProbe(width=16, num_seeds=2, epochs=10, learning_rate=2e-2)
RELATIONS_ABOVE = f"resolve {PARTS_OF_SPEECH} in lower layers than {RELATIONS}"


def _expect_layers(
    result: AnalysisResult, layers: Mapping[str, int], chance: float = 0.55
) -> Iterator[ExpectedValue]:
    """Check accuracies and expected layers of tasks planted in these layers."""
    values = {f.metric: f.value for f in result.findings if f.layer is None}
    for name, layer in layers.items():
        scores = result.arrays[f"{name} scores"].mean(0)
        yield expect_above(f"{name}, from its layer on", scores[layer:], 0.75)
        yield expect_below(f"{name}, before", scores[:layer], chance)
        expected_layer = values[f"{EXPECTED_LAYER}: {name}"]
        yield expect_equal(f"{name}, expected layer", expected_layer, layer, 0.35)
        weights = result.arrays[f"{name} weights"].mean(0)
        yield expect_above(f"{name}, weight of its layer", weights[layer], 0.6)


def expect_linear_probe() -> Iterator[ExpectedValue]:
    """Check that planted tags are predicted and random ones are not."""
    trees = random_trees(60)
    tags = np.array([TAGS.index(tag) for tree in trees for tag in tree.tags])
    states = noise_states(3, len(tags), 8)
    states[1:, np.arange(len(tags)), tags] += 2
    analysis = LinearProbe()
    with planted_states(trees, states) as inputs:
        result = analysis.run(inputs)
    accuracy = result.arrays["scores"][:, 0]
    yield expect_equal("accuracy without tags", accuracy[0], 1 / 3, 0.12)
    yield expect_above("accuracy with planted tags", accuracy[1:], 0.95)
    expected = {f"memorised words, in layer {layer}": "seen" for layer in (1, 2)}
    yield from expect_verdicts("tags", analysis, result, expected)
    with planted_states(trees, _word_type_states(trees, 3)) as inputs:
        result = analysis.run(inputs)
    expected = {f"memorised words, in layer {layer}": "opposite" for layer in range(3)}
    yield from expect_verdicts("words", analysis, result, expected)


def _word_type_states(trees: Sequence[DependencyTree], num_layers: int) -> FloatArray:
    """Return states that tell nothing but the word, in every layer."""
    words = [WORDS.index(word) for tree in trees for word in tree.words]
    states = noise_states(num_layers, len(words), len(WORDS)) / np.float32(10)
    states[:, np.arange(len(words)), words] += 2
    return states


def expect_feature_layers() -> Iterator[ExpectedValue]:
    """Check that tags planted in one layer are predicted from all sets with that layer."""
    trees = random_trees(60)
    tags = np.array([TAGS.index(tag) for tree in trees for tag in tree.tags])
    states = noise_states(4, len(tags), 8)
    states[2, np.arange(len(tags)), tags] += 2
    analysis = FeatureLayers()
    with planted_states(trees, states) as inputs:
        result = analysis.run(inputs)
    values = {f.metric: f.value for f in result.findings}
    expected = {"concatenated, are better": "seen"}
    yield from expect_verdicts("layer 2", analysis, result, expected)
    for layers, verdict in (([0, 1, 3, 2], "seen"), ([2, 1, 0, 3], "opposite")):
        with planted_states(trees, states[layers]) as inputs:
            result = analysis.run(inputs)
        expected = {"better feature than the embeddings": verdict}
        yield from expect_verdicts(f"layers {layers}", analysis, result, expected)
    for name in FEATURE_SETS:
        if name in (EMBEDDINGS, LAST_LAYER):
            yield expect_equal(name, values[name], 1 / 3, 0.12)
        else:
            yield expect_above(name, values[name], 0.9)


def expect_word_positions() -> Iterator[ExpectedValue]:
    """Check that planted positions are predicted and others are not."""
    trees = random_trees(60)
    states = noise_states(3, 8 * len(trees), 8)
    states[1, :, 3] = np.tile(np.arange(8), len(trees))
    with planted_states(trees, states) as inputs:
        result = WordPositions().run(inputs)
    baseline, error = result.findings[0].baseline, result.arrays["position_error"]
    assert baseline is not None
    yield expect_equal("always the mean position", baseline.value, 2, 1e-6)
    yield expect_below("error with planted positions", error[1], 0.2)
    yield expect_above("error without", error[[0, 2]], 1.6)
    analysis = WordPositions()
    for layers, verdict in (([1, 0, 2], "seen"), ([0, 2, 1], "opposite")):
        with planted_states(trees, states[layers]) as inputs:
            result = analysis.run(inputs)
        expected = {"the last layer tells it less well": verdict}
        yield from expect_verdicts(f"layers {layers}", analysis, result, expected)
        if verdict == "seen":
            expected = {"the embeddings tell the position": "seen"}
            yield from expect_verdicts(f"layers {layers}", analysis, result, expected)


def expect_structural_probe() -> Iterator[ExpectedValue]:
    """Check that planted trees are reconstructed."""
    trees = random_trees(120)
    paths = np.concatenate([path_vectors(tree) for tree in trees])
    states = noise_states(3, len(paths), 8)
    states[2] = paths
    analysis = StructuralProbe(rank=8, learning_rate=1e-2, epochs=30)
    with planted_states(trees, states) as inputs:
        result = analysis.run(inputs)
    expected = dict.fromkeys(("than the linear chain", "trees than the embeddings"), "seen")
    yield from expect_verdicts("trees in layer 2", analysis, result, expected)
    values = {f.layer: f.value for f in result.findings if f.metric == "UUAS"}
    yield expect_above("UUAS of planted trees", values[2], 0.85)
    yield expect_below("UUAS of noise", values[0], 0.5)


def expect_description_length() -> Iterator[ExpectedValue]:
    """Check that predictable labels cost almost nothing, and random ones a uniform code."""
    generator = np.random.default_rng(0)
    states = generator.normal(size=(4000, 8))
    bits = 2 * len(states)
    predictable = online_code_lengths(states, states[:, :4].argmax(1), 1.0).sum()
    random = online_code_lengths(states, generator.integers(0, 4, len(states)), 1.0).sum()
    yield expect_below("bits of predictable labels, relative", predictable / bits, 0.2)
    yield expect_equal("bits of random labels, relative", random / bits, 1, 0.05)
    trees, analysis = random_trees(60), DescriptionLength()
    tags = np.array([TAGS.index(tag) for tree in trees for tag in tree.tags])
    states = noise_states(3, len(tags), 8)
    states[1, np.arange(len(tags)), tags] += 2
    context, block = "fewer bits than memorised", "fewer bits than in the embeddings"
    for planted, expected in (
        (states, {context: "seen", block: "seen"}),
        (states[[1, 0, 2]], {block: "opposite"}),
        (_word_type_states(trees, 3), {context: "opposite"}),
    ):
        with planted_states(trees, planted) as inputs:
            result = analysis.run(inputs)
        yield from expect_verdicts("planted states", analysis, result, expected)


def expect_main_auxiliary() -> Iterator[ExpectedValue]:
    """Check that states that mark the tree generalise, and states that mark positions do not."""
    generator = np.random.default_rng(0)
    train, test = (
        [sample_sentence(generator, clause) for _ in range(200)] for clause in (False, True)
    )
    main = np.array([sentence.main_index for sentence in test])
    other = np.array([sentence.other_index for sentence in test])
    targets = np.array([sentence.main_index for sentence in train])
    for knowledge, accuracy in (("trees", 1.0), ("positions", 0.0)):
        weights = train_scorer(*_marked_states(train, knowledge), targets)
        predicted = best_positions(*_marked_states(test, knowledge), weights)
        is_main, is_other = (predicted == main).mean(), (predicted == other).mean()
        yield expect_equal(f"main auxiliary, {knowledge}", is_main, accuracy, 0.02)
        yield expect_equal(f"first auxiliary, {knowledge}", is_other, 1 - accuracy, 0.02)


def _marked_states(
    sentences: Sequence[AuxiliarySentence], knowledge: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return states (N, T, 6) that mark the main or the first auxiliary, and the word mask."""
    sizes = torch.tensor([len(sentence.words) for sentence in sentences])
    mask = torch.arange(int(sizes.max())) < sizes[:, None]
    states = torch.randn(*mask.shape, 6, generator=torch.Generator().manual_seed(0)) / 10
    for index, sentence in enumerate(sentences):
        first = next(n for n, word in enumerate(sentence.words) if word in AUXILIARIES)
        states[index, sentence.main_index if knowledge == "trees" else first, 0] += 3
    return states, mask


def expect_numeracy() -> Iterator[ExpectedValue]:
    """Check that planted values are predicted and others are not."""
    generator = np.random.default_rng(0)
    for task in Numeracy().numeracy_tasks(0):
        states = generator.normal(0, 1, (len(task.values), 8))
        errors, variances = task.squared_errors(states)
        yield expect_above(f"{task.name}, noise", errors.sum() / variances.sum(), 0.8)
        states[:, 3] = task.values / 100
        errors, variances = task.squared_errors(states)
        yield expect_below(f"{task.name}, planted", errors.sum() / variances.sum(), 0.01)


def expect_token_identity() -> Iterator[ExpectedValue]:
    """Check that every word is identified from its embedding."""
    model = small_model()
    texts = [" ".join(np.random.default_rng(n).permutation(WORDS)[:8]) for n in range(60)]
    inputs = AnalysisInput(model, encode_texts(model, [Example(text) for text in texts]))
    fractions = TokenIdentity().run(inputs).arrays["fraction_identified"]
    yield expect_equal("from embeddings", fractions[0], 1)
    yield expect_above("by a linear map", fractions[:, 0], 0.8)
