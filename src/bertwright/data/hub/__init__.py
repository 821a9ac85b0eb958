"""The Hugging Face Hub: models and data sets by name, and uploads.

``owner/name`` is the repository, ``owner/name@revision`` a branch, tag or commit of it. Everything
goes through ``huggingface_hub``, so its cache, tokens, offline mode (``HF_HUB_OFFLINE``) and
address (``HF_ENDPOINT``) apply. The library is imported when a name is first used.
"""
