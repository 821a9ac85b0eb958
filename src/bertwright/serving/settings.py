"""What a server takes on, and what it refuses."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """The limits of a server.

    Attributes:
        num_texts: of one request.
        text_tokens: of one text, special ones included; what a model reads may be less.
        body_bytes: of a request.
        num_requests: that are being answered at the same time, whatever they ask.
        queue_tokens: that may wait for one model: what comes on top of them is refused.
        deadline_ms: how long an idle model waits for company to the first text.
        timeout_seconds: how long a request may take to arrive, and again to be answered.
        api_keys: of which a request must show one; where there are none, nobody is asked.
    """

    num_texts: int = 512
    text_tokens: int = 8192
    body_bytes: int = 2 * 2**20
    num_requests: int = 512
    queue_tokens: int = 65_536
    deadline_ms: float = 2.0
    timeout_seconds: float = 30.0
    api_keys: frozenset[str] = field(default=frozenset(), repr=False)
