"""How a sync writes to its table: what it takes over from earlier syncs, the branch it commits to, and publishing.

An overwrite is written to a branch of its own, and its writer holds the table's fencing token, until it is published.
Branch and token are created, taken over and removed together, in one metadata commit. Rows that are to be deduplicated
are committed to a branch too, and merged into the content from there.

The platform does not send acknowledged records again, so the rows of a pending overwrite are kept: a later sync of the
same generation continues its branch, and a sync that appends adopts its rows. An overwrite of another generation
removes the branch.
"""
