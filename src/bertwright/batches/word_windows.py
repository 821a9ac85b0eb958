"""Windows of a long sentence of words, which overlap, and the words that each of them tags."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class WordWindow:
    """A window: the words that it reads, and those of them that it has outputs for."""

    words: range
    tagged: range


def word_windows(
    starts: Sequence[int], num_tokens: int, size: int, stride: int | None
) -> list[WordWindow]:
    """Return the windows of a sentence whose words start at these tokens.

    A window has at most ``size`` tokens, but at least one word. Windows start about ``stride``
    tokens apart, at words; without a stride each begins where the last one ends. A word is tagged
    in the window with most context on its shorter side, where an end of the sentence is no limit.
    So every word is tagged once, and the tagged words of a window are consecutive.
    """
    ends = [*starts[1:], num_tokens]
    best_context = [-1.0] * len(starts)
    owners = [0] * len(starts)
    windows = _window_ranges(starts, ends, size, stride)
    for index, window in enumerate(windows):
        begin = -math.inf if window.start == 0 else starts[window.start]
        end = math.inf if window.stop == len(starts) else ends[window.stop - 1]
        for word in window:
            context = min(starts[word] - begin, end - ends[word])
            if context > best_context[word]:
                best_context[word], owners[word] = context, index
    tagged = [
        range(bisect_right(owners, index - 1), bisect_right(owners, index))
        for index in range(len(windows))
    ]
    return [WordWindow(*pair) for pair in zip(windows, tagged, strict=True) if pair[1]]


def _window_ranges(
    starts: Sequence[int], ends: Sequence[int], size: int, stride: int | None
) -> list[range]:
    """Return the words of each window."""
    windows: list[range] = []
    first = stop = 0
    while stop < len(starts):
        stop = first + 1
        while stop < len(starts) and ends[stop] - starts[first] <= size:
            stop += 1
        windows.append(range(first, stop))
        if stride is None:
            first = stop
        else:
            next_word = bisect_right(starts, starts[first] + stride) - 1
            first = min(max(next_word, first + 1), stop)
    return windows
