"""From files to pieces: readers, tokenizers, preparation, shards. Nothing here imports torch."""
