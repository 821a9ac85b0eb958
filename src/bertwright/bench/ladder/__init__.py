"""Ways to make a fine-tuned model small: tasks x ways x seeds, each as what it is shipped as."""
