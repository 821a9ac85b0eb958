"""Methods of fine-tuning compared over encoders, tasks and seeds."""
