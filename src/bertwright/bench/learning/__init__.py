"""Learning per minute: our ``pretrain`` against the ``Trainer`` of Transformers at its best.

Reading order: ``arms`` (what is compared), ``trainer`` (the peer's training in the given time),
``running`` (one arm after the other, finished ones kept), ``report`` (differences with intervals).
"""
