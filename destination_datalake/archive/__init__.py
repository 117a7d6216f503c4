"""The archive: RECORD lines as received, from which `replay` rebuilds tables."""
