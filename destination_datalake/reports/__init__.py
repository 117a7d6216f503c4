"""Reports of syncs: an object in the lake for each sync, the history of syncs, and the health of tables."""
