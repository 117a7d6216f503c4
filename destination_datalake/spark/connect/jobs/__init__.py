"""Jobs of Spark Connect: their DataFrames, and their tasks and results as rows."""
