"""Reports of syncs: what each did, as an object in the lake; their history, and what is wrong with it."""
