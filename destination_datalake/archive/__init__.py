"""The archive: RECORD lines as they were received, from which `replay` makes tables again."""
