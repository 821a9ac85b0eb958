"""How texts become sequences, shared by the input formats.

Reading order: ``chunks`` (whole sentences that fill a sequence), ``layout`` (one text span as a
sequence), ``text_layout`` (several texts as a sequence), ``reversal`` (sequences read backward).
"""
