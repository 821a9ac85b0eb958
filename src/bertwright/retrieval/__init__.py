"""Search indexes: texts and vectors in segments on disk, and the ranking of texts for queries.

A model enters an index only through ``TextModel.retrieval_encoder()``; its methods
``encode_documents`` and ``encode_queries`` are described in
:mod:`bertwright.models.retrieval_encoder`.
"""
