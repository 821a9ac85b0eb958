"""What must come out, by analysis: of what is planted here, and of what a toy model has learned."""

from collections.abc import Mapping

from bertwright.analysis.planted.expectations import (
    attention,
    attribution,
    behaviour,
    dynamics,
    geometry,
    identifiability,
    probing,
    removal,
    syntax,
)
from bertwright.analysis.planted.expecting import Expectations, OfToy

PLANTED: Mapping[str, Expectations] = {
    "answer-attribution": attribution.answers,
    "attention-entropy": attention.entropy,
    "attention-explains": attention.explaining,
    "attention-features": syntax.attention_features,
    "attention-flow": attribution.flow,
    "attention-norms": identifiability.norms,
    "attention-or-states": syntax.attention_or_states,
    "attention-parser": syntax.attention_parser,
    "attention-patterns": attention.patterns,
    "attention-rollout": attention.rolled_out,
    "attention-shares": attention.shares,
    "attention-slopes": attention.sloping,
    "beginnings": dynamics.beginnings,
    "change": dynamics.change,
    "contextuality": geometry.contextuality,
    "coreference": syntax.coreference,
    "description-length": probing.description_length,
    "edge-probe": probing.edges,
    "effective-attention": identifiability.effective_attention,
    "effective-context": dynamics.effective_context,
    "feature-layers": probing.feature_layers,
    "fixed-heads": removal.fixed_heads,
    "frozen-or-tuned": dynamics.frozen_or_tuned,
    "head-clusters": attention.clusters,
    "head-importance": removal.importance,
    "layer-redundancy": removal.layers,
    "learned-gates": removal.learned_gates,
    "learned-masks": attribution.learned_masks,
    "linear-probe": probing.linear,
    "main-auxiliary": probing.main_auxiliary,
    "malformed-input": behaviour.malformed_input,
    "names": behaviour.names,
    "numbers": probing.numbers,
    "one-head": removal.one_head,
    "pair-questions": behaviour.pair_questions,
    "relation-heads": syntax.relation_heads,
    "seeds": dynamics.seeds,
    "sentence-vectors": geometry.sentence_vectors,
    "single-heads": removal.single_heads,
    "structural-probe": probing.structural,
    "suites": behaviour.suites,
    "tickets": dynamics.tickets,
    "token-identity": probing.identity,
    "token-mixing": attribution.mixing,
    "translation-heads": removal.translation_heads,
    "triggers": behaviour.triggers,
    "word-places": probing.word_places,
    "word-senses": geometry.senses,
}
"""By the names of the analyses."""

LEARNED: Mapping[str, OfToy] = {
    "agreement": behaviour.agreement,
    "facts": behaviour.facts,
    "negation": behaviour.negation,
    "translation-heads": removal.translations,
}
"""What a model has learned that was taught it."""
