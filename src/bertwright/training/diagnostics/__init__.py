"""Diagnostics: the doctor, the trace of masking, and hardware checks."""
