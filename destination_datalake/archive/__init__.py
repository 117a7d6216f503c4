"""The archive of RECORD lines, exactly as the syncs received them. The command `replay` rebuilds tables from it."""
