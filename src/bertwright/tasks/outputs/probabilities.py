"""Probabilities of logits, and logits of mean probabilities."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


def softmax(outputs: FloatArray, temperature: float = 1.0) -> FloatArray:
    """Return the softmax over the last axis."""
    scaled = outputs / temperature
    powers = np.exp(scaled - scaled.max(-1, initial=-np.inf, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def mean_softmax_logits(outputs: Sequence[FloatArray]) -> FloatArray:
    """Return logits whose softmax is the mean softmax of ``outputs``, (..., C) each."""
    mean = np.mean([softmax(logits) for logits in outputs], axis=0)
    return np.log(np.maximum(mean, np.finfo(np.float32).tiny))


def mean_sigmoid_logits(outputs: Sequence[FloatArray]) -> FloatArray:
    """Return logits whose sigmoid is the mean sigmoid of ``outputs``."""
    yes, no = (
        np.maximum(np.mean([sigmoid(sign * logits) for logits in outputs], axis=0), 1e-30)
        for sign in (1, -1)
    )
    return np.log(yes) - np.log(no)


def sigmoid(outputs: FloatArray, temperature: float = 1.0) -> FloatArray:
    """Return the sigmoid, computed without overflow."""
    return (0.5 * (1 + np.tanh(outputs / (2 * temperature)))).astype(np.float32)
