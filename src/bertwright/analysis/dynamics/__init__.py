"""How training changes a model, and what fine-tuning depends on."""
