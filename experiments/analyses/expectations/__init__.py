"""Expected values of every analysis: on planted models, and on a trained toy model."""

from collections.abc import Mapping

from experiments.analyses.expectations import (
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
from experiments.analyses.expecting import LearnedCheck, PlantedCheck

PLANTED_CHECKS: Mapping[str, PlantedCheck] = {
    "input-attribution": attribution.expect_input_attribution,
    "attention-entropy": attention.expect_entropy,
    "attention-explains": attention.expect_explanation,
    "attention-features": syntax.expect_attention_features,
    "attention-flow": attribution.expect_flow,
    "attention-norms": identifiability.expect_attention_norms,
    "attention-or-states": syntax.expect_attention_or_states,
    "attention-parser": syntax.expect_attention_parser,
    "attention-patterns": attention.expect_patterns,
    "attention-rollout": attention.expect_rollout,
    "attention-mass": attention.expect_attention_mass,
    "attention-slopes": attention.expect_gradients,
    "pretraining-benefit": dynamics.expect_pretraining_benefit,
    "change": dynamics.expect_model_change,
    "contextuality": geometry.expect_contextuality,
    "coreference": syntax.expect_coreference,
    "description-length": probing.expect_description_length,
    "edge-probe": probing.expect_edge_probe,
    "effective-attention": identifiability.expect_effective_attention,
    "effective-context": dynamics.expect_effective_context,
    "feature-layers": probing.expect_feature_layers,
    "fixed-heads": removal.expect_fixed_heads,
    "frozen-or-tuned": dynamics.expect_feature_extraction,
    "head-clusters": attention.expect_clusters,
    "head-importance": removal.expect_head_importance,
    "layer-redundancy": removal.expect_layer_redundancy,
    "learned-gates": removal.expect_learned_gates,
    "learned-masks": attribution.expect_learned_masks,
    "linear-probe": probing.expect_linear_probe,
    "main-auxiliary": probing.expect_main_auxiliary,
    "malformed-input": behaviour.expect_malformed_input,
    "names": behaviour.expect_name_substitution,
    "numbers": probing.expect_numeracy,
    "one-head": removal.expect_one_head_per_layer,
    "inter-sentence-coherence": behaviour.expect_coherence,
    "relation-heads": syntax.expect_relation_heads,
    "seeds": dynamics.expect_seed_variance,
    "sentence-vectors": geometry.expect_sentence_vectors,
    "single-heads": removal.expect_head_ablation,
    "structural-probe": probing.expect_structural_probe,
    "suites": behaviour.expect_suites,
    "tickets": dynamics.expect_lottery_tickets,
    "token-identity": probing.expect_token_identity,
    "token-mixing": attribution.expect_token_mixing,
    "translation-heads": removal.expect_translation_heads,
    "triggers": behaviour.expect_triggers,
    "word-positions": probing.expect_word_positions,
    "word-senses": geometry.expect_word_senses,
}
"""Checks by the kind of the analysis."""

LEARNED_CHECKS: Mapping[str, LearnedCheck] = {
    "agreement": behaviour.expect_agreement,
    "facts": behaviour.expect_facts,
    "negation": behaviour.expect_negation,
    "translation-heads": removal.expect_learned_translation,
}
"""Checks of what the toy model was trained on."""
