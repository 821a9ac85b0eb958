"""Hardware, compiler, memory allocator and threads of this process.

This package affects the speed of a run and the description of its machine, but not its results.
"""
