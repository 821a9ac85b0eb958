"""A page on which one looks at what a model does with texts, place by place."""
