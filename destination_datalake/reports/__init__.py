"""Reports of syncs: an object in the lake for each sync, from which the history and the health of tables are read."""
