"""Read and write tokenizers in Hugging Face folders."""
