"""What makes scores lie: near duplicates across splits, columns that give the target away, groups and times that the
split cuts through, labels that are probably wrong, and drift. One file for each; exact duplicates and columns that
repeat the target are found as the data is opened, by `splits` and `tables.leaks`.

The work is bounded by looking at some of the examples, and a finding says of how many it speaks.
"""

from .looking import guard

__all__ = ["guard"]
