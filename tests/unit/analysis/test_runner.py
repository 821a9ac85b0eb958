"""Running analyses: selection, files, reports and reuse of results."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import ClaimResult
from bertwright.analysis.core.plots import HeatMap, error_bars
from bertwright.analysis.core.prediction_probe import prediction_probe, read_labelled_texts
from bertwright.analysis.core.report import write_report
from bertwright.analysis.core.result import StoredResult, read_result
from bertwright.analysis.core.runner import (
    OTHER_MODEL_FOLDER,
    pair_reports,
    run_analyses,
    select_analyses,
    stored_reports,
)
from bertwright.analysis.core.texts import encode_texts, read_source_texts, texts_digest
from bertwright.analysis.core.word_states import compute_word_states
from bertwright.core.errors import UserError
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.dependency_trees import DependencyTree
from bertwright.tasks.formats.examples import Example, TaggedSentence
from bertwright.tasks.formats.tables import TableReader
from experiments.analyses.classifiers import bag_of_tokens_model
from experiments.analyses.models import SENTENCES, small_inputs, small_model
from recorded_values import RecordedValues, finding_values, recorded_values

WITH_TIES = ("facts", "main-auxiliary")
"""Analyses whose values depend on the processor, because an untrained model has near-ties."""


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> Iterator[RecordedValues]:
    with recorded_values("analyses", request.config) as values:
        yield values


@pytest.fixture(scope="module")
def inputs() -> AnalysisInput:
    model = small_model()
    return AnalysisInput(model, encode_texts(model, [Example(text) for text in SENTENCES]))


def test_analyses_are_selected_by_kind_survey_id_and_group() -> None:
    assert [analysis.kind_name() for analysis in select_analyses(["B2"])] == ["attention-mass"]
    assert {analysis.group for analysis in select_analyses(["attention"])} == {"attention"}
    assert {analysis.kind_name() for analysis in select_analyses([])} == set(Analysis.kinds())
    with pytest.raises(UserError, match=r"no analysis 'atention': did you mean 'attention'\?"):
        select_analyses(["atention"])


def test_all_analyses_write_files_and_one_page(small_run, recorded: RecordedValues) -> None:
    reports, folder = small_run.reports(), small_run.folder
    page = write_report(small_run.inputs, reports, folder, "now").read_text()
    assert "http" not in page.replace("https://", "http://").split("</head>")[1]
    numbers = [int(number) for number in re.findall(r"<figcaption>Figure (\d+)\. [A-Z]", page)]
    assert numbers == list(range(1, page.count("<img ") + 1))
    assert page.count("<caption>Table") == page.count("<table>")
    assert re.search(r"<td class=\"number\">\d of 8 heads</td>", page)
    for report in reports:
        kind, reason = report.analysis.kind_name(), report.not_applicable
        if reason is not None:
            assert reason in page or reason.split("'")[0] in page
            assert not (folder / f"{kind}.jsonl").exists()
            continue
        stored = read_result(folder, kind)
        assert stored.metadata["num_texts"] == len(SENTENCES)
        assert all(np.isfinite(finding["value"]) for finding in stored.findings)
        assert (folder / f"{kind}.png").stat().st_size > 1000
        if kind not in WITH_TIES:
            recorded.compare(kind, finding_values([stored]), relative=2e-2, absolute=1e-2)
        json.dumps(report.as_dict())
        for result in report.claim_results:
            assert result.claim.split("'")[0] in page


def test_a_shared_pass_has_the_same_results(inputs: AnalysisInput, tmp_path: Path) -> None:
    kinds = ["attention-mass", "attention-entropy"]
    run_analyses(inputs, [Analysis.parse(kind) for kind in kinds], tmp_path, lambda line: None)
    for kind in kinds:
        alone = Analysis.parse(kind).run(inputs)
        together = read_result(tmp_path, kind)
        assert [f["value"] for f in together.findings] == [f.value for f in alone.findings]


def test_stored_results_are_reused(inputs: AnalysisInput, tmp_path: Path) -> None:
    kinds = ["attention-mass", "single-heads"]
    analyses = [Analysis.parse(kind) for kind in kinds]
    first = run_analyses(inputs, analyses, tmp_path, lambda line: None)
    lines: list[str] = []
    assert run_analyses(inputs, analyses, tmp_path, lines.append) == first
    assert lines == [f"2 of 2 are already in {tmp_path}"]
    lines.clear()
    run_analyses(inputs, [*analyses, Analysis.parse("attention-entropy")], tmp_path, lines.append)
    assert lines[0] == f"2 of 3 are already in {tmp_path}"
    fewer = replace(inputs, texts=inputs.texts[1:])
    run_analyses(fewer, analyses, tmp_path, lambda line: None)
    assert read_result(tmp_path, kinds[0]).metadata["num_texts"] == len(SENTENCES) - 1


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def remove_last_line(file: Path) -> None:
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))


@pytest.mark.parametrize(
    ("ending", "damage"),
    [
        ("jsonl", truncate),
        ("jsonl", remove_last_line),
        ("jsonl", lambda file: file.write_text("")),
        ("jsonl", lambda file: file.write_text("5\n[]\n")),
        ("jsonl", lambda file: file.write_bytes(b"\xff\xfe")),
        ("npz", truncate),
        ("npz", Path.unlink),
        ("png", Path.unlink),
    ],
)
def test_damaged_results_are_computed_again(
    ending: str, damage: Callable[[Path], object], inputs: AnalysisInput, tmp_path: Path
) -> None:
    analyses = [Analysis.parse("attention-entropy")]
    first = run_analyses(inputs, analyses, tmp_path, lambda line: None)
    damage(tmp_path / f"attention-entropy.{ending}")
    if ending != "png":
        with pytest.raises(UserError, match="damaged or of another version: run analyse again"):
            read_result(tmp_path, "attention-entropy")
    lines: list[str] = []
    assert run_analyses(inputs, analyses, tmp_path, lines.append) == first
    assert not any("1 of 1 are already" in line for line in lines)
    assert run_analyses(inputs, analyses, tmp_path, lines.append) == first
    assert lines[-1] == f"1 of 1 are already in {tmp_path}"


def test_the_digest_covers_trees_tags_and_labels(tmp_path: Path) -> None:
    """Texts with the same tokens, and other trees, tags or labels."""
    model, words = small_model(), ("a", "ship", "leaves")
    sources = [
        DependencyTree(
            words, (1, 2, -1), ("det", "nsubj", "root"), ("DET", "NOUN", "VERB"), "line 1"
        ),
        DependencyTree(words, (2, 2, -1), ("det", "nsubj", "root"), ("DET", "NOUN", "VERB")),
        DependencyTree(words, (1, 2, -1), ("det", "obj", "root"), ("DET", "NOUN", "VERB")),
        DependencyTree(words, (1, 2, -1), ("det", "nsubj", "root"), ("DET", "PROPN", "VERB")),
        TaggedSentence(words, ("DET", "NOUN", "VERB")),
        Example("a ship leaves"),
        Example("a ship leaves", label="yes"),
        Example("a ship leaves", negatives=("a lamp",)),
        Example("a ship", "leaves"),
        Example("A ship leaves"),
    ]
    digests = [texts_digest(encode_texts(model, [source])) for source in sources]
    assert len(set(digests)) == len(sources)
    assert texts_digest(encode_texts(model, [replace(sources[0], location="line 2")])) == digests[0]
    analyses: list[Analysis] = [Analysis.parse("relation-heads")]
    for source in sources[:3]:
        lines: list[str] = []
        inputs = AnalysisInput(model, encode_texts(model, [source]))
        run_analyses(inputs, analyses, tmp_path, lines.append)
        assert not any("already in" in line for line in lines)


def test_the_model_digest_covers_head_classes_and_recipe() -> None:
    """These change predictions with the same encoder weights."""
    constant = bag_of_tokens_model({}, bias=1.0)
    others = [
        bag_of_tokens_model({"ship": 2.0}, bias=1.0),
        bag_of_tokens_model({}, bias=1.0, labels=("bad", "good")),
        bag_of_tokens_model({}, bias=1.0),
    ]
    assert len({other.weights_digest for other in (constant, *others)}) == 1
    assert [other.model_digest == constant.model_digest for other in others] == [False, False, True]
    small = small_model()
    lower = small_model("bert", "encoder.norm.epsilon=0.1")
    lower.text_model.model.load_state_dict(small.text_model.model.state_dict())
    assert (
        small.weights_digest == lower.weights_digest,
        small.model_digest == lower.model_digest,
    ) == (True, False)


def test_truncated_hidden_states_are_computed_again(inputs: AnalysisInput, tmp_path: Path) -> None:
    cached = replace(inputs, cache_folder=tmp_path)
    before = np.array(compute_word_states(cached).states)
    (file,) = tmp_path.iterdir()
    for damaged in (file.read_bytes()[:-100], file.read_bytes()[:40], b""):
        file.write_bytes(damaged)
        np.testing.assert_array_equal(compute_word_states(cached).states, before)


def test_the_page_includes_stored_results(inputs: AnalysisInput, tmp_path: Path) -> None:
    def page(one: AnalysisInput, kind: str, other: AnalysisInput | None = None) -> str:
        analyses = [Analysis.parse(kind)]
        reports = run_analyses(one, analyses, tmp_path, lambda line: None)
        if other is not None:
            folder = tmp_path / OTHER_MODEL_FOLDER
            other_reports = run_analyses(other, analyses, folder, lambda line: None)
            reports = pair_reports(reports, other_reports)
        stored = stored_reports(one, analyses, tmp_path, other, lambda line: None)
        return write_report(one, [*reports, *stored], tmp_path, "now").read_text()

    entropy, mass = (Analysis.parse(f"attention-{name}").title for name in ("entropy", "mass"))
    assert mass not in page(inputs, "attention-entropy")
    both = page(inputs, "attention-mass")
    assert both.index(mass) < both.index(entropy)
    other = replace(inputs, model=inputs.model.with_random_weights(1))
    compared = replace(inputs, other_model=other.model)
    assert mass in page(compared, "attention-entropy", other)
    # Results of other texts are not included.
    assert mass not in page(replace(inputs, texts=inputs.texts[1:]), "attention-entropy")


def test_a_verdict_follows_the_interval() -> None:
    def verdict(interval, direction="above", value=0.5):
        return ClaimResult("c", "p", value, interval, 0.5, "b", direction).verdict

    assert verdict((0.6, 0.7)) == "seen"
    assert verdict((0.4, 0.7)) == "undecided"
    assert verdict((0.3, 0.4)) == "opposite"
    assert verdict((0.3, 0.4), "below") == "seen"
    assert verdict(None, value=0.6) == "seen"


def test_texts_pairs_and_trees_are_read(tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("a ship\n\nthe lamp\tthe light\n")
    first, second = read_source_texts(file)
    assert (first.text, first.pair, second.pair) == ("a ship", None, "the light")
    file.write_text("\n")
    with pytest.raises(UserError, match="holds no texts"):
        read_source_texts(file)
    tree = tmp_path / "trees.conllu"
    tree.write_text(
        "1\tships\tship\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\tcome\tcome\tVERB\t_\t_\t9\troot\t_\t_\n"
    )
    with pytest.raises(UserError, match=r"trees\.conllu line 2: the head '9' is not a word"):
        read_source_texts(tree)


def test_labelled_texts_of_a_folder_need_a_classifier(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("text\tlabel\na ship\tyes\nthe lamp\tno\n")
    constant = bag_of_tokens_model({}, bias=1.0)
    model = constant.text_model
    assert isinstance(model, FineTunedModel)
    model.task = replace(model.task, reader=TableReader())
    texts = encode_texts(constant, read_labelled_texts(constant, tmp_path))
    assert prediction_probe(AnalysisInput(constant, texts)).evaluate().num_correct.tolist() == [
        1,
        0,
    ]
    with pytest.raises(UserError, match="is a task, and bert is not a classifier: give a text"):
        read_labelled_texts(small_model(), tmp_path)


def test_layers_of_different_sizes_are_refused_where_heads_are_compared(tmp_path: Path) -> None:
    pruned = small_inputs("bert", "encoder.pruned_sizes.heads=[1,2]")
    assert pruned.model.size_description == "2 layers of 1 to 2 heads"
    analyses = select_analyses(["attention", "geometry"])
    reasons: dict[str, set[str | None]] = {}
    for report in run_analyses(pruned, analyses, tmp_path, lambda line: None):
        reasons.setdefault(report.analysis.group, set()).add(report.not_applicable)
    expected = "a model of 2 layers of 1 to 2 heads: every layer must have the same number of heads"
    assert reasons == {"geometry": {None}, "attention": {expected}}


def test_layers_pruned_alike_have_fewer_heads() -> None:
    pruned = small_inputs("bert", "encoder.pruned_sizes.heads=[1,1]")
    result = Analysis.parse("attention-mass").run(pruned)
    assert {finding.head for finding in result.findings} <= {0, None}


def test_layers_and_heads_of_a_heat_map_are_numbered_from_1() -> None:
    result = StoredResult({}, [], {"values": np.ones((6, 12))})
    for first, extent in (((1, 1), (0.5, 12.5, 6.5, 0.5)), ((0, 0), (-0.5, 11.5, 5.5, -0.5))):
        axes = Figure().subplots()
        HeatMap("value", lambda r: r.arrays["values"], first=first).draw(axes, result)
        assert tuple(axes.images[0].get_extent()) == extent


def test_error_bars_reach_from_the_value_to_the_interval() -> None:
    findings = [
        {"value": 0.5, "interval": (0.25, 1.5)},
        {"value": -2.0, "interval": (-4.0, -1.0)},
        {"value": 3.0},
        # The value of all texts may lie outside of an interval from samples.
        {"value": 1.0, "interval": (1.5, 2.0)},
    ]
    assert error_bars(findings).tolist() == [[0.25, 2, 0, 0], [1, 1, 0, 1]]
    assert error_bars([]).shape == (2, 0)
