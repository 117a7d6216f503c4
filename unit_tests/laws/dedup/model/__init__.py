"""The model: versions of rows, and tables after syncs."""
