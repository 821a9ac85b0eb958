"""An interactive page that shows what a model does with texts, position by position."""
