"""Whether compression does what it should, row by row of the survey, at toy size.

Reading order: ``row`` (what one is), ``ground`` (what all are checked on), ``rows`` (one file for
each), ``checking``, ``page``.
"""
