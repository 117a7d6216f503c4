"""The archive: the RECORD lines of syncs, exactly as received. The command `replay` rebuilds tables from it."""
