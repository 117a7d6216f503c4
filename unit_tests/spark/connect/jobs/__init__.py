"""Jobs of Spark Connect: rows, functions, shuffles."""
