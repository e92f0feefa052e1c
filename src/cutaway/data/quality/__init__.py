"""What makes scores lie: duplicates and near duplicates across splits, columns that give the target away, groups and
times that the split cuts through, labels that are probably wrong, and drift. One file for each.

`validation.guard` is the door. Duplicates are told of as data is opened, where all of it is at hand (`duplicates`), and
so are columns that repeat the target (`tables.leaks`). The work is bounded by looking at some of the examples, and a
finding says of how many it speaks. Nothing is imported here: whatever opens data imports `duplicates`.
"""
