"""Hardware, compiler, memory allocator and threads of this process.

This package decides about speed and about what a run records of its machine, not about results.
"""
