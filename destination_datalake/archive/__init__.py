"""The archive: RECORD lines as received in syncs, from which the command `replay` rebuilds tables."""
