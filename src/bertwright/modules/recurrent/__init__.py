"""Recurrent token mixers."""
