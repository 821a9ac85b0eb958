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
    "attention-features": syntax.attention_features,
    "attention-flow": attribution.flow,
    "attention-norms": identifiability.norms,
    "attention-or-states": syntax.attention_or_states,
    "attention-parser": syntax.attention_parser,
    "attention-patterns": attention.patterns,
    "attention-rollout": attention.rolled_out,
    "attention-shares": attention.shares,
    "change": dynamics.change,
    "contextuality": geometry.contextuality,
    "coreference": syntax.coreference,
    "description-length": probing.description_length,
    "edge-probe": probing.edges,
    "effective-attention": identifiability.effective_attention,
    "effective-context": dynamics.effective_context,
    "head-clusters": attention.clusters,
    "head-importance": removal.importance,
    "layer-redundancy": removal.layers,
    "learned-gates": removal.learned_gates,
    "linear-probe": probing.linear,
    "main-auxiliary": probing.main_auxiliary,
    "malformed-input": behaviour.malformed_input,
    "names": behaviour.names,
    "numbers": probing.numbers,
    "one-head": removal.one_head,
    "relation-heads": syntax.relation_heads,
    "sentence-vectors": geometry.sentence_vectors,
    "single-heads": removal.single_heads,
    "structural-probe": probing.structural,
    "suites": behaviour.suites,
    "token-identity": probing.identity,
    "token-mixing": attribution.mixing,
    "triggers": behaviour.triggers,
    "word-senses": geometry.senses,
}
"""By the names of the analyses."""

LEARNED: Mapping[str, OfToy] = {
    "agreement": behaviour.agreement,
    "facts": behaviour.facts,
    "negation": behaviour.negation,
}
"""What a model has learned that was taught it."""
