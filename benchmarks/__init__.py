"""What `asv run` records of a commit; see docs/history.md.

Only the standard library is imported here: asv imports this package in environments that hold the package of an old
commit, or of one that does not build. Everything of tirx_ladder is imported where it is used.
"""
