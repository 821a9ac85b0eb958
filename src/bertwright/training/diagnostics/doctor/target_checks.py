"""Checks of real batches: masking, targets and labels.

A batch is compared with its original sequences, so that a wrong selection, corruption or label is
detected regardless of the code that made it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertwright.batches.batch import Batch
from bertwright.batches.masking.corruption import TokenReplacement
from bertwright.batches.targets import Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.data.tokenization.tokenizer import SpecialTokens, Tokenizer
from bertwright.objectives.objective import Objective
from bertwright.training.diagnostics.doctor.batch_samples import SampledBatches
from bertwright.training.diagnostics.doctor.diagnostic import Diagnostic, Severity, grade

MAX_DEVIATIONS = 5.0
"""Largest deviation from an expected fraction attributed to chance, in standard errors."""


@dataclass(frozen=True)
class TargetSample:
    """The sampled targets of one objective in one phase.

    ``positions`` (K,) are flat indices, ``labels`` is (K,); fillers with weight 0 are left out.
    """

    name: str
    samples: SampledBatches
    specials: SpecialTokens
    vocab_size: int
    reserved: frozenset[int]

    @property
    def originals(self) -> SequenceBatch:
        return self.samples.originals

    @property
    def targets(self) -> Targets:
        return self.samples.batch.targets[self.name]

    @property
    def positions(self) -> NDArray[np.int64]:
        return self.targets.positions[self.targets.weights > 0]

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.targets.labels[self.targets.weights > 0]

    @property
    def extra_inputs(self) -> dict[str, NDArray[np.int64]]:
        targets = self.targets
        return {name: values[targets.weights > 0] for name, values in targets.extra_inputs.items()}

    def label_positions(self, objective: Objective) -> NDArray[np.int64] | None:
        """Return the flat positions (K,) of the tokens that are the labels, if there are any."""
        positions = objective.label_positions(self.targets)
        return None if positions is None else positions[self.targets.weights > 0]

    def diagnose(
        self, check: str, severity: Severity, message: str, advice: str = "", **metrics: float
    ) -> Diagnostic:
        """Return a diagnostic that names the phase and the objective."""
        prefix = f"phase {self.samples.phase}, {self.name}: "
        return Diagnostic(f"masks.{check}", severity, prefix + message, advice, metrics)

    def diagnose_errors(
        self, check: str, num_errors: int, message: str, **metrics: float
    ) -> Diagnostic:
        """Return an error if the targets of the objective are wrong."""
        severity: Severity = "error" if num_errors else "ok"
        return self.diagnose(
            check, severity, message, WRONG_TARGETS_ADVICE.format(self.name), **metrics
        )


WRONG_TARGETS_ADVICE = (
    "the model is trained on wrong targets: correct objectives.{} (or the plugin that defines it)"
)


def check_targets(
    samples: SampledBatches, objectives: Mapping[str, Objective], tokenizer: Tokenizer
) -> list[Diagnostic]:
    """Run every check that applies to the objectives of a phase."""
    diagnostics: list[Diagnostic] = []
    is_permuted = any(objective.permutes_input for objective in objectives.values())
    for name, objective in objectives.items():
        sample = TargetSample(
            name, samples, tokenizer.special_tokens, tokenizer.vocab_size, tokenizer.reserved_ids
        )
        if not len(sample.positions):
            diagnostics.append(report_missing_targets(sample))
            continue
        checks = TARGET_CHECKS if is_permuted else POSITIONAL_CHECKS + TARGET_CHECKS
        diagnostics += (d for check in checks if (d := check(sample, objective)) is not None)
        if not objective.capabilities.uses_decoder:  # a decoder has several targets per position
            diagnostics.append(check_unique_targets(sample))
    return diagnostics


def report_missing_targets(sample: TargetSample) -> Diagnostic:
    """Report an objective that has nothing to predict."""
    return sample.diagnose(
        "targets",
        "error",
        f"there is no target in {len(sample.originals.token_ids):,} sequences",
        f"nothing is learned from it: prepare other text, or remove objectives.{sample.name}",
        num_targets=0,
    )


def check_masking_rate(sample: TargetSample, objective: Objective) -> Diagnostic | None:
    """Check the fraction of masked tokens, allowing for rounding to whole tokens per sequence."""
    if objective.mask_selection is None:
        return None
    rate = objective.mask_selection.masking_rate.at(0.5)
    num_real = sample.originals.is_real.sum(axis=1)
    expected = np.maximum(np.rint(rate * num_real), 1).sum() / num_real.sum()
    achieved = len(sample.positions) / num_real.sum()
    return _grade_rate(sample, float(achieved), rate, float(achieved / expected))


def check_noising_rate(sample: TargetSample, objective: Objective) -> Diagnostic | None:
    """Check the fraction of noised tokens, with or without special tokens."""
    if objective.decoder_noising is None:
        return None
    rate = objective.decoder_noising.mid_training_masking_rate
    num_masked, num_real = sample.samples.batch.masked_counts(sample.name)
    achieved = num_masked / num_real
    if rate is None:
        return sample.diagnose("masking-rate", "ok", f"{achieved:.1%} of the tokens are predicted")
    text = float((~sample.originals.is_special).sum() / sample.originals.is_real.sum())
    expected = min(max(achieved, rate * text), rate)
    return _grade_rate(sample, achieved, rate, achieved / expected)


def _grade_rate(sample: TargetSample, achieved: float, rate: float, ratio: float) -> Diagnostic:
    return sample.diagnose(
        "masking-rate",
        grade(abs(1 - ratio), note=0.1, warning=0.25),
        f"{achieved:.1%} of the tokens are masked; the rate is {rate:.1%}",
        "sequences hold too few words to choose from, or the selection is wrong",
        achieved=achieved,
        requested=rate,
    )


def check_labels(sample: TargetSample, objective: Objective) -> Diagnostic | None:
    """Check that the labels are the original tokens at their positions."""
    if (positions := sample.label_positions(objective)) is None:
        return None
    expected = sample.originals.token_ids.take(positions, mode="wrap")
    num_wrong = int((expected != sample.labels).sum())
    return sample.diagnose_errors(
        "targets",
        num_wrong,
        f"{num_wrong:,} of {len(expected):,} labels are not the original token",
        num_wrong=num_wrong,
        num_targets=len(expected),
    )


def check_special_tokens_unmasked(sample: TargetSample, objective: Objective) -> Diagnostic | None:
    """Check that special tokens and padding are never masked, even if the text contains them."""
    if objective.capabilities.prediction != "masked":
        return None
    reserved = np.isin(sample.originals.token_ids, list(sample.reserved))
    special = sample.originals.is_special | reserved
    num_masked = int(special.ravel()[sample.positions].sum())
    return sample.diagnose_errors(
        "special-tokens",
        num_masked,
        f"{num_masked:,} special tokens or padding are masked",
        num_targets=num_masked,
    )


def check_targets_within_document(sample: TargetSample, objective: Objective) -> Diagnostic | None:
    """Check that a target is in the same document, and is not padding or a special token."""
    originals, label_positions = sample.originals, sample.label_positions(objective)
    if objective.capabilities.prediction != "causal" or label_positions is None:
        return None
    document_ids = originals.token_info.document_ids
    reserved = np.isin(originals.token_ids, list(sample.reserved)) & ~originals.is_special
    is_wrong = reserved.take(label_positions, mode="wrap")
    if document_ids is not None:
        label_documents = document_ids.take(label_positions, mode="wrap")
        is_wrong |= label_documents != document_ids.ravel()[sample.positions]
        is_wrong |= label_documents < 0
    num_wrong = int(is_wrong.sum())
    return sample.diagnose_errors(
        "special-tokens",
        num_wrong,
        f"{num_wrong:,} targets are padding, of another document, or special tokens in the text",
        num_targets=num_wrong,
    )


def check_unique_targets(sample: TargetSample) -> Diagnostic:
    """Check that no target occurs twice in a batch."""
    targets = np.stack((sample.positions, *sample.extra_inputs.values()))
    num_repeated = targets.shape[1] - np.unique(targets, axis=1).shape[1]
    return sample.diagnose_errors(
        "unique-targets",
        num_repeated,
        f"{num_repeated:,} targets are repeated",
        num_repeated=num_repeated,
    )


def check_other_tokens_unchanged(sample: TargetSample, objective: Objective) -> Diagnostic:
    """Check that tokens without a target are unchanged."""
    token_ids, originals = sample.samples.batch.token_ids, sample.originals.token_ids
    length = originals.shape[1]  # some objectives append positions to the text
    is_changed = np.zeros(token_ids.shape, np.bool_)
    is_changed[:, :length] = token_ids[:, :length] != originals
    is_changed = is_changed.ravel()
    for targets in sample.samples.batch.targets.values():
        is_changed[targets.positions[targets.weights > 0]] = False
    num_changed = int(is_changed.sum())
    return sample.diagnose_errors(
        "unchanged-tokens",
        num_changed,
        f"{num_changed:,} tokens without a target are changed",
        num_changed=num_changed,
    )


def check_corruption_rates(sample: TargetSample, objective: Objective) -> Diagnostic | None:
    """Check the fractions of targets that are masked, replaced, or kept."""
    if objective.capabilities.prediction != "masked":
        return None
    input_ids = sample.samples.batch.token_ids.ravel()[sample.positions]
    masked = input_ids == sample.specials.mask
    kept = ~masked & (input_ids == sample.labels)
    rates = {
        "mask": float(masked.mean()),
        "random": float((~masked & ~kept).mean()),
        "keep": float(kept.mean()),
    }
    message = ", ".join(f"{rate:.1%} {name}" for name, rate in rates.items())
    corruption = objective.token_corruption
    if not isinstance(corruption, TokenReplacement):
        severity = grade(rates["keep"], warning=0.5)
        advice = "most targets are visible in the input: the model copies"
        return sample.diagnose("corruption-rates", severity, message, advice, **rates)
    # All tokens of a word are corrupted alike, so the effective sample is smaller.
    num_draws = len(input_ids) / (4 if corruption.unit == "selected" else 1)
    expected = {"mask": corruption.mask, "random": corruption.random, "keep": corruption.keep}
    # A random token may be the mask or the original token.
    tolerance = 0.005 + 2 * corruption.random / sample.vocab_size
    has_error = any(
        abs(rate - expected[name])
        > tolerance + MAX_DEVIATIONS * (expected[name] * (1 - expected[name]) / num_draws) ** 0.5
        for name, rate in rates.items()
    )
    requested = "/".join(f"{100 * rate:.4g}" for rate in expected.values())
    return sample.diagnose(
        "corruption-rates",
        "error" if has_error else "ok",
        f"{message} (requested: {requested})",
        WRONG_TARGETS_ADVICE.format(f"{sample.name}.corruption"),
        **rates,
    )


def check_mask_repetition(sample: TargetSample, objective: Objective) -> Diagnostic | None:
    """Check that dynamic masks differ between epochs, and static ones repeat after ``copies``."""
    samples, corruption = sample.samples, objective.token_corruption
    if objective.capabilities.prediction != "masked" or corruption is None:
        return None
    same = float(_same_positions(samples.batch, samples.next_epoch, sample.name).mean())
    severity: Severity = "ok"
    message = (
        f"{same:.0%} of the sequences have the same targets in the next epoch ({corruption.when})"
    )
    if corruption.when == "dynamic" or corruption.copies > 1:
        severity = grade(same, note=0.2, error=0.5)
    if samples.repeated_epoch is not None:
        is_same = _same_positions(samples.batch, samples.repeated_epoch, sample.name)
        is_same &= (samples.batch.token_ids == samples.repeated_epoch.token_ids).all(axis=1)
        repeated = float(is_same.mean())
        message += f", {repeated:.0%} after {corruption.copies} epochs"
        severity = severity if repeated == 1.0 else "error"
    advice = WRONG_TARGETS_ADVICE.format(f"{sample.name}.corruption.when")
    return sample.diagnose("repetition", severity, message, advice, same_fraction=same)


def _same_positions(one: Batch, other: Batch, name: str) -> NDArray[np.bool_]:
    """Return (B,): which sequences have the same target positions."""
    first, second = one.targets[name], other.targets[name]
    same = (first.positions == second.positions) & (first.weights == second.weights)
    return same.reshape(len(one.token_ids), -1).all(axis=1)


def check_balanced_labels(sample: TargetSample, objective: Objective) -> Diagnostic | None:
    """Check that half of the pairs are random; one-sentence documents only yield random pairs."""
    if objective.capabilities.relations != ("next", "random"):
        return None
    fraction, number = float(sample.labels.mean()), len(sample.labels)
    severity = grade(
        abs(fraction - 0.5) - MAX_DEVIATIONS * 0.5 / number**0.5, note=1e-9, warning=0.15
    )
    relation = sample.originals.relation
    sequences = sample.positions // sample.originals.token_ids.shape[1]
    if relation is None or not np.array_equal(relation[sequences], sample.labels):
        severity = "error"
    return sample.diagnose(
        "labels",
        severity,
        f"{fraction:.1%} of {number:,} pairs are random",
        "prepare documents of several sentences, or remove next-sentence",
        random_fraction=fraction,
    )


TargetCheck = Callable[[TargetSample, Objective], Diagnostic | None]

POSITIONAL_CHECKS: tuple[TargetCheck, ...] = (check_labels, check_other_tokens_unchanged)
"""Checks that compare a batch with its text position by position."""

TARGET_CHECKS: tuple[TargetCheck, ...] = (
    check_masking_rate,
    check_noising_rate,
    check_special_tokens_unmasked,
    check_targets_within_document,
    check_corruption_rates,
    check_mask_repetition,
    check_balanced_labels,
)
"""Checks of the targets alone; they return None if the objective's capabilities rule them out."""
