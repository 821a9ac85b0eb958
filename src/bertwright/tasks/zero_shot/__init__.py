"""Zero-shot and few-shot evaluation."""
