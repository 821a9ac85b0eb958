"""A small text with names, numbers, accents and two scripts."""

KINDS = ("wordpiece", "byte-bpe", "unigram", "words")

STORIES = (
    "The lighthouse keeper counted ships. He had counted 1,204 of them since the winter of 1987!",
    "Mr. Abel, who didn't trust the sea, asked: “Why do you count?” Nobody answered him.",
    "Counting is a way of waiting. Waiting is a way of counting; both of them take the whole day.",
    "A ship from Malmö \u2013 the Åland \u2013 brought café chairs, naïve maps, 3.5 tons of rice.",
    "我们在海边。灯塔很高\uff0c它的灯很亮\uff01 The guests read the sign twice.",
)


def stories(num_stories: int) -> list[str]:
    """Return distinct documents of three paragraphs."""
    return [
        "\n".join([f"Story {i} of the lighthouse.", STORIES[i % 5], STORIES[(i * 3 + 1) % 5]])
        for i in range(num_stories)
    ]
