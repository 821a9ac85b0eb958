"""A small text of our own, with what texts have: names, numbers, accents, two scripts."""

KINDS = ("wordpiece", "byte-bpe", "unigram", "words")

STORIES = (
    "The lighthouse keeper counted ships. He had counted 1,204 of them since the winter of 1987!",
    "Mr. Abel, who didn't trust the sea, asked: “Why do you count?” Nobody answered him.",
    "Counting is a way of waiting. Waiting is a way of counting; both of them take the whole day.",
    "A ship from Malmö \u2013 the Åland \u2013 brought café chairs, naïve maps, 3.5 tons of rice.",
    "我们在海边。灯塔很高\uff0c它的灯很亮\uff01 The guests read the sign twice.",
)


def stories(number: int) -> list[str]:
    """So many documents of three paragraphs, no two of them the same."""
    return [
        "\n".join([f"Story {i} of the lighthouse.", STORIES[i % 5], STORIES[(i * 3 + 1) % 5]])
        for i in range(number)
    ]
